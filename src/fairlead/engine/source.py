"""A source: one backend, run. Scans it, watches it, probes it, and keeps what it last said.

A failed scan keeps the last findings and records a problem. A backend that raises, hangs, exits or returns nonsense is
a problem in the status and is tried again; it never ends the daemon. Only the daemon's own cancellation ends a source.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from fairlead.engine.closing import close_backend
from fairlead.engine.containers import edits_of, prepare_of, wait_for_of
from fairlead.engine.probing import prober_of
from fairlead.engine.quota import Quota
from fairlead.engine.tap import Tap
from fairlead.engine.validate import check_cause, check_findings, check_signs
from fairlead.kit.calls import Calls, explain, plain
from fairlead.kit.waiting import first_of
from fairlead.model.device import Device, Usage
from fairlead.model.errors import NotYet
from fairlead.model.health import Cause, Condition
from fairlead.model.inventory import Findings
from fairlead.model.names import DeviceId
from fairlead.model.ports import Backend, Clock, MeasuresUse, Record, Reopens, ShowsResets, Watches
from fairlead.policy import health

RETRY_S = 5.0
RETRY_MAX_S = 60.0
STEADY_S = 10.0  # a part that has run for so long is well again
HASTY_SCANS = 8  # one after the other, because the backend asks for them; further ones come at a pace
HASTE_S = 1.0
UNKNOWN_TOLD = 100  # unknown devices that are recorded, each once


class Tempo(Struct, frozen=True):
    """How often and how long. Seconds."""

    scan_interval_s: float = 60.0
    scan_deadline_s: float = 30.0
    probe_interval_s: float = 5.0
    rest_interval_s: float = 0.0  # the same while all is well and events tell of faults; 0: no difference
    probe_deadline_s: float = 5.0
    tuning: health.Tuning = health.DEFAULT


class Source:
    """Runs one backend. `on_change`: anything that may alter the inventory. `on_health`: a condition, and no more."""

    def __init__(
        self,
        name: str,
        backend: Backend,
        tempo: Tempo,
        clock: Clock,
        record: Record,
        on_change: Callable[[], None],
        *,
        on_health: Callable[[], None] | None = None,
        on_fault: Callable[[Cause], object] = lambda _cause: None,
        before: Source | None = None,
        tracks: Mapping[DeviceId, health.Track] | None = None,
        remembered: Findings | None = None,
        on_scan: Callable[[Source], None] = lambda _source: None,
        tap: Tap | None = None,
    ) -> None:
        """`before` is the source that this one stands in for: what it found stands until a scan works.

        `remembered` is what an earlier process found: it stands until the first scan has ended, and no longer.
        `on_scan` is called after each scan that worked.

        `tracks` is what is known of devices, whichever source found them. A new configuration is no cure.
        """
        self.name = name
        self.backend = backend
        self.findings: Findings = before.findings if before else remembered or Findings()
        self.remembered: bool = before.remembered if before else remembered is not None  # no scan has confirmed them
        self.scanned_s: float | None = None  # the last scan that worked
        self.probed_s: float | None = None  # the last round of probes with a verdict on a device
        self.tempo = tempo  # may be changed while it runs
        self._clock = clock
        self._record = Quota(name, clock, record).record
        self._on_change = on_change
        self._on_health = on_health or on_change
        self._on_fault = on_fault
        self._on_scan = on_scan
        self._tap = tap
        self.tracks: dict[DeviceId, health.Track] = dict(tracks or {})
        self._problems: dict[str, str] = {}  # of the scan, the probes, the watch
        self._clears: dict[DeviceId, int] = {}  # how often each was cleared
        self._unprobed: dict[DeviceId, str] = {}  # why there is no data; recorded when it changes
        self._unread = ""  # why no sign of a reset can be read; as above
        self._unknown: set[DeviceId] = set()  # reported on, and found by no scan
        self._retry_s: float | None = None  # the last scan failed for something that may come at any moment
        self._scan_now = asyncio.Event()
        self._ailing = asyncio.Event()  # something is not well: no rest
        self.first_scan = asyncio.Event()  # set once, whether it worked or not
        self._calls = Calls()
        # Looked up once: a runtime check of a Protocol costs more than the call it guards.
        self.edits = edits_of(name, backend)
        self.prepare = prepare_of(backend, self._calls)
        self.wait_for = wait_for_of(backend, self._calls)
        self._hears = isinstance(backend, Watches)
        self._resets = backend if isinstance(backend, ShowsResets) else None
        self._prober = prober_of(backend, self._calls)
        if tap is not None:
            tap.opened(self)

    @property
    def probed(self) -> bool:
        """Whether its devices can be asked how they are."""
        return self._prober is not None

    @property
    def problem(self) -> str:
        """What is wrong with the backend itself; empty when all is well."""
        silent = [] if self.first_scan.is_set() else ["it has not answered yet"]
        return "; ".join([*silent, *self._problems.values()])

    @property
    def conditions(self) -> Mapping[DeviceId, Condition]:
        """Of its own devices only: what is remembered of others is old, and the source that has them knows better."""
        mine = (device.id for device in self.findings.devices)
        return {device: self.tracks[device].condition for device in mine if device in self.tracks}

    async def run(self) -> None:
        """Until cancelled; then the backend is closed."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._keep("scan", self._scan_loop), name=f"scan {self.name}")
                tasks.create_task(self._keep("probe", self._pulse_loop), name=f"pulse {self.name}")
                if isinstance(self.backend, Watches):
                    watch = self.backend.watch
                    tasks.create_task(self._keep("watch", lambda: self._watch(watch)), name=f"watch {self.name}")
        finally:
            await close_backend(self.name, self.backend, self._record)

    async def _keep(self, part: str, loop: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Runs a part for ever. One that ended is started again: a source that stands still looks healthy."""
        failures = 0
        while True:
            began_s = self._clock.monotonic()
            steady = self._clock.alarm(STEADY_S, lambda: self._forget(part)) if failures else _nothing
            try:
                await loop()
                reason = f"the {part} ended"
            except Exception as error:  # noqa: BLE001 - a backend may be foreign code
                reason = explain(error)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                reason = f"the {part} was cancelled, and not by the daemon"
            finally:
                steady()
            failures = 1 if self._clock.monotonic() - began_s >= STEADY_S else failures + 1
            self._problems[part] = f"{part}: {reason}"
            self._drop_remembered(reason)
            if part == "watch":
                self._record("watch-failed", backend=self.name, reason=reason)
            else:
                self._record("source-failed", backend=self.name, part=part, reason=reason)
            self._on_change()
            self.first_scan.set()
            await self._clock.sleep(min(RETRY_S * 2 ** (failures - 1), RETRY_MAX_S))

    def _forget(self, part: str) -> None:
        if self._problems.pop(part, None):
            self._on_change()

    # --- Devices --------------------------------------------------------------------------------------------------

    async def _scan_loop(self) -> None:
        hasty = 0  # scans in a row that the backend asked for before a moment had passed
        while True:
            self._scan_now.clear()
            await self.scan()
            ended_s = self._clock.monotonic()
            pause_s = self.tempo.scan_interval_s if self._retry_s is None else self._retry_s
            await first_of(self._scan_now.wait(), self._clock.sleep(min(pause_s, self.tempo.scan_interval_s)))
            rested_s = self._clock.monotonic() - ended_s
            hasty = hasty + 1 if self._scan_now.is_set() and rested_s < HASTE_S else 0
            if hasty > HASTY_SCANS:
                await self._clock.sleep(HASTE_S - rested_s)
                hasty = HASTY_SCANS

    async def scan(self) -> None:
        self._retry_s = None
        try:
            async with asyncio.timeout(self.tempo.scan_deadline_s):
                found = check_findings(await self._calls.call("discover", self.backend.discover))
            devices = tuple(
                replace(device, backend=self.name, numa_nodes=tuple(device.numa_nodes), nodes=tuple(device.nodes))
                for device in found.devices
            )
        except TimeoutError:
            self._scan_failed(f"the scan has not answered in {self.tempo.scan_deadline_s:g} s")
        except Exception as error:  # noqa: BLE001 - a backend may be foreign code
            self._retry_s = RETRY_S if isinstance(error, NotYet) else None
            self._scan_failed(explain(error))
        else:
            self._scan_worked(Findings(devices, found.links, found.problems))
        self.first_scan.set()

    def _scan_failed(self, reason: str) -> None:
        self._drop_remembered(reason)
        if self._problems.get("scan") == reason:
            return
        self._problems["scan"] = reason
        kept = len(self.findings.devices)
        self._record("scan-failed", backend=self.name, reason=reason, kept=f"{kept} devices")
        self._on_change()

    def _drop_remembered(self, reason: str) -> None:
        if self.remembered:
            self.remembered, self.findings = False, Findings()
            self._record("inventory-dropped", backend=self.name, reason=reason)
            self._on_change()

    def _scan_worked(self, found: Findings) -> None:
        recovered = bool(self._problems.pop("scan", ""))
        if recovered:
            self._record("scan-recovered", backend=self.name)
        self.scanned_s = self._clock.now()
        before = {device.id for device in self.findings.devices}
        after = {device.id for device in found.devices}
        told: set[DeviceId] = set() if self.remembered else before  # the journal of each process names its devices
        self.remembered = False
        for device in found.devices:
            if device.id not in told:
                self._record("device-found", backend=self.name, device=device.id, model=device.model)
        for gone in sorted(before - after):
            self._record("device-gone", backend=self.name, device=gone)
        for problem in found.problems:
            if problem not in self.findings.problems:
                self._record("scan-problem", backend=self.name, reason=problem)
        for device in found.devices:
            # A track may come from a source that this one stands in for.
            track = self.tracks.get(device.id, health.Track(probed=self.probed))
            self.tracks[device.id] = track if track.probed == self.probed else replace(track, probed=self.probed)
        # One that left ill is still ill when it comes back; the others need not be remembered.
        for left in [device for device in self.tracks.keys() - after if health.is_well(self.tracks[device])]:
            del self.tracks[left]
            self._clears.pop(left, None)
        self._unknown.clear()
        if recovered or found != self.findings:
            self.findings = found
            self._on_change()
        self._on_scan(self)

    # --- Health ---------------------------------------------------------------------------------------------------

    async def _pulse_loop(self) -> None:
        """Asks the devices how they are, and lets holds and probations run out."""
        await self.first_scan.wait()
        while True:
            await self.pulse()
            await self._pause()

    async def pulse(self) -> None:
        """One round."""
        devices = self.findings.devices
        if self._prober is None:
            for device in devices:
                self._judge(device.id, health.tick)
        else:
            before = dict(self._clears)

            def heed(device: Device, verdict: Cause | Exception | None) -> None:
                # A fault seen before the device was cleared is over; if it is not, the next round sees it again.
                if not isinstance(verdict, Cause) or self._clears.get(device.id) == before.get(device.id):
                    self._heed(device, verdict)

            await self._prober.ask(devices, self.tempo.probe_deadline_s, heed)
            if not devices or any(device.id not in self._unprobed for device in devices):
                self.probed_s = self._clock.now()
            if self._tap is not None:
                self._tap.probed(self, self._clock.monotonic(), self._unprobed)
        if self._resets is not None and (ill := [d for d in devices if self._waits_for_reset(d.id)]):
            await self._read_signs(self._resets, ill)

    def _waits_for_reset(self, device: DeviceId) -> bool:
        return device in self.tracks and any(cause.cured_by for cause in self.tracks[device].causes)

    async def _read_signs(self, backend: ShowsResets, devices: list[Device]) -> None:
        """No data is no cure: the devices stay as they are."""
        try:
            async with asyncio.timeout(self.tempo.probe_deadline_s):
                signs = check_signs(await self._calls.call("the look for resets", backend.signs, devices))
        except Exception as error:  # noqa: BLE001 - a backend may be foreign code
            self._tell_unread(devices[0].id, f"no sign of a reset can be read: {explain(error)}")
            return
        self._unread = ""
        for device in devices:
            read = signs.get(device.id, {})
            for cause in health.cured(self.tracks[device.id], read):
                self._record("cause-cured", device=device.id, cause=str(cause))
            self._judge(device.id, partial(health.seen, signs=read))

    async def _pause(self) -> None:
        """Till the next probes. A backend that hears of faults itself is asked less often while all is well."""
        pause_s, rest_s = self.tempo.probe_interval_s, self.tempo.rest_interval_s
        well = all(
            health.is_well(self.tracks[device.id]) for device in self.findings.devices if device.id in self.tracks
        )
        if rest_s <= pause_s or not self._hears or not well or self._unprobed:
            await self._clock.sleep(pause_s)
            return
        self._ailing.clear()
        await first_of(self._ailing.wait(), self._clock.sleep(rest_s))

    def _heed(self, device: Device, verdict: Cause | Exception | None) -> None:
        if isinstance(verdict, Exception):  # no data is not unhealthy
            self._tell_unprobed(device.id, explain(verdict))
            self._judge(device.id, health.tick)
            return
        self._unprobed.pop(device.id, None)
        self._judge(device.id, health.clean if verdict is None else partial(health.fault, cause=verdict))

    def _tell_unprobed(self, device: DeviceId, reason: str) -> None:
        if self._unprobed.get(device) != reason:
            self._unprobed[device] = reason
            self._record("probe-failed", device=device, reason=reason)

    def _tell_unread(self, device: DeviceId, reason: str) -> None:
        if self._unread != reason:
            self._unread = reason
            self._record("probe-failed", device=device, reason=reason)

    async def _watch(self, watch: Callable[[Source], Coroutine[Any, Any, None]]) -> None:
        await self.first_scan.wait()  # a report before it would be of an unknown device
        await self._calls.call("watch", watch, self)

    async def usage(self) -> Mapping[DeviceId, Usage]:
        """How busy its devices are."""
        if not isinstance(self.backend, MeasuresUse):
            return {}
        found: Mapping[Any, Any] = await self._calls.call("usage", self.backend.usage, self.findings.devices)
        return {device: use for device, use in found.items() if isinstance(use, Usage)}

    # --- Reports --------------------------------------------------------------------------------------------------

    def fault(self, device: DeviceId, cause: Cause) -> None:
        checked = check_cause(cause)
        self._on_fault(checked)
        self._judge(device, partial(health.fault, cause=checked))

    def clear(self, device: DeviceId, code: str | None = None) -> None:
        self._clears[device] = self._clears.get(device, 0) + 1
        self._judge(device, partial(health.cleared, code=code))

    def inherit(self, tracks: Mapping[DeviceId, health.Track]) -> None:
        """Of its own devices that are well as far as it knows."""
        for device in (each.id for each in self.findings.devices if each.id in tracks):
            if health.is_well(self.tracks[device]):
                self._judge(device, partial(health.inherited, known=tracks[device]))

    def rescan(self, *, fresh: bool = False) -> None:
        """`fresh`: with a new session, where the backend keeps one with a driver."""
        if fresh and isinstance(self.backend, Reopens):
            try:
                plain("reopen", self.backend.reopen)()
            except Exception as error:  # noqa: BLE001 - a backend may be foreign code
                self._record("scan-problem", backend=self.name, reason=explain(error))
        self._scan_now.set()

    def _judge(self, device: DeviceId, verdict: Callable[..., health.Track]) -> None:
        """`verdict` takes a track, `now_s` and `tuning`."""
        track = self.tracks.get(device)
        if track is None:
            if device not in self._unknown and len(self._unknown) < UNKNOWN_TOLD:
                self._unknown.add(device)
                self._record("report-for-unknown-device", backend=self.name, device=str(device)[:80])
            return
        # Holds and windows are intervals: setting the wall clock must not stretch them.
        now_s = self._clock.monotonic()
        judged = verdict(track, now_s=now_s, tuning=self.tempo.tuning)
        self.tracks[device] = judged
        if self._tap is not None and not (judged is track and health.is_well(track)):
            self._tap.judged(self, device, verdict, now_s)
        if judged.condition != track.condition:
            cause = judged.condition.cause
            until = {"until": "a reset is seen"} if cause and cause.cured_by and judged.causes else {}
            was, is_now = track.condition.health.value, judged.condition.health.value
            self._record(is_now, device=device, was=was, cause=str(cause or ""), **until)
            self._on_health()
        # After the report: the list that tells of a fault does not wait for the probes that follow it.
        if judged is not track and not health.is_well(judged):
            self._ailing.set()


def _nothing() -> None: ...
