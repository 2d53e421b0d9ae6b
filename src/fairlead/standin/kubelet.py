"""The stand-in kubelet: what tests and the demo hold in their hands.

Owns what outlives a kubelet process: the pods, the node object, the record of calls. A process does the work.
"""

import random
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Self, TypeVar

from fairlead.standin import podlife, topology
from fairlead.standin.calls import Call, Calls
from fairlead.standin.changes import Changes, Tasks
from fairlead.standin.clock import Clock, FakeClock, SystemClock, Timings
from fairlead.standin.errors import KubeletPanicked
from fairlead.standin.faults import Callbacks, Defects, Faults
from fairlead.standin.pods import Container, Limits, Pod, make_pod
from fairlead.standin.process import Process
from fairlead.standin.setup import Setup

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Node:
    """The node object's numbers for device plugins' resources."""

    capacity: dict[str, int] = field(default_factory=dict)
    allocatable: dict[str, int] = field(default_factory=dict)


class Kubelet:
    """A kubelet in this process, on real sockets under `root`.

    The same seed makes the same random choices. Keep `root` short: a socket path has 107 bytes at most.
    """

    def __init__(
        self,
        root: Path | str,
        *,
        seed: int = 0,
        clock: Clock | None = None,
        timings: Timings | None = None,
        topology_policy: topology.Policy = "none",
        numa_nodes: Sequence[int] = (0, 1),
        defects: Defects | None = None,
        rate_limit: bool = True,
    ) -> None:
        if topology_policy not in topology.POLICIES:
            raise ValueError(f"topology policy {topology_policy!r} is unknown; use one of {topology.POLICIES}")
        if topology_policy != "none" and len(numa_nodes) > topology.MAX_NODES:
            raise ValueError(f"a topology policy takes at most {topology.MAX_NODES} NUMA nodes, not {len(numa_nodes)}")
        self.faults = Faults()
        self.callbacks = Callbacks()
        self.panic: KubeletPanicked | None = None
        changes = Changes()
        self._setup = Setup(
            root=Path(root),
            clock=clock or SystemClock(),
            timings=timings or Timings(),
            defects=defects or Defects(),
            faults=self.faults,
            callbacks=self.callbacks,
            policy=topology_policy,
            numa_nodes=tuple(numa_nodes),
            rate_limit=rate_limit,
            rng=random.Random(seed),  # noqa: S311 - repeatable choices are the point
            changes=changes,
            calls=Calls(changes),
        )
        self._tasks = Tasks()
        self._pods: dict[str, Pod] = {}
        self._node = Node()
        self._process: Process | None = None

    @property
    def plugin_dir(self) -> Path:
        """Where plugins put their sockets and find kubelet.sock."""
        return self._setup.plugin_dir

    @property
    def registry_dir(self) -> Path:
        return self._setup.registry_dir

    @property
    def podresources_socket(self) -> Path:
        return self._setup.podresources_dir / "kubelet.sock"

    @property
    def clock(self) -> Clock:
        return self._setup.clock

    @property
    def is_running(self) -> bool:
        return self._process is not None and not self._process.stopped

    @property
    def calls(self) -> tuple[Call, ...]:
        """Every call so far, in the order in which they began, over all restarts."""
        return tuple(self._setup.calls.made)

    @property
    def pods(self) -> tuple[Pod, ...]:
        return tuple(self._pods.values())

    # Its life.

    async def start(self, *, reboot: bool = False, sources_ready: bool = False, readmit: bool = True) -> None:
        """Start the process and admit the pods that are there.

        `reboot`: no container is running any more. `sources_ready`: all pods were known before the first was
        admitted, so that running containers get no exemption. `readmit=False`: `readmit` is called later.
        """
        if self._process is not None:
            raise RuntimeError("the kubelet is running already; stop it first, or use restart")
        if isinstance(self.clock, FakeClock):
            self.clock.watch(self._setup.changes.notify)
        self._reset_node()
        for container in [c for pod in self._active() for c in pod.containers.values() if reboot]:
            container.state = "waiting"
        running = frozenset((pod.uid, c.name) for pod in self._active() for c in _running(pod))
        process = Process(self._setup, lambda: self.pods, running, self._restart_soon)
        self._process = process
        try:
            await process.start()
            process.admission.sources_ready = sources_ready
            if readmit:
                await self.readmit()
        except BaseException:
            await self.stop()
            raise
        self._setup.changes.notify()

    async def readmit(self) -> None:
        """Admit every pod that is still active, then consider all sources of pods ready."""
        process = self._running_process()
        for pod in self._active():
            await self._admit(process, pod)
            if pod.is_active and not _running(pod):
                await podlife.start_all(process, pod)
        process.admission.sources_ready = True

    async def stop(self) -> None:
        """Stop the process. Pods go on; nothing in the directories is removed."""
        await self._tasks.cancel()
        process = self._process
        if process is None:
            return
        await process.stop()
        self._process = None
        if isinstance(self.clock, FakeClock):
            self.clock.unwatch(self._setup.changes.notify)
        self._setup.changes.notify()
        if broken := [*process.tasks.take_broken(), *self._tasks.take_broken()]:
            raise ExceptionGroup("the stand-in kubelet broke; this is its own fault", broken)

    async def restart(self, *, reboot: bool = False, sources_ready: bool = False, readmit: bool = True) -> None:
        await self.stop()
        await self.start(reboot=reboot, sources_ready=sources_ready, readmit=readmit)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # Pods.

    async def run_pod(
        self,
        name: str,
        containers: Mapping[str, Limits],
        *,
        namespace: str = "default",
        init: Mapping[str, Limits] | None = None,
        sidecars: Mapping[str, Limits] | None = None,
        start: bool = True,
    ) -> Pod:
        """Create a pod, admit it and start its containers. Look at `phase` for how it went.

        `start=False`: the pod is admitted, but its images cannot be pulled.
        """
        process = self._running_process()
        if any((pod.name, pod.namespace) == (name, namespace) for pod in self._pods.values()):
            raise ValueError(f"pod {namespace}/{name} exists already; delete it first or choose another name")
        uid = str(uuid.uuid4())  # not from the seed: two kubelets on one root must not share uids
        pod = make_pod(uid, name, namespace, containers, init or {}, sidecars or {})
        self._pods[uid] = pod
        await self._admit(process, pod)
        if self.panic is not None:
            raise self.panic
        if process.stopped:
            return pod  # the next life of the kubelet admits it
        if pod.is_active and start:
            await podlife.start_all(process, pod)
        elif pod.is_active:
            for container in pod.containers.values():
                container.wait("ImagePullBackOff")
        self._setup.changes.notify()
        return pod

    async def delete_pod(self, pod: Pod) -> None:
        """Its containers stop and it is gone. Its devices are given back at the next admission or listing."""
        self._pods.pop(pod.uid, None)
        self.finish_pod(pod)

    def finish_pod(self, pod: Pod, phase: Literal["Succeeded", "Failed"] = "Succeeded") -> None:
        """All its containers have ended."""
        if pod.is_active:
            pod.phase = phase
        for container in pod.containers.values():
            container.state = "terminated"
        self._setup.changes.notify()

    async def restart_container(self, pod: Pod, name: str) -> Container:
        """The container ended and is created again, on the devices it holds."""
        await podlife.start(self._running_process(), pod, pod.containers[name])
        self._setup.changes.notify()
        return pod.containers[name]

    # What can be seen.

    def node(self) -> Node:
        """The node's status, computed now. A resource that expired stays listed with 0."""
        if self._process is not None:
            gone = self._process.expire()
            zero = dict.fromkeys(gone, 0)
            self._node = Node(
                {**self._node.capacity, **zero, **self._process.node_devices.capacity()},
                {**self._node.allocatable, **zero, **self._process.node_devices.allocatable()},
            )
        return Node(dict(self._node.capacity), dict(self._node.allocatable))

    def devices(self, resource: str) -> dict[str, str]:
        """Every device the kubelet knows for the resource, with its health."""
        return self._process.node_devices.health(resource) if self._process else {}

    def allocated(self, resource: str) -> frozenset[str]:
        """The ids counted as in use."""
        return frozenset(self._process.node_devices.allocated.get(resource, ()) if self._process else ())

    def allocated_status(self, pod: Pod) -> dict[str, dict[str, dict[str, str]]]:
        """allocatedResourcesStatus: container -> resource -> device id -> health."""
        return self._running_process().allocated_status(pod)

    def notes(self) -> tuple[str, ...]:
        """What the process found odd and went on from."""
        return tuple(self._running_process().notes)

    async def wait_for(self, predicate: Callable[[], T], timeout_s: float = 10.0) -> T:
        """The first true answer of `predicate`, asked again whenever something changed.

        Raises TimeoutError, and KubeletPanicked as soon as the kubelet is gone that way.
        """

        def ask() -> T:
            if self.panic is not None:
                raise self.panic
            return predicate()

        try:
            return await self._setup.changes.wait_for(ask, timeout_s)
        except TimeoutError:
            last = "; ".join(f"{call.method} {call.resource} {call.error}".strip() for call in self.calls[-5:])
            raise TimeoutError(
                f"the condition did not come true in {timeout_s} s; node {self.node()}; last calls: {last or 'none'}"
            ) from None

    async def wait_for_allocatable(self, resource: str, count: int, timeout_s: float = 10.0) -> None:
        await self.wait_for(lambda: self.node().allocatable.get(resource) == count, timeout_s)

    # What a test may do to it.

    def close_stream(self, resource: str) -> None:
        """End the resource's ListAndWatch from the kubelet's side."""
        for plugin in self._running_process().registry.plugins(resource):
            plugin.end_stream()

    def delete_sockets(self) -> None:
        """Remove the plugins' socket files, and nothing else."""
        for entry in self.plugin_dir.iterdir():
            if entry.is_socket() and entry.name != "kubelet.sock":
                entry.unlink()

    # Inside.

    async def _admit(self, process: Process, pod: Pod) -> None:
        async with process.admitting:
            try:
                await podlife.admit(process, pod)
            except KubeletPanicked as error:
                self.panic = error
                await self.stop()
                raise
            if pod.is_active and not process.stopped:
                others = (other for other in self._active() if other is not pod)
                podlife.check_fit(process, pod, others, self.node().allocatable)
        self._setup.changes.notify()

    def _active(self) -> list[Pod]:
        return [pod for pod in self._pods.values() if pod.is_active]

    def _reset_node(self) -> None:
        """A node whose device-plugin directory is empty forgets its extended resources."""
        directory = self.plugin_dir
        if not directory.is_dir() or all(entry.name.startswith(".") for entry in directory.iterdir()):
            self._node = Node(dict.fromkeys(self._node.capacity, 0), dict.fromkeys(self._node.allocatable, 0))

    def _restart_soon(self) -> None:
        self._tasks.spawn(self.restart(), "restart")

    def _running_process(self) -> Process:
        if self.panic is not None:
            raise self.panic
        if self._process is None:
            raise RuntimeError("the kubelet is not running; use `async with kubelet` or `await kubelet.start()`")
        return self._process


def _running(pod: Pod) -> list[Container]:
    return [container for container in pod.containers.values() if container.state == "running"]
