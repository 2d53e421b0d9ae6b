"""A source: one backend, run. Scans it, watches it, probes it, and keeps what it last said.

A failed scan keeps the last findings and records a problem. A backend that raises, hangs or returns nonsense is told
about and tried again; it never ends the daemon.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from fairlead.app.sound import check_findings, check_verdict
from fairlead.model.device import Device
from fairlead.model.edits import Edits, Grant
from fairlead.model.errors import BackendError, FairleadError
from fairlead.model.health import Cause, CauseKind, Condition
from fairlead.model.inventory import Findings
from fairlead.model.names import DeviceId
from fairlead.model.ports import Backend, Clock, Closes, EditsGrants, Prepares, Probes, ProbesAll, Waits, Watches
from fairlead.policy import health

RETRY_S = 5.0
_UNTOLD = BackendError("the backend says nothing of it")

Record = Callable[..., None]


class Tempo(Struct, frozen=True):
    """How often and how long. Seconds."""

    scan_interval_s: float = 60.0
    scan_deadline_s: float = 30.0
    probe_interval_s: float = 5.0
    rest_interval_s: float = 0.0  # the same while all is well and events tell of faults; 0: no difference
    probe_deadline_s: float = 5.0
    tuning: health.Tuning = health.DEFAULT


class Source:
    """Runs one backend. `on_change` is called after anything that may alter the inventory."""

    def __init__(
        self,
        name: str,
        backend: Backend,
        tempo: Tempo,
        clock: Clock,
        record: Record,
        on_change: Callable[[], None],
        *,
        before: Source | None = None,
        tracks: Mapping[DeviceId, health.Track] | None = None,
    ) -> None:
        """`before` is the source that this one stands in for: what it found stands until a scan works.

        `tracks` is what is known of devices, whoever found them. A new configuration is no cure.
        """
        self.name = name
        self.backend = backend
        self.findings: Findings = before.findings if before else Findings()
        self.problem = ""
        self.scanned_s: float | None = None  # the last scan that worked
        self.tempo = tempo  # may be changed while it runs
        self._clock = clock
        self._record = record
        self._on_change = on_change
        self.tracks: dict[DeviceId, health.Track] = dict(tracks or {})
        self._unprobed: dict[DeviceId, str] = {}  # why there is no data; told when it changes
        self._scan_now = asyncio.Event()
        self._ailing = asyncio.Event()  # something is not well: no rest
        self.first_scan = asyncio.Event()  # set once, whether it worked or not
        # What the backend can do is looked up once: a runtime check of a Protocol costs more than the call it guards.
        self.edits: Callable[[Grant], Edits] = backend.edits if isinstance(backend, EditsGrants) else _nodes_of
        self.prepare = backend.prepare if isinstance(backend, Prepares) else None
        self.wait_for = backend.wait_for if isinstance(backend, Waits) else None
        self._hears = isinstance(backend, Watches)
        self._probing = backend if isinstance(backend, Probes) else None
        self._probing_all = backend if isinstance(backend, ProbesAll) else None

    @property
    def conditions(self) -> Mapping[DeviceId, Condition]:
        """Of its own devices only: what is remembered of others is old, and whoever has them knows better."""
        mine = (device.id for device in self.findings.devices)
        return {device: self.tracks[device].condition for device in mine if device in self.tracks}

    async def run(self) -> None:
        """Until cancelled; then the backend is closed."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._guard(self._scan_loop), name=f"scan {self.name}")
                tasks.create_task(self._guard(self._pulse_loop), name=f"pulse {self.name}")
                if isinstance(self.backend, Watches):
                    tasks.create_task(self._watch_loop(self.backend), name=f"watch {self.name}")
        finally:
            if isinstance(self.backend, Closes):
                await self.backend.close()

    async def _guard(self, loop: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """A loop that stumbles is told about and started again: a source that stands still looks like a healthy one."""
        while True:
            try:
                await loop()
            except Exception as error:  # noqa: BLE001 - a backend may be anybody's code
                self._scan_failed(f"{type(error).__name__}: {error}")
                self.first_scan.set()
            await self._clock.sleep(RETRY_S)

    # --- Devices --------------------------------------------------------------------------------------------------

    async def _scan_loop(self) -> None:
        while True:
            self._scan_now.clear()
            await self.scan()
            self.first_scan.set()
            await _first(self._scan_now.wait(), self._clock.sleep(self.tempo.scan_interval_s))

    async def scan(self) -> None:
        try:
            async with asyncio.timeout(self.tempo.scan_deadline_s):
                found = check_findings(await self.backend.discover())
            devices = tuple(
                replace(device, backend=self.name, numa_nodes=tuple(device.numa_nodes), nodes=tuple(device.nodes))
                for device in found.devices
            )
        except TimeoutError:
            self._scan_failed(f"the scan has not answered in {self.tempo.scan_deadline_s:g} s")
        except FairleadError as error:
            self._scan_failed(str(error))
        except Exception as error:  # noqa: BLE001 - a backend may be anybody's code
            self._scan_failed(f"{type(error).__name__}: {error}")
        else:
            self._scan_worked(Findings(devices, found.links, tuple(found.problems)))

    def _scan_failed(self, reason: str) -> None:
        if self.problem != reason:
            self.problem = reason
            kept = len(self.findings.devices)
            self._record("scan-failed", backend=self.name, reason=reason, kept=f"{kept} devices")
        self._on_change()

    def _scan_worked(self, found: Findings) -> None:
        if self.problem:
            self._record("scan-recovered", backend=self.name)
        self.problem = ""
        self.scanned_s = self._clock.now()
        before = {device.id for device in self.findings.devices}
        after = {device.id for device in found.devices}
        for device in found.devices:
            if device.id not in before:
                self._record("device-found", backend=self.name, device=device.id, model=device.model)
        for gone in sorted(before - after):
            self._record("device-gone", backend=self.name, device=gone)
        for problem in found.problems:
            if problem not in self.findings.problems:
                self._record("scan-problem", backend=self.name, reason=problem)
        for new in after - self.tracks.keys():
            self.tracks[new] = health.Track(probed=self._probing is not None)
        # One that left ill is still ill when it comes back; the others need not be remembered.
        for left in [device for device in self.tracks.keys() - after if _is_well(self.tracks[device])]:
            del self.tracks[left]
        self.findings = found
        self._on_change()

    # --- Health ---------------------------------------------------------------------------------------------------

    async def _pulse_loop(self) -> None:
        """Asks the devices how they are, and lets holds and probations run out."""
        await self.first_scan.wait()
        while True:
            probing = self._probing
            if self._probing_all is not None:
                await self._probe_all(self._probing_all)
            elif probing is not None and getattr(probing, "one_at_a_time", False):
                for device in self.findings.devices:
                    await self._probe(probing, device)
            elif probing is not None:
                await asyncio.gather(*(self._probe(probing, device) for device in self.findings.devices))
            else:
                for device in self.findings.devices:
                    self._judge(device.id, health.tick)
            await self._pause()

    async def _pause(self) -> None:
        """Till the next probes. A backend that hears of faults itself is asked less often while all is well."""
        pause_s, rest_s = self.tempo.probe_interval_s, self.tempo.rest_interval_s
        well = all(_is_well(self.tracks[device.id]) for device in self.findings.devices if device.id in self.tracks)
        if rest_s <= pause_s or not self._hears or not well or self._unprobed:
            await self._clock.sleep(pause_s)
            return
        self._ailing.clear()
        await _first(self._ailing.wait(), self._clock.sleep(rest_s))

    async def _probe(self, backend: Probes, device: Device) -> None:
        cause: Cause | Exception | None
        try:
            async with asyncio.timeout(self.tempo.probe_deadline_s):
                cause = check_verdict(await backend.probe(device))
        except TimeoutError:
            cause = self._late()
        except Exception as error:  # noqa: BLE001 - as above
            cause = error
        self._heed(device, cause)

    async def _probe_all(self, backend: ProbesAll) -> None:
        devices = self.findings.devices
        found: Mapping[DeviceId, Cause | Exception | None]
        try:
            async with asyncio.timeout(self.tempo.probe_deadline_s):
                said = await backend.probe_all(devices)
            found = {id_: word if isinstance(word, Exception) else check_verdict(word) for id_, word in said.items()}
        except TimeoutError:
            found = dict.fromkeys((device.id for device in devices), self._late())
        except Exception as error:  # noqa: BLE001 - as above
            found = dict.fromkeys((device.id for device in devices), error)
        for device in devices:
            self._heed(device, found.get(device.id, _UNTOLD))

    def _late(self) -> Cause:
        message = f"the device has not answered in {self.tempo.probe_deadline_s:g} s"
        return Cause("probe-timeout", CauseKind.TRANSIENT, message)

    def _heed(self, device: Device, verdict: Cause | Exception | None) -> None:
        if isinstance(verdict, Exception):  # no data is not unhealthy
            reason = str(verdict) if isinstance(verdict, FairleadError) else f"{type(verdict).__name__}: {verdict}"
            if self._unprobed.get(device.id) != reason:
                self._unprobed[device.id] = reason
                self._record("probe-failed", device=device.id, reason=reason)
            self._judge(device.id, health.tick)
            return
        self._unprobed.pop(device.id, None)
        if verdict is None:
            self._judge(device.id, health.clean)
        else:
            self.fault(device.id, verdict)

    async def _watch_loop(self, backend: Watches) -> None:
        await self.first_scan.wait()  # a report before it would be of an unknown device
        while True:
            try:
                await backend.watch(self)
                reason = "the watch ended"
            except Exception as error:  # noqa: BLE001 - as above
                reason = f"{type(error).__name__}: {error}"
            self._record("watch-failed", backend=self.name, reason=reason)
            await self._clock.sleep(RETRY_S)

    def fault(self, device: DeviceId, cause: Cause) -> None:
        self._judge(device, lambda track, now_s, tuning: health.fault(track, cause, now_s, tuning))

    def clear(self, device: DeviceId, code: str | None = None) -> None:
        self._judge(device, lambda track, now_s, tuning: health.cleared(track, code, now_s, tuning))

    def rescan(self) -> None:
        self._scan_now.set()

    def _judge(self, device: DeviceId, verdict: Callable[[health.Track, float, health.Tuning], health.Track]) -> None:
        track = self.tracks.get(device)
        if track is None:
            self._record("report-for-unknown-device", backend=self.name, device=device)
            return
        # Holds and windows are intervals: somebody who sets the wall clock must not stretch them.
        judged = verdict(track, self._clock.monotonic(), self.tempo.tuning)
        self.tracks[device] = judged
        if judged is not track and not _is_well(judged):
            self._ailing.set()
        if judged.condition != track.condition:
            self._record(
                judged.condition.health.value,
                device=device,
                was=track.condition.health.value,
                cause=str(judged.condition.cause or ""),
            )
            self._on_change()


def _is_well(track: health.Track) -> bool:
    return track == health.Track(probed=track.probed)


def _nodes_of(grant: Grant) -> Edits:
    return Edits(nodes=tuple(node for device in grant.devices for node in device.nodes))


async def _first(*waits: Coroutine[Any, Any, object]) -> None:
    """Waits for the first of some coroutines and drops the others."""
    tasks = [asyncio.create_task(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
