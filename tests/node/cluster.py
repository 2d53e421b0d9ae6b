"""What a scenario does to the cluster and sees of it: pods, what their containers print, the node's numbers."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import grpc

from fairlead.standin._gen import podresources_v1_pb2 as podresources
from tests.node.rig.api import Api, RefusedError
from tests.node.rig.images import SPACE
from tests.node.rig.places import BIN, CONTAINERD, IMAGE, NODE, POD_RESOURCES, PODS
from tests.node.rig.steps import NodeFailedError, until

PODS_PATH = "/api/v1/namespaces/default/pods"
# `exec`, so that killing the container's process kills the container.
SHOW = "env | sort; ls -l /dev; echo -- end; exec sleep 1000000"
POD_S = 60.0
Asks = Mapping[str, int]


class Pod:
    def __init__(self, api: Api, name: str) -> None:
        self._api = api
        self.name = name

    def look(self) -> Any:
        return self._api.get(f"{PODS_PATH}/{self.name}")

    @property
    def uid(self) -> str:
        return str(self.look()["metadata"]["uid"])

    @property
    def phase(self) -> str:
        return str(self.look()["status"].get("phase"))

    def container(self, name: str = "main") -> Any:
        status = self.look()["status"]
        known = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
        return next((one for one in known if one["name"] == name), {})

    def is_ready(self) -> bool:
        conditions = self.look()["status"].get("conditions", ())
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    def wait_running(self) -> Pod:
        def running() -> bool:
            status = self.look()["status"]
            if status.get("phase") == "Failed":
                raise NodeFailedError(f"pod {self.name} failed: {status.get('reason')}: {status.get('message')}")
            return self.is_ready()

        try:
            until(running, f"pod {self.name} runs", POD_S)
        except NodeFailedError as error:
            raise NodeFailedError(f"{error}; its status: {self.look()['status']}") from None
        return self

    def wait_phase(self, phase: str) -> Pod:
        until(lambda: self.phase == phase, f"pod {self.name} is {phase}", POD_S)
        return self

    def prints(self, container: str = "main", instance: int = 0) -> list[str]:
        """What one instance of a container has printed, once it has said that it is done."""
        file = PODS / f"default_{self.name}_{self.uid}" / container / f"{instance}.log"

        def lines() -> list[str]:
            try:
                # Each line is: time, stream, F for full, text.
                text = [line.split(" ", 3)[3] for line in file.read_text().splitlines()]
            except OSError:
                return []
            return text if "-- end" in text else []

        return until(lines, f"container {container} of {self.name} prints", POD_S)

    def env(self, container: str = "main", instance: int = 0) -> dict[str, str]:
        pairs = (line.partition("=") for line in self.prints(container, instance) if "=" in line)
        return {key: value for key, _, value in pairs}

    def crash(self, container: str = "main") -> None:
        """Kills its process; the kubelet starts it again."""
        before = self.container(container)
        _ctr("tasks", "kill", "-s", "SIGKILL", before["containerID"].removeprefix("containerd://"))
        until(lambda: self.container(container)["restartCount"] > before["restartCount"], "it starts again", POD_S)
        self.wait_running()

    def delete(self) -> None:
        """At once: nothing in these containers has anything to put in order."""
        with suppress(RefusedError):
            self._api.call("DELETE", f"{PODS_PATH}/{self.name}", {"gracePeriodSeconds": 0})

    def is_gone(self) -> bool:
        try:
            self.look()
        except RefusedError as refused:
            return refused.code == 404
        return False


@dataclass(frozen=True, slots=True)
class Held:
    """What the kubelet says that one container of a pod holds."""

    container: str
    resource: str
    ids: tuple[str, ...]
    numa: tuple[int, ...] | None


class Cluster:
    def __init__(self) -> None:
        self.api = Api()
        self.pods: list[Pod] = []

    def start_pod(self, name: str, asks: Asks, **more: Any) -> Pod:
        """A pod with one container named main that asks for this. `more` goes into the pod's spec."""
        spec = {
            "containers": [shape("main", asks, more.pop("script", SHOW))],
            "hostNetwork": True,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            **more,
        }
        self.api.call("POST", PODS_PATH, {"metadata": {"name": name}, "spec": spec})
        pod = Pod(self.api, name)
        self.pods.append(pod)
        return pod

    def run_pod(self, name: str, asks: Asks, **more: Any) -> Pod:
        return self.start_pod(name, asks, **more).wait_running()

    def remove_pods(self) -> None:
        for pod in self.pods:
            pod.delete()
        until(lambda: all(pod.is_gone() for pod in self.pods), "pods are gone", POD_S)
        self.pods.clear()

    def numbers(self, resource: str) -> tuple[int, int] | None:
        """Allocatable and capacity, as the Node tells them."""
        status = self.api.get(f"/api/v1/nodes/{NODE}")["status"]
        if resource not in status["capacity"]:
            return None
        return int(status["allocatable"].get(resource, -1)), int(status["capacity"][resource])

    def wait_numbers(
        self, resource: str, allocatable: int, capacity: int, *, after: float = 0.0, patience_s: float = 60.0
    ) -> float:
        """Waits for them, and answers when that was. What the kubelet told before a moment may not count."""
        last: list[tuple[int, int] | None] = []

        def look() -> bool:
            last[:] = [self.numbers(resource)]
            return last == [(allocatable, capacity)] and self.heard() >= after

        try:
            until(look, f"{resource} is {allocatable} of {capacity}", patience_s)
        except NodeFailedError as error:
            raise NodeFailedError(f"{error}; the node says {last}") from None
        return time.time()

    def annotations(self) -> Mapping[str, str]:
        """Those of the node."""
        found: Mapping[str, str] = self.api.get(f"/api/v1/nodes/{NODE}")["metadata"].get("annotations", {})
        return found

    def heard(self) -> float:
        """When the kubelet last told the API server about its node, to the second."""
        conditions = self.api.get(f"/api/v1/nodes/{NODE}")["status"]["conditions"]
        ready = next(one for one in conditions if one["type"] == "Ready")
        return datetime.fromisoformat(ready["lastHeartbeatTime"]).timestamp()

    def offered(self, resource: str) -> list[str]:
        """The healthy devices of a resource that the kubelet has in its hands."""
        answer = _ask("v1", "GetAllocatableResources", podresources.AllocatableResourcesRequest())
        return sorted(one for entry in answer.devices if entry.resource_name == resource for one in entry.device_ids)

    def wait_offered(self, resource: str, count: int) -> float:
        until(lambda: _offered_or_none(self, resource) == count, f"the kubelet has {count} of {resource}", look_s=0.02)
        return time.time()

    def held(self, pod: Pod | str, version: str = "v1") -> list[Held]:
        name = pod if isinstance(pod, str) else pod.name
        answer = _ask(version, "List", podresources.ListPodResourcesRequest())
        found: dict[tuple[str, str], list[Any]] = {}  # the kubelet makes an entry of its own for each device
        for one in answer.pod_resources:
            for container in one.containers if one.name == name else ():
                for entry in container.devices:
                    found.setdefault((container.name, entry.resource_name), []).append(entry)
        return [Held(*key, _ids(entries), _numa(entries)) for key, entries in found.items()]

    def holdings(self, resource: str) -> dict[tuple[str, str], frozenset[str]]:
        """What each container, by pod and name, holds of a resource."""
        found: dict[tuple[str, str], frozenset[str]] = {}
        for one in _ask("v1", "List", podresources.ListPodResourcesRequest()).pod_resources:
            for container in one.containers:
                ids = {
                    name for entry in container.devices if entry.resource_name == resource for name in entry.device_ids
                }
                if ids:
                    found[one.name, container.name] = frozenset(ids)
        return found

    def ids(self, pod: Pod, container: str = "main") -> tuple[str, ...]:
        """Every id that a container holds, of any resource. A kubelet that has just started learns of pods first."""

        def held() -> tuple[str, ...]:
            return tuple(sorted(one for held in self.held(pod) if held.container == container for one in held.ids))

        return until(held, f"the kubelet says what {pod.name} holds")


def shape(name: str, asks: Asks, script: str = SHOW, **more: Any) -> dict[str, Any]:
    limits = {resource: str(count) for resource, count in asks.items()}
    return {
        "name": name,
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", script],
        "resources": {"limits": limits},
        **more,
    }


def running_containers() -> str:
    """The containers that containerd has tasks for, whatever the kubelet knows of them."""
    return _ctr("tasks", "ls", "-q")


def _ctr(*words: str) -> str:
    command = [str(BIN / "ctr"), "-a", str(CONTAINERD), "-n", SPACE, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _ids(entries: list[Any]) -> tuple[str, ...]:
    return tuple(sorted(one for entry in entries for one in entry.device_ids))


def _numa(entries: list[Any]) -> tuple[int, ...] | None:
    known = [entry.topology for entry in entries if entry.HasField("topology")]
    return tuple(sorted({node.ID for topology in known for node in topology.nodes})) if known else None


def _offered_or_none(cluster: Cluster, resource: str) -> int | None:
    try:
        return len(cluster.offered(resource))
    except grpc.RpcError:  # a kubelet that is starting
        return None


def _ask(version: str, name: str, request: Any) -> Any:
    # The older version has the same fields, under another name.
    answers: dict[str, Any] = {
        "List": podresources.ListPodResourcesResponse,
        "GetAllocatableResources": podresources.AllocatableResourcesResponse,
    }
    with grpc.insecure_channel(f"unix://{POD_RESOURCES}") as channel:
        path = f"/{version}.PodResourcesLister/{name}"
        call = channel.unary_unary(path, type(request).SerializeToString, answers[name].FromString)
        return call(request, timeout=10.0)
