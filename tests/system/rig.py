"""A node in one process: the stand-in kubelet on grpcio, the real daemon on our own wire, real sockets between them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fairlead.app.daemon import Daemon
from fairlead.app.questions import itself
from fairlead.app.snapshot import take_snapshot
from fairlead.config.load import Loaded, load
from fairlead.fronts.deviceplugin.lifecycle import Phase
from fairlead.kit.clock import SystemClock
from fairlead.model.ports import Backend
from fairlead.observe.journal import Fact, Journal
from fairlead.observe.status import Status, make_status
from fairlead.testing import Kubelet

GPU = "nvidia.com/gpu"
SIM = """
backends:
  - kind: sim
    fleet: h100x8
rules:
  - resource: nvidia.com/gpu
health: {probeInterval: 20ms, hold: 20ms, probation: 20ms, cleanProbes: 1, suspect: 60s}
"""
# Time does not stand still here: sockets cross it. A wait ends with its condition, never with the clock.
PATIENCE_S = 40.0


class Node:
    """What a test holds: the kubelet, the daemon, and ways to wait for facts."""

    def __init__(self, kubelet: Kubelet, config: Path, text: str) -> None:
        self.kubelet = kubelet
        self.config = config
        self.facts: list[Fact] = []
        self._more = asyncio.Event()
        self._backends: Mapping[str, Backend] | None = None
        self._task: asyncio.Task[None] | None = None
        self.write(text)

    def write(self, text: str) -> None:
        kubelet = self.kubelet
        places = (
            f"\nkubelet: {{directory: {kubelet.plugin_dir}, watcherDirectory: {kubelet.registry_dir}, "
            f"podResources: {kubelet.podresources_socket}}}\nstatus: {{socket: {kubelet.plugin_dir.parent}/fl.sock}}\n"
        )
        beside = self.config.with_suffix(".new")
        beside.write_text(text if "kubelet:" in text else text + places)
        beside.replace(self.config)

    def load(self) -> Loaded:
        return load(str(self.config))

    def start(self, backends: Mapping[str, Backend] | None = None) -> None:
        clock = SystemClock()
        self.daemon = Daemon(
            self.load(), backends=backends, reload=self.load, clock=clock, journal=Journal(clock, self._saw)
        )
        self._task = asyncio.create_task(self.daemon.run(), name="daemon")

    async def stop(self) -> None:
        if self._task is not None:
            self.daemon.stop()
            await self.ends()

    async def ends(self) -> None:
        """Until the daemon ends by itself. Raises what it ended with."""
        task, self._task = self._task, None
        if task is not None:
            await asyncio.wait_for(task, PATIENCE_S)

    def kill(self) -> asyncio.Task[None] | None:
        """Ends it without a word, as near to SIGKILL as one process allows."""
        task, self._task = self._task, None
        return task

    def _saw(self, facts: Sequence[Fact]) -> None:
        self.facts.extend(facts)
        self._more.set()

    async def until(self, condition: Callable[[], Any]) -> Any:
        """Until the daemon's journal has something new that makes the condition true."""
        async with asyncio.timeout(PATIENCE_S):
            while not (answer := condition()):
                self._more.clear()
                await self._more.wait()
            return answer

    async def until_fact(self, kind: str, **keys: Any) -> Any:
        return await self.until(lambda: self.find(kind, **keys))

    def find(self, kind: str, **keys: Any) -> Fact | None:
        for fact in self.facts:
            if fact.kind == kind and all(fact.keys.get(key) == value for key, value in keys.items()):
                return fact
        return None

    async def ready(self, resource: str = GPU, count: int = 8) -> None:
        await self.kubelet.wait_for_allocatable(resource, count, PATIENCE_S)
        await self.until(lambda: self.phase(resource) is Phase.STREAMING)

    def phase(self, resource: str = GPU) -> Phase | None:
        unit = self.daemon.supervisor.endpoints.get(resource)  # type: ignore[call-overload]  # a NewType of str
        return unit.life.phase if unit else None

    def ids(self) -> list[str]:
        return [device.id for device in self.daemon.engine.inventory.devices]

    async def reload(self) -> None:
        """Until the daemon has applied or refused its file."""
        self.daemon.reload()
        while (task := self.daemon._reloads.task) is not None:
            await task

    def status(self) -> Status:
        """Of what the daemon knows now: the kubelet is not asked."""
        return make_status(take_snapshot(self.daemon, self.daemon.holdings))

    async def steer(self, **order: Any) -> str:
        return str(await self.daemon.questions.steer({"ask": "steer", **order}, itself()))


async def ask_status(daemon: Daemon) -> Status:
    """As on its socket: the kubelet is asked who holds what."""
    return (await daemon.questions.status({}, itself()))()


@asynccontextmanager
async def running(kubelet: Kubelet, root: Path, text: str = SIM, *, start: bool = True) -> AsyncIterator[Node]:
    node = Node(kubelet, root / "fairlead.yaml", text)
    if start:
        node.start()
    try:
        yield node
    finally:
        await node.stop()
