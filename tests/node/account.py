"""An account of the cluster with exactly the rules it is given, and a kubeconfig for it."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from fairlead.cluster.rbac import Rule
from tests.node.rig import certificates
from tests.node.rig.api import Api, RefusedError
from tests.node.rig.places import api_address

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


class Account:
    def __init__(self, root: Path, rules: Iterable[Rule]) -> None:
        self._api = Api()
        self.name = f"fairlead-{secrets.token_hex(4)}"
        self.file = root / f"{self.name}.kubeconfig"
        self._api.call("POST", ACCOUNTS, {"metadata": {"name": self.name}})
        self._api.call("POST", f"{RBAC}/clusterroles", {"metadata": {"name": self.name}, "rules": _rules(rules)})
        subject = {"kind": "ServiceAccount", "name": self.name, "namespace": "default"}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": self.name}
        binding = {"metadata": {"name": self.name}, "roleRef": role, "subjects": [subject]}
        self._api.call("POST", f"{RBAC}/clusterrolebindings", binding)
        made = self._api.call("POST", f"{ACCOUNTS}/{self.name}/token", {"spec": {"expirationSeconds": 3600}})
        self.token = made["status"]["token"]
        self._write()

    def allow(self, rules: Iterable[Rule]) -> None:
        """From now on these rules. It takes the API server a moment to see them."""
        path = f"{RBAC}/clusterroles/{self.name}"
        self._api.call("PATCH", path, {"rules": _rules(rules)}, "application/merge-patch+json")

    def remove(self) -> None:
        for path in (f"{RBAC}/clusterrolebindings", f"{RBAC}/clusterroles", ACCOUNTS):
            with suppress(RefusedError):
                self._api.call("DELETE", f"{path}/{self.name}")

    def _write(self) -> None:
        cluster = {"server": api_address(), "certificate-authority": certificates.file("ca", "crt")}
        config = {
            "clusters": [{"name": "node", "cluster": cluster}],
            "users": [{"name": "me", "user": {"token": self.token}}],
            "contexts": [{"name": "node", "context": {"cluster": "node", "user": "me"}}],
            "current-context": "node",
        }
        self.file.write_text(json.dumps(config))


def _rules(rules: Iterable[Rule]) -> list[dict[str, list[str]]]:
    return [{"apiGroups": [rule.group], "resources": [rule.resource], "verbs": list(rule.verbs)} for rule in rules]
