"""The world of the true kubelet: the node of tests/node, which must be up.

Pods name their node, so that the kubelet judges them and not the scheduler.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc

from fairlead.standin._gen import podresources_v1_pb2 as pr
from tests.differential.runtime import container_config
from tests.differential.world import CDI_KIND, ENV, NOTE, PLACE, Limits, PodSpec
from tests.node.cluster import PODS_PATH, Cluster, Pod, _ctr, shape
from tests.node.rig import process
from tests.node.rig.api import RefusedError
from tests.node.rig.node import start_kubelet, stop_kubelet
from tests.node.rig.places import CONTAINERD, INSIDE, KUBELET, NODE, PLUGINS, POD_RESOURCES
from tests.node.rig.settings import CDI
from tests.node.rig.steps import NodeFailedError, until

# The first process of a container hears only the signals that it asks for.
STAY = 'trap "exit 0" TERM; sleep 1000000 & wait'
PASSING = {"PodInitializing", "ContainerCreating", None}
POD_S = 60.0
CRASH_S = 5.0
GRACE_S = 303.0


class Truth:
    patience_s = 8.0

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @property
    def plugin_dir(self) -> Path:
        return PLUGINS

    @property
    def registry_dir(self) -> Path:
        return KUBELET / "plugins_registry"

    @property
    def podresources(self) -> Path:
        return POD_RESOURCES

    @property
    def directories(self) -> list[str]:
        names = ("device-plugins", "plugins_registry")
        return [str(top / name) for top in (KUBELET, INSIDE) for name in names]

    def seen_from_inside(self, path: Path) -> Path:
        return INSIDE / path.relative_to(KUBELET)

    async def stop_kubelet(self) -> None:
        await asyncio.to_thread(stop_kubelet)

    async def start_kubelet(self, *, reboot: bool = False) -> None:
        await asyncio.to_thread(self._start_kubelet, reboot)

    def _start_kubelet(self, reboot: bool) -> None:
        if reboot:
            for pod in self._cluster.pods:
                with suppress(RefusedError):
                    for status in pod.look()["status"].get("containerStatuses", ()):
                        _ctr("tasks", "kill", "-s", "SIGKILL", _id(status))
        before = _identity(PLUGINS / "kubelet.sock")
        began = time.time()
        start_kubelet(wait=False)
        until(lambda: _identity(PLUGINS / "kubelet.sock") not in {None, before}, "the kubelet has its socket", POD_S)
        until(lambda: self._cluster.heard() > began + 1, "the kubelet reports", POD_S)
        pods = self._cluster.pods
        until(lambda: _listed() >= {pod.name for pod in pods if not _is_over(pod)}, "the kubelet knows its pods", POD_S)

    async def is_alive(self) -> bool:
        """A crash takes it a moment, so there is time to see one."""
        try:
            await asyncio.to_thread(until, lambda: process.running("kubelet") is None, "the kubelet dies", CRASH_S)
        except NodeFailedError:
            return True
        return False

    async def revive(self) -> None:
        if process.running("kubelet") is None:
            await self.start_kubelet()

    async def outlast(self) -> None:
        await asyncio.sleep(GRACE_S)  # time itself is what it is about

    async def settle(self) -> None:
        """Two reports on: the first may have been under way. They are told to the second."""
        began = time.time()
        await asyncio.to_thread(until, lambda: self._cluster.heard() >= began + 2, "the kubelet reports", POD_S)

    async def run_pod(self, pod: PodSpec) -> None:
        await asyncio.to_thread(self._run_pod, pod)

    def _run_pod(self, spec: PodSpec) -> None:
        image = {} if spec.image else {"image": "localhost/fairlead-node/none:1"}
        init = [*_shapes(spec.init, "true"), *_shapes(spec.sidecars, STAY, restartPolicy="Always")]
        pod = self._cluster.start_pod(
            spec.name,
            {},
            containers=_shapes(spec.containers, STAY, **image),
            initContainers=init,
            nodeName=NODE,
            restartPolicy="Never" if spec.once else "Always",
            terminationGracePeriodSeconds=2,
        )

        def is_over() -> bool:
            return _at_rest(pod.look()["status"]) or not process.running("kubelet")

        until(is_over, f"{spec.name} is at rest", POD_S)

    async def look(self, pod: str) -> dict[str, Any] | None:
        return await asyncio.to_thread(self._look, pod)

    def _look(self, name: str) -> dict[str, Any] | None:
        try:
            status = self._pod(name).look()["status"]
        except RefusedError as refused:
            if refused.code == 404:
                return None
            raise
        seen: dict[str, Any] = {"phase": status["phase"]}
        if status.get("reason"):
            seen |= {"reason": status["reason"], "message": status.get("message", "")}
        if status["phase"] in {"Pending", "Running"}:
            plain = _plain_init(self._pod(name).look()["spec"])
            seen["containers"] = {one["name"]: _state(one, one["name"] in plain) for one in _statuses(status)}
        return seen

    async def uid(self, pod: str) -> str:
        return await asyncio.to_thread(lambda: self._pod(pod).uid)

    async def received(self, pod: str, container: str) -> dict[str, Any]:
        return await asyncio.to_thread(self._received, pod, container)

    def _received(self, name: str, container: str) -> dict[str, Any]:
        config = container_config(CONTAINERD, _id(self._pod(name).container(container)))
        mounts = [
            {"container": one["container_path"], "host": one["host_path"], "readonly": one.get("readonly", False)}
            for one in config.get("mounts", ())
            if one["container_path"].startswith(PLACE)
        ]
        devices = [
            {"container": one["container_path"], "host": one["host_path"], "permissions": one["permissions"]}
            for one in config.get("devices", ())
        ]
        return {
            "env": {one["key"]: one.get("value", "") for one in config.get("envs", ()) if one["key"].startswith(ENV)},
            "mounts": sorted(mounts, key=lambda one: str(one["container"])),
            "devices": sorted(devices, key=lambda one: str(one["container"])),
            "annotations": {k: v for k, v in config.get("annotations", {}).items() if k.startswith(NOTE)},
            "cdi": sorted(one["name"] for one in config.get("CDI_devices", ())),
        }

    async def health(self, pod: str) -> dict[str, Any]:
        return await asyncio.to_thread(self._health, pod)

    def _health(self, name: str) -> dict[str, Any]:
        told = self._pod(name).look()["status"].get("containerStatuses", ())
        return {
            one["name"]: {
                entry["name"]: {device["resourceID"]: device["health"] for device in entry["resources"]}
                for entry in one.get("allocatedResourcesStatus", ())
            }
            for one in told
        }

    async def crash(self, pod: str, container: str) -> None:
        await asyncio.to_thread(self._crash, self._pod(pod), container)

    def _crash(self, pod: Pod, container: str) -> None:
        before = pod.container(container)
        _ctr("tasks", "kill", "-s", "SIGKILL", _id(before))

        def dealt_with() -> bool:
            now = pod.container(container)
            waits = now["state"].get("waiting", {}).get("reason") not in PASSING
            again = now["restartCount"] > before["restartCount"] and "running" in now["state"]
            return waits or again

        until(dealt_with, f"{container} of {pod.name} starts again or cannot", POD_S)

    async def finish(self, pod: str) -> None:
        await asyncio.to_thread(self._finish, self._pod(pod))

    def _finish(self, pod: Pod) -> None:
        for status in pod.look()["status"]["containerStatuses"]:
            _ctr("tasks", "kill", "-s", "SIGTERM", _id(status))
        until(lambda: pod.phase == "Succeeded", f"{pod.name} ends well", POD_S)

    async def delete(self, pod: str) -> None:
        await asyncio.to_thread(self._delete, self._pod(pod))

    def _delete(self, pod: Pod) -> None:
        """In the ordinary way: the pod is gone when the kubelet says that its containers are."""
        with suppress(RefusedError):
            self._cluster.api.call("DELETE", f"{PODS_PATH}/{pod.name}")
        until(pod.is_gone, f"{pod.name} is gone", POD_S)
        with suppress(ValueError):
            self._cluster.pods.remove(pod)

    async def forget(self, pod: str) -> None:
        await asyncio.to_thread(self._pod(pod).delete)

    async def numbers(self, resource: str) -> list[int] | None:
        status = (await asyncio.to_thread(self._cluster.api.get, f"/api/v1/nodes/{NODE}"))["status"]
        if resource not in status["capacity"]:
            return None
        return [_count(status[kind].get(resource, "-1")) for kind in ("allocatable", "capacity")]

    async def offer_cdi(self, names: list[str]) -> None:
        devices = [{"name": name, "containerEdits": {"env": [f"CDI_SAW={name}"]}} for name in names]
        spec = {"cdiVersion": "0.6.0", "kind": CDI_KIND, "devices": devices}
        (CDI / "diff.json").write_text(json.dumps(spec))

    def _pod(self, name: str) -> Pod:
        return next((pod for pod in self._cluster.pods if pod.name == name), Pod(self._cluster.api, name))


def _shapes(group: Mapping[str, Limits], script: str, **more: Any) -> list[dict[str, Any]]:
    return [shape(name, limits, script, **more) for name, limits in group.items()]


def _count(quantity: str) -> int:
    """Round numbers are told in thousands."""
    return int(quantity.removesuffix("k")) * (1000 if quantity.endswith("k") else 1)


def _is_over(pod: Pod) -> bool:
    try:
        return pod.phase in {"Succeeded", "Failed"}
    except RefusedError as refused:
        return refused.code == 404


def _listed() -> set[str]:
    """The pods that the kubelet knows, with devices or without."""
    with grpc.insecure_channel(f"unix://{POD_RESOURCES}") as channel:
        call = channel.unary_unary(
            "/v1.PodResourcesLister/List",
            pr.ListPodResourcesRequest.SerializeToString,
            pr.ListPodResourcesResponse.FromString,
        )
        try:
            return {pod.name for pod in call(pr.ListPodResourcesRequest(), timeout=POD_S).pod_resources}
        except grpc.RpcError:  # it is starting
            return set()


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_ctime_ns


def _id(status: Any) -> str:
    return str(status["containerID"]).removeprefix("containerd://")


def _statuses(status: Any) -> list[Any]:
    return [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]


def _plain_init(spec: Any) -> set[str]:
    return {one["name"] for one in spec.get("initContainers", ()) if one.get("restartPolicy") != "Always"}


def _at_rest(status: Any) -> bool:
    if status.get("phase") in {"Failed", "Succeeded"}:
        return True
    known = _statuses(status)
    if any(one["state"].get("waiting", {}).get("reason") not in PASSING for one in known):
        return True
    return bool(known) and all(one.get("ready") for one in status.get("containerStatuses", ()))


def _state(status: Any, is_init: bool) -> dict[str, Any]:
    ((kind, more),) = status["state"].items()
    seen: dict[str, Any] = {"state": kind}
    if kind == "waiting":
        seen |= {"reason": more.get("reason", ""), "message": more.get("message", "")}
    elif not is_init:
        seen["restarts"] = status["restartCount"]
    return seen
