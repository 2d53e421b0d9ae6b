"""Files of the host as devices: discovery, probes, events and edits. All touching of files is the owner thread's."""

from __future__ import annotations

import asyncio
from contextlib import closing, suppress

from fairlead.backends.notices import Notices
from fairlead.backends.owner import Owner
from fairlead.backends.paths.scan import Found, Scanner
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
    one_at_a_time = True

    def __init__(self, scanner: Scanner, clock: Clock, *, poll_s: float) -> None:
        self._scanner = scanner
        self._clock = clock
        self._poll_s = poll_s
        self._owner = Owner("paths", clock)
        # Never shrinks: a device that has left may still be in a container, and a grant may still name it.
        self._known: dict[DeviceId, Found] = {}
        self._seen: tuple[Found, ...] = ()
        self._scanned = asyncio.Event()

    async def discover(self) -> Findings:
        self._seen = await self._owner.call(self._scanner.scan, what="the scan of paths")
        self._known |= {found.device.id: found for found in self._seen}
        self._scanned.set()
        return Findings(tuple(found.device for found in self._seen))

    async def probe(self, device: Device) -> Cause | None:
        found = self._known.get(device.id)
        if found is None:
            return None
        return await self._owner.call(self._scanner.check, found, what=f"the check of {device.id}")

    async def watch(self, sink: Sink) -> None:
        """Tells of changes within moments, by events; and by a slow poll where events do not reach."""
        stirred = asyncio.Event()
        with closing(Notices(stirred.set)) as notices:
            await self._follow(sink, notices, stirred)

    def edits(self, grant: Grant) -> Edits:
        known = [self._known[device.id] for device in grant.devices if device.id in self._known]
        return Edits(
            nodes=tuple(dict.fromkeys(node for device in grant.devices for node in device.nodes)),
            mounts=tuple(dict.fromkeys(mount for found in known for mount in found.mounts)),
        )

    async def close(self) -> None:
        self._owner.close()

    async def _follow(self, sink: Sink, notices: Notices, stirred: asyncio.Event) -> None:
        told: dict[DeviceId, Cause] = {}
        # Before the first scan there is nothing to compare with, and nobody knows the devices.
        await self._scanned.wait()
        while True:
            # Cleared and armed before looking: what changes in between stirs again.
            stirred.clear()
            with suppress(BackendError):  # the engine's own scans and probes report it
                directories = await self._owner.call(self._scanner.directories, what="the look at directories")
                notices.arm(directories)
                self._compare(await self._owner.call(self._scanner.scan, what="the scan of paths"), sink, told)
            await self._rest(stirred)

    def _compare(self, fresh: tuple[Found, ...], sink: Sink, told: dict[DeviceId, Cause]) -> None:
        if fresh != self._seen:
            sink.rescan()
        faults = {found.device.id: found.fault for found in fresh if found.fault and found.device.id in self._known}
        for device in [device for device in told if device not in faults]:
            sink.clear(device, told.pop(device).code)
        for device, cause in faults.items():
            if told.get(device) != cause:
                told[device] = cause
                sink.fault(device, cause)

    async def _rest(self, stirred: asyncio.Event) -> None:
        waits = {asyncio.ensure_future(self._clock.sleep(self._poll_s)), asyncio.ensure_future(stirred.wait())}
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        if stirred.is_set():
            await self._clock.sleep(SETTLE_S)
