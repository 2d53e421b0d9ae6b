"""The story: what happens on the node, step by step. Each step checks its own outcome; a wrong one ends the demo."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from msgspec import Struct

from fairlead.cli.demo.stage import PATIENCE_S, DemoFailed, Stage
from fairlead.observe.status import DeviceStatus
from fairlead.standin import Pod


class Event(Struct, frozen=True):
    """One line of the story, and how long it took."""

    kind: str
    text: str
    took_s: float


class Story:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._kubelet = stage.kubelet
        self.resource = ""
        self.count = 0
        self._from = time.perf_counter()

    async def tell(self) -> AsyncIterator[Event]:
        """The steps in order, each when it is over."""
        for step in (
            self._kubelet_starts,
            self._daemon_registers,
            self._pods_arrive,
            self._device_fails,
            self._too_much_is_refused,
            self._device_returns,
            self._device_is_plugged_in,
            self._kubelet_restarts,
            self._stream_is_cut,
            self._pods_leave,
        ):
            self._begin()
            async for event in step():
                yield event
                self._begin()

    async def epilogue(self) -> Event:
        """The daemon leaves, and leaves nothing behind."""
        self._begin()
        code = await self._stage.stop_daemon()
        _must(code == 0, f"the daemon ended with code {code}")
        left = [path.name for path in self._kubelet.plugin_dir.glob("fairlead-*.sock")]
        _must(not left, f"sockets were left behind: {left}")
        return self._event("stop", "SIGTERM: streams ended, sockets gone, exit code 0")

    # --- Steps ----------------------------------------------------------------------------------------------------

    async def _kubelet_starts(self) -> AsyncIterator[Event]:
        await self._kubelet.start()
        yield self._event("kubelet", f"embedded kubelet listens in {self._kubelet.plugin_dir}")

    async def _daemon_registers(self) -> AsyncIterator[Event]:
        await self._stage.start_daemon()
        await self._stage.until("the first registered resource", lambda: any(self._kubelet.node().allocatable.values()))
        allocatable = self._kubelet.node().allocatable
        self.resource = max(allocatable, key=lambda name: allocatable[name])
        self.count = allocatable[self.resource]
        yield self._event("daemon", f"started, registered {self.resource}: {self.count} devices offered")

    async def _pods_arrive(self) -> AsyncIterator[Event]:
        sizes = {"train": max(1, self.count // 2), "infer": 1} if self.count > 1 else {"train": 1}
        for name, size in sizes.items():
            pod = await self._run(name, size)
            _must(pod.phase == "Running", f"pod {name} was refused: {pod.message}")
            _must(len(pod.containers["main"].devices[self.resource]) == size, f"pod {name} got the wrong number")
            yield self._event("pod", f"{name} asked for {size}: got {await self._names(pod)}")

    async def _device_fails(self) -> AsyncIterator[Event]:
        self._victim = await self._last_device()
        await self._stage.ask("steer", do="fail", device=self._victim.id, xid=48)
        await self._until_allocatable(self.count - 1, "the failed device to be withdrawn")
        event = self._event(
            "fault", f"GPU {self._victim.index}: double-bit memory error, withdrawn from the kubelet's list"
        )
        status = await self._status_of(self._victim.id)
        _must(status.health == "unhealthy", "the failed device is not shown as unhealthy")
        _must("xid-48" in status.cause, f"its cause is {status.cause!r}")
        yield event

    async def _too_much_is_refused(self) -> AsyncIterator[Event]:
        pod = await self._run("greedy", self.count)
        _must(pod.phase == "Failed", "a pod that does not fit was admitted")
        await self._kubelet.delete_pod(pod)
        yield self._event("pod", f"greedy asked for {self.count}: refused, as it must be; the other pods keep running")

    async def _device_returns(self) -> AsyncIterator[Event]:
        await self._stage.ask("steer", do="clear", device=self._victim.id)
        await self._until_allocatable(self.count, "the device to come back")
        yield self._event("fault", f"GPU {self._victim.index}: reset, clean through hold and probation, offered again")

    async def _device_is_plugged_in(self) -> AsyncIterator[Event]:
        new: dict[str, Any] = {"id": "GPU-0000feed-0000-4000-8000-00000000beef", "index": "new"}
        new |= {"vendor": self._victim.vendor, "model": self._victim.model, "memory": self._victim.memory_bytes}
        await self._stage.ask("steer", do="plug", new=new)
        self.count += 1
        await self._until_allocatable(self.count, "the new device to be offered")
        yield self._event("plug", f"a new device appeared: {self.count} offered, no restart")

    async def _kubelet_restarts(self) -> AsyncIterator[Event]:
        before = {pod.name: pod.containers["main"].devices for pod in self._kubelet.pods}
        await self._kubelet.stop()
        self._begin()
        await self._kubelet.start()
        await self._until_allocatable(self.count, "the daemon to register again")
        after = {pod.name: pod.containers["main"].devices for pod in self._kubelet.pods}
        _must(after == before, f"pods lost their devices: {before} became {after}")
        _must(all(pod.phase == "Running" for pod in self._kubelet.pods), "a pod did not survive the kubelet's restart")
        yield self._event("kubelet", f"restarted: registered again, {len(after)} pods kept their devices")

    async def _stream_is_cut(self) -> AsyncIterator[Event]:
        registrations = self._registrations()
        self._kubelet.close_stream(self.resource)
        await self._stage.until("another registration", lambda: self._registrations() > registrations)
        await self._until_allocatable(self.count, "the list to be sent again")
        yield self._event("kubelet", "closed the stream without notice: registered again")

    async def _pods_leave(self) -> AsyncIterator[Event]:
        for pod in list(self._kubelet.pods):
            await self._kubelet.delete_pod(pod)
            status = await self._stage.status()
            held = [row.id for row in status.devices if any(pod.name in holder for holder in row.holders)]
            _must(not held, f"pod {pod.name} is gone but still holds {held}")
            yield self._event("pod", f"{pod.name} left: its devices are free")

    # --- Checks -----------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._from = time.perf_counter()

    def _event(self, kind: str, text: str) -> Event:
        return Event(kind, text, time.perf_counter() - self._from)

    async def _run(self, name: str, size: int) -> Pod:
        async with asyncio.timeout(PATIENCE_S):
            return await self._kubelet.run_pod(name, {"main": {self.resource: size}})

    async def _until_allocatable(self, count: int, what: str) -> None:
        await self._stage.until(what, lambda: self._kubelet.node().allocatable.get(self.resource) == count)

    def _registrations(self) -> int:
        return sum(call.method == "Register" and call.resource == self.resource for call in self._kubelet.calls)

    async def _rows(self, keep: Callable[[DeviceStatus], bool]) -> list[DeviceStatus]:
        status = await self._stage.status()
        return [row for row in status.devices if row.resource == self.resource and keep(row)]

    async def _last_device(self) -> DeviceStatus:
        """The last free device, so that no pod is hit by the failure; else the last."""
        return (await self._rows(lambda row: not row.held) or await self._rows(lambda _row: True))[-1]

    async def _status_of(self, device: str) -> DeviceStatus:
        return (await self._rows(lambda row: row.id == device))[0]

    async def _names(self, pod: Pod) -> str:
        ids = set(pod.containers["main"].devices[self.resource])
        rows = await self._rows(lambda row: row.id in ids)
        numa = sorted({str(node) for row in rows for node in row.numa_nodes})
        near = f" (NUMA {', '.join(numa)})" if numa else ""
        return "GPU " + ", ".join(row.index or row.id for row in rows) + near


def _must(held: bool, problem: str) -> None:
    if not held:
        raise DemoFailed(problem)
