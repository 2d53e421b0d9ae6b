"""Files of the host as devices: discovery, probes, events and edits. All touching of files is the owner thread's."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress

from fairlead.backends.paths.scan import FoundDevice, Scan, Scanner
from fairlead.kit.notices import Notices
from fairlead.kit.owner import Owner
from fairlead.kit.waiting import sleep_unless
from fairlead.model.device import Device
from fairlead.model.edits import Edits, Grant
from fairlead.model.errors import BackendError
from fairlead.model.health import Cause
from fairlead.model.inventory import Findings
from fairlead.model.names import DeviceId
from fairlead.model.ports import Clock, Sink

SETTLE_S = 0.1  # udev makes a node, its links and its mode one after the other


class PathsBackend:
    name = "paths"

    def __init__(self, scanner: Scanner, clock: Clock, *, poll_s: float) -> None:
        self._scanner = scanner
        self._clock = clock
        self._poll_s = poll_s
        self._owner = Owner("paths", clock)
        # Never shrinks: a device that has left may still be in a container, and a grant may still name it.
        self._known: dict[DeviceId, FoundDevice] = {}
        self._seen = Scan()
        self._scanned = asyncio.Event()

    async def discover(self) -> Findings:
        self._seen = await self._owner.call(self._scanner.scan, what="the scan of paths")
        self._known |= {found.device.id: found for found in self._seen.devices}
        self._scanned.set()
        return Findings(tuple(found.device for found in self._seen.devices), problems=self._seen.problems)

    async def probe_all(self, devices: Sequence[Device]) -> Mapping[DeviceId, Cause | None]:
        known = {device.id: self._known[device.id] for device in devices if device.id in self._known}
        verdicts = await self._owner.call(self._scanner.check, known, what="the check of paths")
        return {device.id: verdicts.get(device.id) for device in devices}

    async def watch(self, sink: Sink) -> None:
        """Reports changes within moments, by events; and by a slow poll where events do not reach."""
        changed = asyncio.Event()
        with closing(Notices(changed.set)) as notices:
            await self._follow(sink, notices, changed)

    def edits(self, grant: Grant) -> Edits:
        known = [self._known[device.id] for device in grant.devices if device.id in self._known]
        return Edits(
            nodes=tuple(dict.fromkeys(node for device in grant.devices for node in device.nodes)),
            mounts=tuple(dict.fromkeys(mount for found in known for mount in found.mounts)),
        )

    async def close(self) -> None:
        self._owner.close()

    async def _follow(self, sink: Sink, notices: Notices, changed: asyncio.Event) -> None:
        reported: dict[DeviceId, Cause] = {}
        armed: set[str] = set()
        followed: Scan | None = None  # what was there when the directories were armed; None: there was an event since
        # Before the first scan there is nothing to compare with, and the engine knows no device.
        await self._scanned.wait()
        while True:
            changed.clear()
            with suppress(BackendError):  # the engine's own scans and probes report it
                fresh = await self._owner.call(self._scanner.scan, what="the scan of paths")
                if fresh != followed:
                    before = armed
                    armed = await self._owner.call(self._scanner.directories, what="the look at directories")
                    notices.arm(armed)
                    if before != armed:
                        continue  # what changed in a directory before it was armed is seen by another scan
                    followed = fresh
                self._compare(fresh, sink, reported)
            if await sleep_unless(changed, self._clock, self._poll_s):
                followed = None
                await self._clock.sleep(SETTLE_S)

    def _compare(self, fresh: Scan, sink: Sink, reported: dict[DeviceId, Cause]) -> None:
        if fresh != self._seen:
            sink.rescan()
        known = (found for found in fresh.devices if found.device.id in self._known)
        faults = {found.device.id: found.fault for found in known if found.fault}
        for device in [device for device in reported if device not in faults]:
            sink.clear(device, reported.pop(device).code)
        for device, cause in faults.items():
            if reported.get(device) != cause:
                reported[device] = cause
                sink.fault(device, cause)
