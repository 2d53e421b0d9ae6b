"""The chart's second scheduler: objects as helm renders them, and their containers as processes of this machine.

A process finds the API server and its account as it does in a pod. It may do what the chart's roles allow.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterable
from typing import Any

import yaml

from fairlead.cluster.kinds import CONFIG_MAPS, Kind
from tests import toolchain
from tests.chart import helm
from tests.cluster.plane import Object, Plane, free_ports, is_well

SPACE = helm.NAMESPACE
RBAC = "rbac.authorization.k8s.io"
NAMESPACES = Kind("", "v1", "namespaces")
ACCOUNTS = Kind("", "v1", "serviceaccounts", namespaced=True)
KINDS = {
    "ServiceAccount": ACCOUNTS,
    "ConfigMap": CONFIG_MAPS,
    "ClusterRole": Kind(RBAC, "v1", "clusterroles"),
    "ClusterRoleBinding": Kind(RBAC, "v1", "clusterrolebindings"),
    "Role": Kind(RBAC, "v1", "roles", namespaced=True),
    "RoleBinding": Kind(RBAC, "v1", "rolebindings", namespaced=True),
    "Deployment": Kind("apps", "v1", "deployments", namespaced=True),
    "PodDisruptionBudget": Kind("policy", "v1", "poddisruptionbudgets", namespaced=True),
}
REVIEWS = Kind("authorization.k8s.io", "v1", "subjectaccessreviews")
# One right of each role: the API server learns of new ones a moment after it has stored them.
RIGHTS = (
    {"verb": "patch", "resource": "pods"},
    {"verb": "list", "resource": "persistentvolumes"},
    {"verb": "watch", "resource": "configmaps", "namespace": "kube-system"},
    {"verb": "create", "group": "coordination.k8s.io", "resource": "leases", "namespace": SPACE},
)
MOUNT = "/etc/fairlead"
# Every pod has its account there. Nothing of it is to be seen outside of the process.
SCRIPT = """
mount -t tmpfs tmpfs /run && mkdir -p /run/secrets/kubernetes.io || exit 1
cp -r "$0" /run/secrets/kubernetes.io/serviceaccount || exit 1
unset KUBECONFIG
exec "$@"
"""


class Release:
    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self._metrics, self.port, self._secure = free_ports(3)
        scheduler = {"enabled": True, "args": [f"--secure-port={self._secure}"]}
        extender = {"enabled": True, "replicas": 2, "port": self.port, "scheduler": scheduler}
        values = {"devicePlugin": {"enabled": False}, "metrics": {"port": self._metrics}, "extender": extender}
        self.objects = helm.objects(values)
        (self._deployment,) = self.of_kind("Deployment")
        self.account = self.pod["serviceAccountName"]
        self.user = f"system:serviceaccount:{SPACE}:{self.account}"

    def of_kind(self, kind: str) -> list[Object]:
        return [one for one in self.objects if one["kind"] == kind]

    @property
    def pod(self) -> Object:
        """The spec of each pod of the Deployment."""
        spec: Object = self._deployment["spec"]["template"]["spec"]
        return spec

    @property
    def name(self) -> str:
        """As pods name the scheduler."""
        (profile,) = self._configuration()["profiles"]
        return str(profile["schedulerName"])

    def _configuration(self) -> Any:
        (files,) = self.of_kind("ConfigMap")
        return yaml.safe_load(files["data"]["kube-scheduler.yaml"])

    async def install(self) -> None:
        await self._plane.create(NAMESPACES, [{"metadata": {"name": SPACE}}])
        for one in self.objects:
            await self._plane.create(KINDS[one["kind"]], [one], one["metadata"].get("namespace", ""))
        await self._plane.until(self._has_rights, "the roles count")
        await self._write_account()
        (files,) = self.of_kind("ConfigMap")
        (self._plane.home / "mounted").mkdir()
        for name, text in files["data"].items():
            (self._plane.home / "mounted" / name).write_text(text)

    async def _has_rights(self) -> bool:
        kind = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
        asked = [{**kind, "spec": {"user": self.user, "resourceAttributes": one}} for one in RIGHTS]
        answers = [await self._plane.client.create(REVIEWS, one, dict[str, Any]) for one in asked]
        return all(one["status"]["allowed"] for one in answers)

    async def _write_account(self) -> None:
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        made = await self._plane.client.create(
            ACCOUNTS, body, dict[str, Any], name=self.account, namespace=SPACE, subresource="token"
        )
        home = self._plane.home / "account"
        home.mkdir()
        (home / "token").write_text(made["status"]["token"])
        (home / "namespace").write_text(SPACE)
        (home / "ca.crt").write_text((self._plane.home / "certs" / "apiserver.crt").read_text())

    async def start(self) -> None:
        """One pod of it. Of several on one machine the second would find its ports taken."""
        for one in self.pod["containers"]:
            env = {each["name"]: each["value"] for each in one.get("env", ())}
            known = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(self._plane.api_port)}
            self._plane.process(one["name"], *self._words(one["command"]), **env, **known).start()
        await self._plane.until(self._is_ready, "the containers are ready, as their probes see it")

    def _words(self, command: Iterable[str]) -> list[str]:
        first, *rest = command
        program = {
            "kube-scheduler": [str(toolchain.build("kube-scheduler"))],
            "fairlead": [sys.executable, "-m", "fairlead"],
        }[first]
        rest = [word.replace(MOUNT, str(self._plane.home / "mounted")) for word in rest]
        apart = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
        return [*apart, "sh", "-c", SCRIPT, str(self._plane.home / "account"), *program, *rest]

    async def _is_ready(self) -> bool:
        return await is_well(self._metrics, "/readyz") and await is_well(self._secure, "/healthz", tls=True)

    # --- What it did ------------------------------------------------------------------------------------------------

    def requests(self) -> list[Object]:
        """Those of its account, as the API server has written them down."""
        lines = self._plane.audit.read_text().splitlines()
        return [one for one in map(json.loads, lines) if one["user"]["username"] == self.user]

    def forbidden(self) -> list[str]:
        return [
            f"{one['verb']} {one['requestURI']}"
            for one in self.requests()
            if one.get("responseStatus", {}).get("code") in {401, 403}
        ]

    def used(self) -> set[tuple[str, str]]:
        """Verbs, with what they were used on."""
        found = set()
        for one in self.requests():
            what = one.get("objectRef", {})
            parts = [what.get("resource", ""), what.get("subresource", "")]
            found.add((one["verb"], "/".join(part for part in parts if part)))
        return found

    def granted(self) -> set[tuple[str, str]]:
        """The same, of the roles that the chart itself makes."""
        rules = [rule for one in (*self.of_kind("ClusterRole"), *self.of_kind("Role")) for rule in one["rules"]]
        return {(verb, what) for rule in rules for what in rule["resources"] for verb in rule["verbs"]}

    async def ask_filter(self, thing: Object, nodes: list[str]) -> Any:
        """What kube-scheduler asks the extender, asked by the test."""
        body = json.dumps({"Pod": thing, "NodeNames": nodes}).encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        head = f"POST /scheduler/filter HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        answer = await reader.read()
        writer.close()
        return json.loads(answer.partition(b"\r\n\r\n")[2])
