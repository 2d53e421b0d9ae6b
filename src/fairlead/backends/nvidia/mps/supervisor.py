"""Keeps the control daemons of a node running, and reports a fault of the devices that they serve when one is down.

Two users: the backend, which offers nothing before they answer and withdraws what they serve when they are down; and
the command that runs them for a plugin in another container.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from msgspec import Struct

from fairlead.backends.nvidia.errors import MpsNotReady
from fairlead.backends.nvidia.mps.command import Tools
from fairlead.backends.nvidia.mps.daemon import ControlDaemon
from fairlead.backends.nvidia.mps.daemonspec import ControlDaemonSpec
from fairlead.model.errors import BackendError
from fairlead.model.health import Cause, CauseKind
from fairlead.model.names import DeviceId
from fairlead.model.ports import Clock, Sink

CODE = "mps-down"
PACE_S = 10.0  # between two questions
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0  # between two tries to start one again
Make = Callable[[ControlDaemonSpec], ControlDaemon]


class _Supervised(Struct):
    """One daemon and what is known of it."""

    daemon: ControlDaemon
    started: bool = False  # at least once, so that what it serves was offered
    down: str = ""  # why it is down now
    pause_s: float = 0.0
    again_s: float = 0.0  # not started again before


class DaemonSupervisor:
    def __init__(
        self,
        clock: Clock,
        *,
        managed: bool = False,
        keep: bool = False,
        tools: Tools | None = None,
        make: Make | None = None,
    ) -> None:
        """`managed`: we start and stop them. `keep`: not stopped at the end, for those that use them."""
        self._clock = clock
        self._managed = managed
        self._keep = keep
        self._make = make or (lambda spec: ControlDaemon(spec, tools, clock))
        self._turn = asyncio.Lock()  # a scan and the watch may want to start the same one
        self._daemons: dict[str, _Supervised] = {}  # by resource

    async def ready(self, specs: Iterable[ControlDaemonSpec]) -> None:
        """Starts or checks the daemons of these specs, and stops all others. BackendError for one that does not answer.

        One that answered before and is down now does not count: its devices have their fault.
        """
        wanted = {spec.resource: spec for spec in specs}
        async with self._turn:
            for resource in [known for known in self._daemons if known not in wanted]:
                gone = self._daemons.pop(resource)
                if self._managed:
                    await gone.daemon.stop()
            held = {gpu for spec in wanted.values() for gpu in spec.gpus}
            for spec in wanted.values():
                await self._ready(spec, held)

    async def _ready(self, spec: ControlDaemonSpec, held: set[str]) -> None:
        entry = self._daemons.get(spec.resource)
        freed: set[str] = set()
        if entry is None:
            entry = self._daemons[spec.resource] = _Supervised(self._make(spec))
        elif entry.daemon.spec != spec:
            # The same daemon with other limits or GPUs: it gets the new ones, and is not restarted.
            freed = set(entry.daemon.spec.gpus) - held
            entry.daemon, entry.started = self._make(spec), False
        if entry.started:
            return
        try:
            await (entry.daemon.start() if self._managed else entry.daemon.check())
        except BackendError as error:
            kind = BackendError if self._managed else MpsNotReady
            raise kind(f"the MPS control daemon for {spec.resource} is not well: {error}") from error
        entry.started = True
        if self._managed:
            await entry.daemon.release(sorted(freed))

    async def watch(self, sink: Sink) -> None:
        """Asks each now and then, until cancelled."""
        while True:
            await self._clock.sleep(PACE_S)
            await self.check_all(sink)

    async def check_all(self, sink: Sink) -> None:
        async with self._turn:
            for entry in self._daemons.values():
                await self._check(entry, sink)

    async def _check(self, entry: _Supervised, sink: Sink) -> None:
        if not entry.started:
            if await entry.daemon.answers():
                sink.rescan()  # what it serves can be offered now
            return
        if await entry.daemon.answers():
            self._handle_up(entry, sink)
            return
        try:
            await entry.daemon.check()  # twice: one slow answer is no fall
        except BackendError as error:
            await self._handle_down(entry, str(error), sink)
        else:
            self._handle_up(entry, sink)

    async def _handle_down(self, entry: _Supervised, why: str, sink: Sink) -> None:
        now_s = self._clock.monotonic()
        if not entry.down:
            entry.pause_s, entry.again_s = FIRST_PAUSE_S, now_s
        entry.down = why
        # At every check: a fault that is not reported again may be forgiven after a while.
        cause = Cause(CODE, CauseKind.NEEDS_RESET, f"the MPS control daemon for {entry.daemon.spec.resource}: {why}")
        for gpu in entry.daemon.spec.gpus:
            sink.fault(DeviceId(gpu), cause)
        if not self._managed or now_s < entry.again_s:
            return
        entry.again_s = now_s + entry.pause_s
        entry.pause_s = min(2 * entry.pause_s, LONGEST_PAUSE_S)
        try:
            await entry.daemon.start()
        except BackendError as error:
            entry.down = str(error)
        else:
            self._handle_up(entry, sink)

    def _handle_up(self, entry: _Supervised, sink: Sink) -> None:
        if entry.down:
            entry.down = ""
            for gpu in entry.daemon.spec.gpus:
                sink.clear(DeviceId(gpu), CODE)

    async def close(self) -> tuple[str, ...]:
        """Stops what is ours. The answer is what went wrong."""
        problems: list[str] = []
        async with self._turn:
            daemons, self._daemons = list(self._daemons.values()), {}
            if self._managed and not self._keep:
                for entry in daemons:
                    problems += await entry.daemon.stop()
        return tuple(problems)
