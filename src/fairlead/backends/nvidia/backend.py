"""The backend of NVIDIA GPUs: the ports of the engine on the driver. Owns the two threads and who may use NVML when.

One thread asks (`Driver`), the other waits for events (`Events`). A session is ended only while no thread waits on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from fairlead.backends.nvidia import devices
from fairlead.backends.nvidia.devices import gpu_of
from fairlead.backends.nvidia.driver import Driver
from fairlead.backends.nvidia.edits import EditsBuilder
from fairlead.backends.nvidia.errors import DriverAbsent, MpsNotReady, NvmlError
from fairlead.backends.nvidia.events import GpuEvent
from fairlead.backends.nvidia.faults import Faults
from fairlead.backends.nvidia.hostnodes import NEEDED_NODES, HostNodes, find_host_nodes
from fairlead.backends.nvidia.kernel import Names, list_names
from fairlead.backends.nvidia.listener import Listener
from fairlead.backends.nvidia.nvml import GPU_IS_LOST
from fairlead.backends.nvidia.probes import Probes
from fairlead.backends.nvidia.resets import read_signs
from fairlead.backends.nvidia.snapshot import Platform, Snapshot
from fairlead.backends.nvidia.spec import Naming, Options, Scope
from fairlead.kit.notices import Notices
from fairlead.kit.owner import DEADLINE_S, Owner
from fairlead.model.device import Device, Usage
from fairlead.model.edits import Edits, Grant
from fairlead.model.errors import BackendError, BadAsk
from fairlead.model.health import Cause, Sign
from fairlead.model.inventory import Findings, Links
from fairlead.model.names import DeviceId
from fairlead.model.ports import Clock, Sink

if TYPE_CHECKING:
    from fairlead.backends.nvidia.mps.supervisor import DaemonSupervisor

R = TypeVar("R")
SETTLE_S = 0.2  # nodes of a GPU are made one after the other
PROBE_S = 2.5  # for all GPUs together; a healthy driver needs milliseconds
AGAIN_S = 1.0  # after an error of the event set: it may come at once, again and again
CLOSE_S = 0.5


class NvidiaBackend:
    name = "nvidia"

    def __init__(self, options: Options, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._owner = Owner("nvidia", clock)
        self._listener = Listener(clock, options.health.event_wait)
        self._driver = Driver(options)
        self._faults = Faults(options.health)
        self._probes = Probes(self._driver, self._faults)
        self._edits_builder = EditsBuilder(options)
        self._host_nodes = HostNodes()
        self._snapshot = Snapshot(Platform.NVML)
        self._devices: tuple[Device, ...] = ()
        self._late = False  # a probe was given up, or is under way
        self._renew = False  # the session is of no more use, or a fresh look is wanted
        self._checked = 0  # the last session whose GPUs were all asked how they are
        self._sink: Sink | None = None
        self._nodes_only = options.nodes and not options.ways
        # Most options leave the devices as they are; what changes them is then not loaded.
        self._is_shaped = self._nodes_only or options.naming is not Naming.UUID or options.partition is not None
        self._wants_cdi = any(way.cdi for way in options.ways)
        dev = f"{options.host_root.rstrip('/')}/dev"
        self._directories = [dev, f"{dev}/nvidia-caps", *([options.cdi.directory] if self._wants_cdi else [])]
        self._seen: Names = {}  # names of files there, when it was last scanned
        self._supervisor: DaemonSupervisor | None = None  # of what is shared by MPS

    # --- Devices --------------------------------------------------------------------------------------------------

    async def discover(self) -> Findings:
        if self._renew or await self._ask(self._driver.is_stale, "the look for changes"):
            await self._end_session()
        names = list_names(self._directories)
        snapshot, host_nodes, links = await self._ask(self._read_host, "the look at all GPUs", self._options.deadline)
        # Before anything else can fail: GPUs that are offered already must not go unheard.
        await self._listen(snapshot)
        await self._check_session(snapshot)
        discovered = devices.make_devices(snapshot, self._options.mig)
        if self._is_shaped:
            discovered, links = self._shape(discovered, snapshot, host_nodes, links)
        await self._ask(self._publish, "the writing of CDI specs", self._options.deadline, snapshot, host_nodes)
        try:
            crowded = await self._ready_mps(snapshot, discovered.devices)
        except MpsNotReady as error:
            if self._devices:
                raise  # what is offered stays
            # Not a reason to fail: the driver answers, and the container with the control daemons may only be starting.
            return Findings(problems=(*discovered.problems, *self._listener.problems, str(error)))
        self._snapshot, self._host_nodes, self._devices = snapshot, host_nodes, discovered.devices
        self._seen = names | list_names(self._directories[2:])  # specs as they are now: they were just written
        return Findings(discovered.devices, links, problems=(*discovered.problems, *self._listener.problems, *crowded))

    def reopen(self) -> None:
        self._renew = True

    async def _ask(self, fn: Callable[..., R], what: str, deadline_s: float = DEADLINE_S, *args: Any) -> R:
        return await self._owner.call(fn, *args, deadline_s=deadline_s, what=what)

    def _read_host(self) -> tuple[Snapshot, HostNodes, Links]:
        snapshot = self._driver.snapshot()
        host_nodes = find_host_nodes(self._options, snapshot.platform, wanted=self._wanted_nodes(snapshot))
        if self._nodes_only and (absent := [path for path in NEEDED_NODES if path not in host_nodes.control_nodes]):
            raise DriverAbsent(f"there is no {' and no '.join(absent)}", "Load the driver's modules")
        return snapshot, host_nodes, self._driver.links(snapshot)

    def _wanted_nodes(self, snapshot: Snapshot) -> list[str]:
        if not self._nodes_only:
            return []
        from fairlead.backends.nvidia.shape import node_paths  # noqa: PLC0415 - most nodes never need it

        return node_paths(snapshot)

    def _shape(
        self, discovered: devices.Discovered, snapshot: Snapshot, host_nodes: HostNodes, links: Links
    ) -> tuple[devices.Discovered, Links]:
        from fairlead.backends.nvidia.shape import shape  # noqa: PLC0415 - as above

        return shape(discovered, snapshot, links, self._options, host_nodes.missing)

    def _publish(self, snapshot: Snapshot, host_nodes: HostNodes) -> None:
        """Also where the configuration wants no specs: those of an earlier one must go."""
        if not self._wants_cdi and not any(Path(self._options.cdi.directory).glob(f"{self._options.cdi.vendor}-*")):
            return
        from fairlead.backends.nvidia import cdi  # noqa: PLC0415 - most nodes never need it

        # A container that has a lost GPU may be started again: its spec must not go.
        cdi.publish(self._options, replace(snapshot, gpus=(*snapshot.gpus, *snapshot.lost)), host_nodes)

    async def _ready_mps(self, snapshot: Snapshot, found: Iterable[Device]) -> tuple[str, ...]:
        """Nothing is offered before the control daemons answer. Returns what they will refuse."""
        mps = self._options.mps
        if not mps.replicas and not mps.clients:
            return ()
        from fairlead.backends.nvidia.mps.command import Tools  # noqa: PLC0415 - as above
        from fairlead.backends.nvidia.mps.daemonspec import make_daemon_specs  # noqa: PLC0415 - as above
        from fairlead.backends.nvidia.mps.supervisor import DaemonSupervisor  # noqa: PLC0415 - as above

        if self._supervisor is None:
            tools = Tools(control=mps.control)
            self._supervisor = DaemonSupervisor(self._clock, managed=mps.managed, keep=mps.keep, tools=tools)
        lost = {gpu.uuid for gpu in snapshot.lost}  # they would fail every order
        specs = make_daemon_specs(mps, [device for device in found if gpu_of(device) not in lost])
        await self._supervisor.ready(specs)
        return tuple(problem for spec in specs for problem in spec.problems)

    async def _end_session(self) -> None:
        """So that the next look counts the GPUs anew. Not while the listener hangs: it would lose its ground."""
        if self._listener.is_stuck:
            return
        async with self._listener.stopped():
            self._renew = False
            await self._ask(self._driver.end_session, "the end of the session")

    async def _listen(self, snapshot: Snapshot) -> None:
        """Opens the event set in the scan, not in the watch: no event after the first list is missed."""
        nvml = self._driver.nvml
        if snapshot.platform is Platform.NVML and nvml is not None and self._faults.watching:
            await self._listener.listen(nvml, snapshot.gpus)

    async def _check_session(self, snapshot: Snapshot) -> None:
        """Between two sessions no event is heard, so all GPUs are asked. At the start the engine does that."""
        if snapshot.platform is Platform.NVML and self._checked != (session := self._driver.sessions):
            if self._checked and self._sink is not None and self._faults.beyond_xids:
                await self._check_all(self._sink)
            self._checked = session

    # --- Health ---------------------------------------------------------------------------------------------------

    async def probe_all(self, devices: Sequence[Device]) -> Mapping[DeviceId, Cause | Exception | None]:
        """One call for all GPUs. A GPU that hangs is reported; those that were not asked then have no data."""
        if not self._faults.beyond_xids or self._snapshot.platform is not Platform.NVML:
            return dict.fromkeys((device.id for device in devices), None)
        failure = BackendError("not asked: the driver does not know it")
        try:
            await self._probe_all()
        except BackendError as error:
            failure = BackendError(f"not asked: {error}")
        found = self._probes.results
        return {device.id: found.get(gpu_of(device), failure) for device in devices}

    async def _probe_all(self) -> None:
        gpus = (*self._snapshot.gpus, *self._snapshot.lost)
        if self._late and self._driver.busy_with:
            # An earlier probe gave up on this GPU: no second one waits for it.
            self._probes.record_hang(self._driver.busy_with)
            raise BackendError(f"the driver does not answer for {self._driver.busy_with}")
        self._late = True
        call = self._owner.call(self._probes.ask, gpus, deadline_s=PROBE_S, what="the probe of all GPUs")
        try:
            await call
        except BackendError:
            self._probes.record_hang(self._driver.busy_with)
            raise
        self._late = False

    async def signs(self, devices: Sequence[Device]) -> Mapping[DeviceId, Mapping[str, Sign]]:
        wanted = {gpu_of(device) for device in devices}
        gpus = [gpu for gpu in (*self._snapshot.gpus, *self._snapshot.lost) if gpu.uuid in wanted]
        call = (read_signs, self._driver, self._options.host_root, gpus)
        found = await self._owner.call(*call, deadline_s=PROBE_S, what="the look for resets")
        return {device.id: found.get(gpu_of(device), {}) for device in devices}

    async def usage(self, devices: Sequence[Device]) -> Mapping[DeviceId, Usage]:
        """Of whole GPUs: of an instance the driver does not say it. None of any while a GPU hangs."""
        if self._snapshot.platform is not Platform.NVML or self._late:
            return {}
        whole = {device.id: gpu_of(device) for device in devices if device.parent is None}
        read = lambda: {device: self._driver.usage(gpu) for device, gpu in whole.items()}  # noqa: E731 - for the thread
        return await self._ask(read, "the use of all GPUs", PROBE_S)

    async def watch(self, sink: Sink) -> None:
        self._sink = sink
        tasks = [asyncio.create_task(self._follow_files(sink))]
        if self._faults.watching:
            tasks.append(asyncio.create_task(self._follow_events(sink)))
        if self._options.mps.replicas or self._options.mps.clients:
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
        while True:
            try:
                await self._listener.follow(lambda event: self._report(event, sink))
            except NvmlError as error:
                await self._event_error(error, sink)

    async def _check_all(self, sink: Sink) -> None:
        with suppress(BackendError):
            await self._probe_all()
            for gpu, cause in self._probes.failing():
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

    def _report(self, event: GpuEvent, sink: Sink) -> None:
        found = self._faults.of_event(event.kind, event.data)
        if found is None:
            return
        cause, scope = found
        if not event.gpu:
            if self._options.health.only_xids is None:
                return  # all GPUs are probed next, and that decides
            scope = Scope.NODE
        for gpu in [event.gpu] if event.gpu else [one.uuid for one in self._snapshot.gpus]:
            self._probes.remember(gpu, cause)
        for device in devices.reach(self._devices, event.gpu, event.gi, event.ci, scope):
            sink.fault(device.id, cause)

    async def _follow_mps(self, sink: Sink) -> None:
        while self._supervisor is None:  # the first scan makes them
            await self._clock.sleep(AGAIN_S)
        await self._supervisor.watch(sink)

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
        if self._options.mps.clients and len(grant.slots) > 1 and len(self._devices) > 1:
            raise BadAsk(
                f"{grant.resource}: a container may have 1 share by MPS, not {len(grant.slots)}, on a node with "
                f"{len(self._devices)} devices: its shares might be of several. Ask for 1, or for fewer clients"
            )
        return self._edits_builder.edits(self._host_nodes, grant)

    async def close(self) -> None:
        if self._supervisor is not None:
            await self._supervisor.close()
        await self._listener.close()
        with suppress(BackendError):
            await self._owner.call(self._driver.end_session, deadline_s=CLOSE_S)
        self._owner.close()
