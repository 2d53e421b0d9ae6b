"""Releases of the Helm chart on the node: installed with values, looked at, and what they leave behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from tests.chart import helm
from tests.node import runtime
from tests.node.cluster import Cluster
from tests.node.daemon import HEALTH
from tests.node.rig.api import Api, RefusedError
from tests.node.rig.places import KUBECONFIG, PLUGINS
from tests.node.rig.steps import until
from tests.node.web import Web

SPACE = "fairlead-chart"
RELEASE = "devices"
PORT = 9402  # of probes and metrics, by the chart
WAIT = ("--wait", "--timeout", "120s")
MERGE = "application/merge-patch+json"
PODS_PATH = f"/api/v1/namespaces/{SPACE}/pods"
KINDS = (
    "/apis/apps/v1/daemonsets",
    "/apis/apps/v1/deployments",
    "/api/v1/pods",
    "/api/v1/configmaps",
    "/api/v1/secrets",
    "/api/v1/serviceaccounts",
    "/api/v1/services",
    "/apis/networking.k8s.io/v1/networkpolicies",
    "/apis/policy/v1/poddisruptionbudgets",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "/apis/rbac.authorization.k8s.io/v1/roles",
    "/apis/rbac.authorization.k8s.io/v1/rolebindings",
)


def image() -> dict[str, Any]:
    """The value of that name."""
    repository, _, tag = runtime.NAME.rpartition(":")
    return {"repository": repository, "tag": tag, "pullPolicy": "Never"}


def values(resource: str, count: int, **more: Any) -> dict[str, Any]:
    """Simulated devices, with a configuration of Fairlead's own."""
    short = resource.partition("/")[2]
    fleet = {"name": short, "devices": [{"count": count, "id": f"{short}-{{i}}"}]}
    config = {"backends": [{"kind": "sim", "fleet": fleet}], "rules": [{"resource": resource}], "health": HEALTH}
    return {"dialect": "fairlead", "image": image(), "fairlead": {"config": config}, **more}


def run_helm(*words: str, **more: Any) -> str:
    return helm.run(*words, "--namespace", SPACE, env={"KUBECONFIG": str(KUBECONFIG)}, **more)


def install(given: dict[str, Any], *words: str) -> None:
    run_helm("install", RELEASE, str(helm.CHART), *words, values=given)


def upgrade(given: dict[str, Any], *words: str) -> None:
    run_helm("upgrade", RELEASE, str(helm.CHART), *words, values=given)


@contextmanager
def namespace(cluster: Cluster) -> Iterator[Api]:
    """It warns of every pod that is not restricted."""
    api = cluster.api
    labels = {"pod-security.kubernetes.io/enforce": "privileged", "pod-security.kubernetes.io/warn": "restricted"}
    api.call("POST", "/api/v1/namespaces", {"metadata": {"name": SPACE, "labels": labels}})
    try:
        until(lambda: is_there(api, f"/api/v1/namespaces/{SPACE}/serviceaccounts/default"), "it has its account")
        yield api
    finally:
        cluster.remove_pods()
        with suppress(helm.HelmError):
            run_helm("uninstall", RELEASE, "--wait", "--timeout", "90s")
        api.call("DELETE", f"/api/v1/namespaces/{SPACE}")
        until(lambda: not is_there(api, f"/api/v1/namespaces/{SPACE}"), "the namespace is gone", 90.0)


class Installed:
    """The one pod of a component of the release."""

    def __init__(self, api: Api, component: str = "plugin") -> None:
        self._api = api
        self._component = component
        self.name = str(until(self._found, f"there is one pod of {component}", 60.0)[0]["metadata"]["name"])

    def look(self) -> Any:
        return self._api.get(f"{PODS_PATH}/{self.name}")

    def is_ready(self) -> bool:
        return self.ready_since() is not None

    def ready_since(self) -> str | None:
        """None: it is not."""
        conditions = self.look()["status"].get("conditions", ())
        found = [one for one in conditions if one["type"] == "Ready" and one["status"] == "True"]
        return str(found[0]["lastTransitionTime"]) if found else None

    def wait_ready(self) -> None:
        until(self.is_ready, f"the kubelet says that {self.name} is ready", 90.0)

    def restarts(self) -> int:
        return sum(one["restartCount"] for one in self.look()["status"].get("containerStatuses", ()))

    def web(self) -> Web:
        address = until(lambda: self.look()["status"].get("podIP"), f"{self.name} has an address", 60.0)
        return Web(address, PORT)

    def nudge(self) -> None:
        """The kubelet looks at a pod that was changed, and at its ConfigMaps; else it may take it a minute."""
        version = self.look()["metadata"]["resourceVersion"]
        change = {"metadata": {"annotations": {"example.com/looked-at": version}}}
        self._api.call("PATCH", f"{PODS_PATH}/{self.name}", change, MERGE)

    def _found(self) -> list[Any]:
        return only([one for one in pods(self._api) if component_of(one) == self._component])


def component_of(one: Any) -> str:
    return str(one["metadata"]["labels"].get("app.kubernetes.io/component"))


def pods(api: Api) -> list[Any]:
    return list(api.get(PODS_PATH)["items"])


def only(found: list[Any]) -> list[Any]:
    return found if len(found) == 1 else []


def left_behind(api: Api, release: str = RELEASE) -> list[str]:
    """Every object of the release, and what helm itself keeps about it."""
    return [
        f"{path} {one['metadata']['name']}"
        for path in KINDS
        for one in api.get(path)["items"]
        if (one["metadata"].get("labels") or {}).get("app.kubernetes.io/instance") == release
        or one["metadata"]["name"].startswith(f"sh.helm.release.v1.{release}.")
    ]


def sockets() -> set[str]:
    return {path.name for path in PLUGINS.glob("*.sock")}


def is_there(api: Api, path: str) -> bool:
    try:
        api.get(path)
    except RefusedError as refused:
        if refused.code not in {404, 429}:  # 429: a kind that is just being made
            raise
        return False
    return True
