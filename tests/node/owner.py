"""Controllers that own a pod, and make another when it fails."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.node.cluster import POD_S, PODS_PATH, Asks, Cluster, Pod, shape
from tests.node.load import SCRIPT
from tests.node.rig.steps import until


@dataclass(frozen=True, slots=True)
class Kind:
    name: str
    path: str
    spec: dict[str, Any]
    restart: str


REPLICA_SET = Kind("ReplicaSet", "/apis/apps/v1/namespaces/default/replicasets", {"replicas": 1}, "Always")
JOB = Kind("Job", "/apis/batch/v1/namespaces/default/jobs", {"backoffLimit": 20}, "Never")


class Owner:
    """A controller of one pod."""

    def __init__(self, cluster: Cluster, kind: Kind, asks: Asks) -> None:
        self._api = cluster.api
        self.kind = kind
        self.name = f"owner-{kind.name.lower()}"
        labels = {"owner": self.name}
        pod = {
            "containers": [shape("c0", asks, SCRIPT)],
            "restartPolicy": kind.restart,
            "hostNetwork": True,
            "automountServiceAccountToken": False,
        }
        spec = {**kind.spec, "template": {"metadata": {"labels": labels}, "spec": pod}}
        if kind is REPLICA_SET:
            spec["selector"] = {"matchLabels": labels}
        self._api.call("POST", kind.path, {"metadata": {"name": self.name}, "spec": spec})

    def pods(self, phase: str = "") -> list[Any]:
        found = self._api.get(f"{PODS_PATH}?labelSelector=owner%3D{self.name}")["items"]
        return [pod for pod in found if phase in {"", pod["status"].get("phase")}]

    def remove(self) -> None:
        """With its pods."""
        self._api.call("DELETE", f"{self.kind.path}/{self.name}", {"propagationPolicy": "Foreground"})
        for pod in self.pods():
            Pod(self._api, pod["metadata"]["name"]).delete()
        until(lambda: not self.pods(), f"pods of {self.name} are gone", POD_S)
