"""The backend of NVIDIA GPUs: the ports of the engine on the driver. Owns the two threads and who may use NVML when.

One thread asks (`Driver`), the other waits for events (`Events`). A session is ended only while nobody waits on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from fairlead.backends.notices import Notices
from fairlead.backends.nvidia import devices, events
from fairlead.backends.nvidia.caps import Names, list_names
from fairlead.backends.nvidia.driver import Driver
from fairlead.backends.nvidia.edits import Tailor
from fairlead.backends.nvidia.errors import MpsNotYet, NvmlError
from fairlead.backends.nvidia.faults import Faults
from fairlead.backends.nvidia.nvml import GPU_IS_LOST
from fairlead.backends.nvidia.probes import Verdicts
from fairlead.backends.nvidia.records import Kind, Look
from fairlead.backends.nvidia.resets import read_signs
from fairlead.backends.nvidia.site import Site, look_at_site
from fairlead.backends.nvidia.spec import Options
from fairlead.backends.owner import DEADLINE_S, Owner
from fairlead.model.device import Device
from fairlead.model.edits import Edits, Grant
from fairlead.model.errors import BackendError
from fairlead.model.health import Cause, Sign
from fairlead.model.inventory import Findings, Links
from fairlead.model.names import DeviceId
from fairlead.model.ports import Clock, Sink

if TYPE_CHECKING:
    from fairlead.backends.nvidia.mps.guards import Guards

R = TypeVar("R")
SETTLE_S = 0.2  # nodes of a GPU are made one after the other
PROBE_S = 2.5  # for all GPUs together; a healthy driver needs milliseconds
SLACK_S = 10.0  # a wait for events that is so much too long hangs
AGAIN_S = 1.0  # after an error of the event set: it may come at once, again and again
CLOSE_S = 0.5


class NvidiaBackend:
    name = "nvidia"

    def __init__(self, options: Options, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._owner = Owner("nvidia", clock)
        self._listener = Owner("nvidia events", clock)
        self._driver = Driver(options)
        self._events = events.Events()
        self._faults = Faults(options.health)
        self._verdicts = Verdicts(self._driver, self._faults)
        self._tailor = Tailor(options)
        self._site = Site()
        self._look = Look(Kind.NVML)
        self._devices: tuple[Device, ...] = ()
        self._unheard: tuple[str, ...] = ()  # GPUs without events, and why
        self._heard: set[str] = set()  # GPUs that were asked for events in this session
        self._listening = asyncio.Event()
        self._late = False  # a probe was given up, or is under way
        self._renew = False  # the session is of no more use, or a fresh look is wanted
        self._checked = 0  # the last session whose GPUs were all asked how they are
        self._sink: Sink | None = None
        self._turn = asyncio.Lock()  # who holds it may use the listener's thread
        self._wanted = 0  # how many want it from the wait for events
        self._wants_cdi = any(way.cdi for way in options.ways)
        dev = f"{options.host_root.rstrip('/')}/dev"
        self._directories = [dev, f"{dev}/nvidia-caps", *([options.cdi.directory] if self._wants_cdi else [])]
        self._seen: Names = {}  # names of files there, when it was last scanned
        self._guards: Guards | None = None  # of what is shared by MPS

    # --- Devices --------------------------------------------------------------------------------------------------

    async def discover(self) -> Findings:
        if self._renew or await self._ask(self._driver.is_stale, "the look for changes"):
            await self._end_session()
        names = list_names(self._directories)
        look, site, links = await self._ask(self._look_around, "the look at all GPUs", self._options.deadline)
        # Before anything else can fail: GPUs that are offered already must not go unheard.
        await self._listen(look)
        await self._check_session(look)
        shown = devices.show(look, self._options.mig)
        await self._ask(self._publish, "the writing of CDI specs", self._options.deadline, look, site)
        try:
            crowded = await self._ready_mps(look, shown.devices)
        except MpsNotYet as error:
            if self._devices:
                raise  # what is offered stays
            # No failure to end with: the driver answers, and who looks after MPS may only be starting.
            return Findings(problems=(*shown.problems, *self._unheard, str(error)))
        self._look, self._site, self._devices = look, site, shown.devices
        self._seen = names | list_names(self._directories[2:])  # specs as they are now: they were just written
        return Findings(shown.devices, links, problems=(*shown.problems, *self._unheard, *crowded))

    def reopen(self) -> None:
        self._renew = True

    async def _ask(self, fn: Callable[..., R], what: str, deadline_s: float = DEADLINE_S, *args: Any) -> R:
        return await self._owner.call(fn, *args, deadline_s=deadline_s, what=what)

    def _look_around(self) -> tuple[Look, Site, Links]:
        look = self._driver.look()
        return look, look_at_site(self._options, look.kind), self._driver.links(look)

    def _publish(self, look: Look, site: Site) -> None:
        """Also where nobody wants specs: those of an earlier configuration must go."""
        if not self._wants_cdi and not any(Path(self._options.cdi.directory).glob(f"{self._options.cdi.vendor}-*")):
            return
        from fairlead.backends.nvidia import cdi  # noqa: PLC0415 - most nodes never need it

        # A container that has a lost GPU may be started again: its spec must not go.
        cdi.publish(self._options, replace(look, gpus=(*look.gpus, *look.lost)), site)

    async def _ready_mps(self, look: Look, found: Iterable[Device]) -> tuple[str, ...]:
        """Nothing is offered before the control daemons are well. Answers with what they will refuse."""
        mps = self._options.mps
        if not mps.replicas:
            return ()
        from fairlead.backends.nvidia.mps.guards import Guards  # noqa: PLC0415 - as above
        from fairlead.backends.nvidia.mps.plan import make_plans  # noqa: PLC0415 - as above

        if self._guards is None:
            self._guards = Guards(self._clock, managed=mps.managed, keep=mps.keep)
        lost = {gpu.uuid for gpu in look.lost}  # they would fail every order
        plans = make_plans(mps, [device for device in found if (device.parent or device.id) not in lost])
        await self._guards.ready(plans)
        return tuple(problem for plan in plans for problem in plan.problems)

    async def _end_session(self) -> None:
        """So that the next look counts the GPUs anew. Not while the listener hangs: it would lose its ground."""
        if self._listener.stuck():
            return
        self._listening.clear()
        async with self._interrupting():
            if not self._listener.stuck():
                deadline_s = self._options.health.event_wait + SLACK_S
                await self._listener.call(self._events.close, deadline_s=deadline_s, what="the end of events")
            self._renew = False
            await self._ask(self._driver.end_session, "the end of the session")

    async def _listen(self, look: Look) -> None:
        """Opens the event set in the scan, not in the watch: no event after the first list is missed."""
        nvml = self._driver.nvml
        if look.kind is not Kind.NVML or nvml is None or not self._faults.watching:
            return
        opened = self._listening.is_set()
        # A GPU may answer for the first time in the middle of a session.
        fresh = [gpu.uuid for gpu in look.gpus if not opened or gpu.uuid not in self._heard]
        if opened and (not fresh or self._listener.stuck()):
            return
        async with self._interrupting():
            try:
                if opened:
                    self._unheard += await self._listener.call(self._events.add, fresh, what="the start of more events")
                else:
                    self._unheard = await self._listener.call(
                        self._events.open, nvml, fresh, what="the start of events"
                    )
            except BackendError as error:
                self._unheard = (f"no events: {error}; only probes tell of faults",)
                return
        self._heard = {*fresh, *(self._heard if opened else ())}
        self._listening.set()

    async def _check_session(self, look: Look) -> None:
        """Between two sessions no event is heard, so all GPUs are asked. At the start the engine does that."""
        if look.kind is Kind.NVML and self._checked != (session := self._driver.sessions):
            if self._checked and self._sink is not None and self._faults.beyond_xids:
                await self._check_all(self._sink)
            self._checked = session

    @asynccontextmanager
    async def _interrupting(self) -> AsyncIterator[None]:
        """Has the turn, as soon as the wait that is under way is over."""
        self._wanted += 1
        try:
            async with self._turn:
                yield
        finally:
            self._wanted -= 1

    # --- Health ---------------------------------------------------------------------------------------------------

    async def probe_all(self, devices: Sequence[Device]) -> Mapping[DeviceId, Cause | Exception | None]:
        """One call for all GPUs. A GPU that hangs is told of; those that were not asked then have no data."""
        if not self._faults.beyond_xids or self._look.kind is not Kind.NVML:
            return dict.fromkeys((device.id for device in devices), None)
        failure = BackendError("not asked: the driver does not know it")
        try:
            await self._probe_all()
        except BackendError as error:
            failure = BackendError(f"not asked: {error}")
        found = self._verdicts.found
        return {device.id: found.get(device.parent or device.id, failure) for device in devices}

    async def _probe_all(self) -> None:
        gpus = (*self._look.gpus, *self._look.lost)
        if self._late and self._driver.busy_with:
            # Somebody ran out of patience with it. Nobody waits for it a second time.
            self._verdicts.hangs(self._driver.busy_with)
            raise BackendError(f"the driver does not answer for {self._driver.busy_with}")
        self._late = True
        call = self._owner.call(self._verdicts.ask, gpus, deadline_s=PROBE_S, what="the probe of all GPUs")
        try:
            await call
        except BackendError:
            self._verdicts.hangs(self._driver.busy_with)
            raise
        self._late = False

    async def signs(self, devices: Sequence[Device]) -> Mapping[DeviceId, Mapping[str, Sign]]:
        wanted = {device.parent or device.id for device in devices}
        gpus = [gpu for gpu in (*self._look.gpus, *self._look.lost) if gpu.uuid in wanted]
        call = (read_signs, self._driver, self._options.host_root, gpus)
        found = await self._owner.call(*call, deadline_s=PROBE_S, what="the look for resets")
        return {device.id: found.get(device.parent or device.id, {}) for device in devices}

    async def watch(self, sink: Sink) -> None:
        self._sink = sink
        tasks = [asyncio.create_task(self._follow_files(sink))]
        if self._faults.watching:
            tasks.append(asyncio.create_task(self._follow_events(sink)))
        if self._options.mps.replicas:
            tasks.append(asyncio.create_task(self._follow_mps(sink)))
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow_events(self, sink: Sink) -> None:
        loop = asyncio.get_running_loop()

        def tell(report: events.Report) -> None:
            # Straight from the thread: what the end of the wait would add is a few wake-ups of the loop.
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._tell, report, sink)

        def go_on() -> bool:
            self._listener.beat()
            return not self._wanted and not left

        left = False
        wait_s = self._options.health.event_wait
        try:
            while True:
                await self._listening.wait()
                try:
                    async with self._turn:
                        if self._listening.is_set():
                            await self._listener.call(
                                self._events.wait,
                                wait_s,
                                tell,
                                go_on,
                                deadline_s=wait_s + SLACK_S,
                                what="the event wait",
                            )
                except NvmlError as error:
                    await self._event_error(error, sink)
        finally:
            left = True  # the thread sees it after its present wait

    async def _check_all(self, sink: Sink) -> None:
        with suppress(BackendError):
            await self._probe_all()
            for gpu, cause in self._verdicts.bad():
                for device in devices.reach(self._devices, gpu):
                    sink.fault(device.id, cause)

    async def _event_error(self, error: NvmlError, sink: Sink) -> None:
        """An error of the wait says nothing of any one GPU. They are asked, and that decides."""
        await self._check_all(sink)
        if error.code != GPU_IS_LOST:
            self._renew = True
            sink.rescan()
            raise error
        await self._clock.sleep(AGAIN_S)

    def _tell(self, report: events.Report, sink: Sink) -> None:
        found = self._faults.of_event(report.kind, report.data)
        if found is None:
            return
        cause, scope = found
        self._verdicts.remember(report.gpu, cause)
        for device in devices.reach(self._devices, report.gpu, report.gi, report.ci, scope):
            sink.fault(device.id, cause)

    async def _follow_mps(self, sink: Sink) -> None:
        while self._guards is None:  # the first scan makes them
            await self._clock.sleep(AGAIN_S)
        await self._guards.watch(sink)

    async def _follow_files(self, sink: Sink) -> None:
        """Nodes that come or go mean GPUs that come or go; CDI specs that go must be written again."""
        stirred = asyncio.Event()
        asked: Names = {}
        with closing(Notices(stirred.set)) as notices:
            while True:
                # Armed before looking: what changes in between stirs again.
                stirred.clear()
                notices.arm(self._directories)
                names = list_names(self._directories)
                if names not in (self._seen, asked):
                    asked = names
                    sink.rescan()
                await stirred.wait()
                await self._clock.sleep(SETTLE_S)

    # --- Grants ---------------------------------------------------------------------------------------------------

    def edits(self, grant: Grant) -> Edits:
        return self._tailor.edits(self._site, grant)

    async def close(self) -> None:
        if self._guards is not None:
            await self._guards.close()
        self._events.ending = True
        if not self._events.waiting:
            with suppress(BackendError):
                await self._listener.call(self._events.close, deadline_s=CLOSE_S)
        with suppress(BackendError):
            await self._owner.call(self._driver.end_session, deadline_s=CLOSE_S)
        self._listener.close()
        self._owner.close()
