"""The listener: the thread that waits for the driver's events, and who may use it when.

NVML's wait blocks. Others who need the thread, or the end of the session that it stands on, interrupt the wait first.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress

from fairlead.backends.nvidia.events import Events, GpuEvent
from fairlead.backends.nvidia.nvml import Nvml
from fairlead.backends.nvidia.snapshot import Gpu
from fairlead.kit.owner import Owner
from fairlead.model.errors import BackendError
from fairlead.model.ports import Clock

SLACK_S = 10.0  # a wait for events that is so much too long hangs
CLOSE_S = 0.5


class Listener:
    def __init__(self, clock: Clock, wait_s: float) -> None:
        self._owner = Owner("nvidia events", clock)
        self._wait_s = wait_s
        self._deadline_s = wait_s + SLACK_S
        self._registered: set[str] = set()  # GPUs that were asked for events in this session
        self._turn = asyncio.Lock()  # its holder may use the thread
        self._interrupts = 0  # how many want the thread from the wait
        self.events = Events()
        self.listening = asyncio.Event()
        self.problems: tuple[str, ...] = ()  # GPUs without events, and why

    @property
    def is_stuck(self) -> bool:
        return bool(self._owner.stuck())

    async def listen(self, nvml: Nvml, gpus: Iterable[Gpu]) -> None:
        """Opens the event set, or adds to it: a GPU may answer for the first time in the middle of a session."""
        opened = self.listening.is_set()
        fresh = [gpu.uuid for gpu in gpus if not opened or gpu.uuid not in self._registered]
        if opened and (not fresh or self.is_stuck):
            return
        async with self._interrupting():
            try:
                if opened:
                    self.problems += await self._owner.call(self.events.add, fresh, what="the start of more events")
                else:
                    self.problems = await self._owner.call(self.events.open, nvml, fresh, what="the start of events")
            except BackendError as error:
                self.problems = (f"no events: {error}; only probes tell of faults",)
                return
        self._registered = {*fresh, *(self._registered if opened else ())}
        self.listening.set()

    @asynccontextmanager
    async def stopped(self) -> AsyncIterator[None]:
        """The event set is closed, and no wait begins."""
        self.listening.clear()
        async with self._interrupting():
            if not self.is_stuck:
                await self._owner.call(self.events.close, deadline_s=self._deadline_s, what="the end of events")
            yield

    @asynccontextmanager
    async def _interrupting(self) -> AsyncIterator[None]:
        """Has the turn, as soon as the wait that is under way is over."""
        self._interrupts += 1
        try:
            async with self._turn:
                yield
        finally:
            self._interrupts -= 1

    async def follow(self, report: Callable[[GpuEvent], None]) -> None:
        """Reports events until it is cancelled. NvmlError when the event set is of no more use."""
        loop = asyncio.get_running_loop()
        left = False

        def report_soon(event: GpuEvent) -> None:
            # Straight from the thread: what the end of the wait would add is a few wake-ups of the loop.
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(report, event)

        def go_on() -> bool:
            self._owner.beat()
            return not self._interrupts and not left

        wait = (self.events.wait, self._wait_s, report_soon, go_on)
        try:
            while True:
                await self.listening.wait()
                async with self._turn:
                    if self.listening.is_set():
                        await self._owner.call(*wait, deadline_s=self._deadline_s, what="the event wait")
        finally:
            left = True  # the thread sees it after its present wait

    async def close(self) -> None:
        self.events.ending = True
        if not self.events.waiting:
            with suppress(BackendError):
                await self._owner.call(self.events.close, deadline_s=CLOSE_S)
        self._owner.close()
