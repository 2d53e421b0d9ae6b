"""What a grant becomes: each backend speaks for its own devices, the rule adds its part, and the whole must agree."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

from msgspec import Struct

from fairlead.engine.allocator import Allocator, Chosen, Unconfirmed
from fairlead.engine.recent import RecentGrants
from fairlead.engine.source import Source
from fairlead.engine.storms import Storms
from fairlead.engine.tap import Tap
from fairlead.inject.merge import merge
from fairlead.inject.templates import render
from fairlead.model.device import Device
from fairlead.model.edits import Edits, Grant
from fairlead.model.errors import EditsFailed, FairleadError, UnfitSlots
from fairlead.model.names import DeviceId, ResourceName
from fairlead.model.ports import Record
from fairlead.model.resource import Resource, Slot

CONFIRM_S = 10.0  # the kubelet's main loop waits with us; without these devices it would have refused the pod


class _Unconfirmed(Struct, frozen=True):
    sources: Sequence[Source]

    async def wait(self, resource: Resource, ids: Sequence[str]) -> None:
        scans = [source.first_scan.wait() for source in self.sources]
        try:
            async with asyncio.timeout(CONFIRM_S):
                await asyncio.gather(*scans)
        except TimeoutError:
            silent = ", ".join(source.name for source in self.sources)
            reason = f"no scan of the backend {silent} has confirmed it since the daemon started"
            raise UnfitSlots(resource.name, [(slot, reason) for slot in ids]) from None
        found = {device.id: device for source in self.sources for device in source.findings.devices}
        # What a container gets is made of the record of its device, and that came from a file.
        unfit = [
            (slot, f"the first scan {'found its device changed' if device in found else 'did not find its device'}")
            for slot, device in self._devices(resource, ids)
            if device not in found or found[device] != resource.inventory.by_id.get(device)
        ]
        if unfit:
            raise UnfitSlots(resource.name, unfit)

    def _devices(self, resource: Resource, ids: Sequence[str]) -> Iterator[tuple[str, DeviceId]]:
        """Those that these sources must confirm."""
        names = {source.name for source in self.sources}
        known = resource.inventory.by_id
        slots: Mapping[str, Slot] = resource.by_id  # type: ignore[assignment]  # asked by what the kubelet sent
        for slot in ids:
            if slot in slots and ((device := slots[slot].device) not in known or known[device].backend in names):
                yield slot, device


def make_allocator(
    sources: Callable[[], Mapping[str, Source]],
    record: Record,
    granted: Callable[[Resource, Grant], None] = lambda *_: None,
    chosen: Callable[[], Chosen | None] = lambda: None,
    node_env: Callable[[Resource], Mapping[str, str]] = lambda _: {},
    recent: RecentGrants | None = None,
    clean: Callable[[Resource, Grant], Awaitable[None]] | None = None,
    tap: Tap | None = None,
    storms: Storms | None = None,
) -> Allocator:
    preparing: dict[ResourceName, bool] = {}  # by the sources that the devices of a resource last had

    def edits(resource: Resource, grant: Grant) -> Edits:
        known = sources()
        parts = []
        for name, part in _split(resource, grant):
            if name not in known:  # a container without its devices is worse than none
                raise EditsFailed(name, "it is not configured any more")
            parts.append(known[name].edits(part) if tap is None else _told(tap, known[name], part))
        if resource.terms.assign is not None:
            parts.append(Edits(env=node_env(resource)))
        parts.append(render(resource.terms.extra, grant))
        return merge(parts)

    async def prepare(resource: Resource, grant: Grant) -> None:
        if clean is not None:
            await clean(resource, grant)
        known = sources()
        for name, part in _split(resource, grant):
            source = known.get(name)
            if source is not None and source.prepare is not None:
                await source.prepare(part)

    def sources_of(resource: Resource) -> list[Source]:
        known, by_id = sources(), resource.inventory.by_id
        names = sorted({by_id[device].backend for device in resource.slots_of if device in by_id})
        return [known[name] for name in names if name in known]

    async def wait_for(resource: Resource) -> str:
        for source in sources_of(resource):
            if source.wait_for is not None and (reason := await source.wait_for()):
                return reason
        return ""

    def prepares(resource: Resource) -> bool:
        # Without a device, as before: devices that are gone for a moment are no reason to register anew.
        if found := sources_of(resource):
            cleans = resource.terms.cleanup is not None
            preparing[resource.name] = cleans or any(source.prepare is not None for source in found)
        return preparing.get(resource.name, False)

    def unconfirmed(resource: Resource) -> Unconfirmed | None:
        if not any(source.remembered for source in sources().values()):  # nearly always
            return None
        waiting = [source for source in sources_of(resource) if source.remembered]
        return _Unconfirmed(waiting) if waiting else None

    return Allocator(
        edits,
        prepare,
        record,
        granted=granted,
        wait_for=wait_for,
        prepares=prepares,
        chosen=chosen,
        recent=recent,
        unconfirmed=unconfirmed,
        storms=storms,
    )


def _told(tap: Tap, source: Source, grant: Grant) -> Edits:
    try:
        made = source.edits(grant)
    except FairleadError as error:
        tap.edited(source.name, grant, error)
        raise
    tap.edited(source.name, grant, made)
    return made


def _split(resource: Resource, grant: Grant) -> list[tuple[str, Grant]]:
    """The grant, per backend. Nearly always one."""
    if len(grant.devices) == 1:
        return [(grant.devices[0].backend, grant)]
    groups: dict[str, list[Device]] = {}
    for device in grant.devices:
        groups.setdefault(device.backend, []).append(device)
    if len(groups) <= 1:
        return [(name, grant) for name in groups]
    parts = []
    units = dict(zip((device.id for device in grant.devices), grant.units, strict=False))
    for name, devices in groups.items():
        ids = {device.id for device in devices}
        slots = tuple(slot for slot in grant.slots if resource.by_id[slot].device in ids)
        counts = tuple(units[device.id] for device in devices) if units else ()
        parts.append((name, Grant(grant.resource, slots, tuple(devices), grant.unit_bytes, counts, grant.variables)))
    return parts
