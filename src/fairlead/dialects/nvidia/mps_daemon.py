"""NVIDIA's mps-control-daemon, drop-in: control daemons for a plugin in another container, and the marks it leaves.

The files are those that others wait for: `.started` beside each daemon's pipe, and `.ready` while all of them are well.
Reading flags and the config file is not done here.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from msgspec.structs import replace

from fairlead.backends import files
from fairlead.backends.nvidia.devices import show
from fairlead.backends.nvidia.driver import Driver
from fairlead.backends.nvidia.mps.command import Tools, run
from fairlead.backends.nvidia.mps.guards import PACE_S, Guards
from fairlead.backends.nvidia.mps.plan import Plan, make_plans
from fairlead.backends.nvidia.mps.tail import Tail
from fairlead.backends.nvidia.spec import Options
from fairlead.backends.owner import Owner
from fairlead.model.errors import BackendError, FairleadError, HostError
from fairlead.model.health import Cause
from fairlead.model.names import DeviceId
from fairlead.model.ports import Clock

ROOT = "/mps"
RETRY_S = 30.0  # after a start that failed
TAIL_S = 1.0
SHM_OPTIONS = "rw,nosuid,nodev,noexec,relatime"
SHM_SIZE = "65536k"  # where the size of the memory is not known
STOP, AGAIN = "stop", "again"
SIGNALS = {
    signal.SIGHUP: AGAIN,
    signal.SIGINT: STOP,
    signal.SIGTERM: STOP,
    signal.SIGQUIT: STOP,
}

Load = Callable[[], Awaitable[Sequence[Plan]]]


class Record(Protocol):
    """Tells what happened, as `Journal.record`."""

    def __call__(self, kind: str, /, **keys: object) -> None: ...


class MpsDaemon:
    """`load` is asked for the plans at the start and at each SIGHUP."""

    def __init__(
        self,
        load: Load,
        clock: Clock,
        record: Record,
        write: Callable[[str], object],
        *,
        root: str = ROOT,
        tools: Tools | None = None,
    ) -> None:
        self._load = load
        self._clock = clock
        self._record = record
        self._write = write  # the daemons' own logs
        self._mark = Path(root) / ".ready"
        self._guards = Guards(clock, managed=True, tools=tools)
        self._orders: asyncio.Queue[str] = asyncio.Queue()
        self._ending = asyncio.Event()
        self._tails: list[Tail] = []
        self._down: set[str] = set()

    def order(self, what: str) -> None:
        """STOP, or AGAIN: read the configuration again and do what differs."""
        self._orders.put_nowait(what)
        if what == STOP:
            self._ending.set()

    async def run(self) -> None:
        """Until it is told to stop. Errors of the first configuration are raised; later ones are told and survived."""
        loop = asyncio.get_running_loop()
        for number, order in SIGNALS.items():
            loop.add_signal_handler(number, self.order, order)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})  # blocked from the start until somebody listens
        follower = asyncio.create_task(self._follow())
        try:
            await self._serve()
        finally:
            follower.cancel()
            await asyncio.wait([follower])
            self._unmark()
            for problem in await self._guards.close():
                self._record("mps-stop-failed", problem=problem)
            self._tell_logs()
            for number in SIGNALS:
                loop.remove_signal_handler(number)

    async def _serve(self) -> None:
        plans = await self._plans()
        if plans is None:
            return
        ready = await self._start(plans)
        while True:
            order = await self._wait(PACE_S if ready else RETRY_S)
            if order == STOP:
                return
            if order == AGAIN:
                # What is well and stays as it is goes on: programs may be using it.
                try:
                    fresh = await self._plans()
                except FairleadError as error:
                    self._record("problem", topic="config", reason=str(error))
                    continue
                if fresh is None:
                    return
                plans = fresh
                ready = await self._start(plans)
            elif ready:
                await self._guards.round(self)
            else:
                ready = await self._start(plans)

    async def _plans(self) -> Sequence[Plan] | None:
        """None if it is time to stop first: a driver that hangs must not hold up the end."""
        loading, ending = asyncio.ensure_future(self._load()), asyncio.ensure_future(self._ending.wait())
        try:
            await asyncio.wait({loading, ending}, return_when=asyncio.FIRST_COMPLETED)
            return loading.result() if loading.done() else None
        finally:
            loading.cancel()
            ending.cancel()
            await asyncio.gather(loading, ending, return_exceptions=True)

    async def _start(self, plans: Sequence[Plan]) -> bool:
        self._unmark()
        self._down.clear()
        self._tails = [Tail(f"{plan.log}/control.log") for plan in plans]
        try:
            await self._guards.ready(plans)
        except BackendError as error:
            self._record("mps-start-failed", problem=str(error), retry_s=RETRY_S)
            return False
        self._set_mark()
        if not plans:
            self._record("mps-idle", reason="no devices are configured for MPS sharing")
        for plan in plans:
            self._record("mps-ready", resource=plan.resource, gpus=len(plan.gpus), limits=list(plan.limits))
        return True

    async def _wait(self, seconds: float) -> str:
        """The next order; empty when there was none in time."""
        waits = {
            asyncio.ensure_future(self._orders.get()): "order",
            asyncio.ensure_future(self._clock.sleep(seconds)): "time",
        }
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        for wait in done:
            if waits[wait] == "order":
                return str(wait.result())
        return ""

    # What the guards report: implements model.ports.Sink.

    def fault(self, device: DeviceId, cause: Cause) -> None:
        if device not in self._down:
            self._down.add(device)
            self._unmark()
            self._record("mps-down", device=device, problem=cause.message)

    def clear(self, device: DeviceId, code: str | None = None) -> None:
        self._down.discard(device)
        self._record("mps-back", device=device, code=code)
        if not self._down:
            self._set_mark()

    def rescan(self) -> None:
        """Never asked for: all daemons are our own."""

    def _set_mark(self) -> None:
        try:
            self._mark.parent.mkdir(parents=True, exist_ok=True)
            self._mark.touch()
        except OSError as error:
            raise HostError(
                f"cannot make {self._mark}: {error.strerror or error}. Mount a writable directory"
            ) from error

    def _unmark(self) -> None:
        with suppress(OSError):
            self._mark.unlink()

    async def _follow(self) -> None:
        while True:
            self._tell_logs()
            await self._clock.sleep(TAIL_S)

    def _tell_logs(self) -> None:
        for tail in self._tails:
            if lines := tail.more():
                self._write(lines)


async def find_plans(options: Options, clock: Clock) -> tuple[Plan, ...]:
    """The plans for the GPUs that are there now. What else the options say is not done: that is the plugin's part."""
    if not options.mps.replicas:
        return ()
    driver, owner = Driver(options), Owner("nvidia", clock)
    try:
        look = await owner.call(driver.look, deadline_s=options.deadline, what="the look at all GPUs")
        await owner.call(driver.end_session, what="the end of the session")
    except BackendError:
        with suppress(BackendError):  # one that began and failed
            await owner.call(driver.end_session, what="the end of the session")
        raise
    finally:
        owner.close()
    # Without those that are lost: they would fail every order.
    return make_plans(options.mps, show(replace(look, lost=()), options.mig).devices)


async def mount_shm(root: str = ROOT, tools: Tools | None = None, meminfo: Path = Path("/proc/meminfo")) -> None:
    """Mounts the memory that control daemons and their clients share. What was mounted there before goes."""
    used = tools or Tools()
    place = Path(root) / "shm"
    try:
        while place.is_mount():
            await run(used, "umount", str(place))
        place.mkdir(mode=0o755, parents=True, exist_ok=True)
    except OSError as error:
        raise HostError(f"cannot make {place}: {error.strerror or error}") from error
    size = shm_size(meminfo)
    await run(used, "mount", "-t", "tmpfs", "-o", f"{SHM_OPTIONS},size={size}", "shm", str(place))


def shm_size(meminfo: Path) -> str:
    """Half of the memory, as an option of mount."""
    try:
        lines = files.read_text(meminfo, files.SMALL_BYTES).splitlines()
    except OSError:
        return SHM_SIZE
    for line in lines:
        words = line.split()
        if len(words) >= 2 and words[0] == "MemTotal:" and words[1].isdigit():
            return f"{int(words[1]) // 2}{words[2][:1] if len(words) > 2 else ''}"
    return SHM_SIZE
