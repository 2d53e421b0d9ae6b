"""NVIDIA's mps-control-daemon, drop-in: control daemons for a plugin in another container, and their ready files.

The files are those that others wait for: `.started` beside each daemon's pipe, and `.ready` while all of them are well.
Reading flags and the config file is not done here.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from fairlead.backends.nvidia.devices import make_devices
from fairlead.backends.nvidia.driver import Driver
from fairlead.backends.nvidia.mps.command import Tools, run
from fairlead.backends.nvidia.mps.daemonspec import ControlDaemonSpec, make_daemon_specs
from fairlead.backends.nvidia.mps.supervisor import PACE_S, DaemonSupervisor
from fairlead.backends.nvidia.mps.tail import Tail
from fairlead.backends.nvidia.spec import Options
from fairlead.kit import files
from fairlead.kit.owner import Owner
from fairlead.kit.waiting import run_unless, sleep_unless
from fairlead.model.errors import BackendError, FairleadError, HostError
from fairlead.model.health import Cause
from fairlead.model.names import DeviceId
from fairlead.model.ports import Clock, Record

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

Load = Callable[[], Awaitable[Sequence[ControlDaemonSpec]]]


class MpsDaemon:
    """`load` gives the specs at the start and at each SIGHUP."""

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
        self._ready_file = Path(root) / ".ready"
        self._supervisor = DaemonSupervisor(clock, managed=True, tools=tools)
        self._stopping = asyncio.Event()
        self._ordered = asyncio.Event()
        self._reload = False
        self._tails: list[Tail] = []
        self._down: set[str] = set()

    def order(self, what: str) -> None:
        """STOP, or AGAIN: read the configuration again and do what differs."""
        if what == STOP:
            self._stopping.set()
        else:
            self._reload = True
        self._ordered.set()

    async def run(self) -> None:
        """Until the order to stop. Errors of the first configuration are raised; later ones are recorded."""
        loop = asyncio.get_running_loop()
        for number, order in SIGNALS.items():
            loop.add_signal_handler(number, self.order, order)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})  # blocked from the start until there is a handler
        follower = asyncio.create_task(self._follow())
        try:
            await self._serve()
        finally:
            follower.cancel()
            await asyncio.wait([follower])
            self._remove_ready_file()
            for problem in await self._supervisor.close():
                self._record("mps-stop-failed", problem=problem)
            self._write_logs()
            for number in SIGNALS:
                loop.remove_signal_handler(number)

    async def _serve(self) -> None:
        # A driver that hangs must not hold up the end.
        specs = await run_unless(self._stopping, self._load())
        if specs is None:
            return
        ready = await self._start(specs)
        while True:
            await sleep_unless(self._ordered, self._clock, PACE_S if ready else RETRY_S)
            self._ordered.clear()
            if self._stopping.is_set():
                return
            if self._reload:
                self._reload = False
                # A daemon that answers and stays as it is goes on: programs may be using it.
                try:
                    fresh = await run_unless(self._stopping, self._load())
                except FairleadError as error:
                    self._record("problem", topic="config", reason=str(error))
                    continue
                if fresh is None:
                    return
                specs = fresh
                ready = await self._start(specs)
            elif ready:
                await self._supervisor.check_all(self)
            else:
                ready = await self._start(specs)

    async def _start(self, specs: Sequence[ControlDaemonSpec]) -> bool:
        self._remove_ready_file()
        self._down.clear()
        self._tails = [Tail(f"{spec.log}/control.log") for spec in specs]
        try:
            await self._supervisor.ready(specs)
        except BackendError as error:
            self._record("mps-start-failed", problem=str(error), retry_s=RETRY_S)
            return False
        self._write_ready_file()
        if not specs:
            self._record("mps-idle", reason="no devices are configured for MPS sharing")
        for spec in specs:
            self._record("mps-ready", resource=spec.resource, gpus=len(spec.gpus), limits=list(spec.limits))
        return True

    # What the supervisor reports: implements model.ports.Sink.

    def fault(self, device: DeviceId, cause: Cause) -> None:
        if device not in self._down:
            self._down.add(device)
            self._remove_ready_file()
            self._record("mps-down", device=device, problem=cause.message)

    def clear(self, device: DeviceId, code: str | None = None) -> None:
        self._down.discard(device)
        self._record("mps-back", device=device, code=code)
        if not self._down:
            self._write_ready_file()

    def rescan(self) -> None:
        """Never asked for: all daemons are our own."""

    def _write_ready_file(self) -> None:
        try:
            self._ready_file.parent.mkdir(parents=True, exist_ok=True)
            self._ready_file.touch()
        except OSError as error:
            raise HostError(
                f"cannot make {self._ready_file}: {error.strerror or error}. Mount a writable directory"
            ) from error

    def _remove_ready_file(self) -> None:
        with suppress(OSError):
            self._ready_file.unlink()

    async def _follow(self) -> None:
        while True:
            self._write_logs()
            await self._clock.sleep(TAIL_S)

    def _write_logs(self) -> None:
        for tail in self._tails:
            if lines := tail.read_new():
                self._write(lines)


async def find_daemon_specs(options: Options, clock: Clock) -> tuple[ControlDaemonSpec, ...]:
    """The specs for the GPUs that are there now. What else the options say is not done: that is the plugin's part."""
    if not options.mps.replicas:
        return ()
    driver, owner = Driver(options), Owner("nvidia", clock)
    try:
        snapshot = await owner.call(driver.snapshot, deadline_s=options.deadline, what="the look at all GPUs")
        await owner.call(driver.end_session, what="the end of the session")
    except BackendError:
        with suppress(BackendError):  # one that began and failed
            await owner.call(driver.end_session, what="the end of the session")
        raise
    finally:
        owner.close()
    # Without those that are lost: they would fail every order.
    return make_daemon_specs(options.mps, make_devices(replace(snapshot, lost=()), options.mig).devices)


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
        fields = line.split()
        if len(fields) >= 2 and fields[0] == "MemTotal:" and fields[1].isdigit():
            return f"{int(fields[1]) // 2}{fields[2][:1] if len(fields) > 2 else ''}"
    return SHM_SIZE
