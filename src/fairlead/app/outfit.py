"""What a grant becomes: each backend speaks for its own devices, the rule adds its part, and the whole must agree."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fairlead.app.source import Source
from fairlead.inject.fill import fill
from fairlead.inject.merge import merge
from fairlead.kubelet.service import Assigns, Outfit
from fairlead.model.device import Device
from fairlead.model.edits import NO_EDITS, Edits, Grant
from fairlead.model.resource import Resource


def make_outfit(
    sources: Callable[[], Mapping[str, Source]],
    granted: Callable[[Resource, Grant], None] = lambda *_: None,
    assigns: Callable[[], Assigns | None] = lambda: None,
    node_env: Callable[[Resource], Mapping[str, str]] = lambda _: {},
) -> Outfit:
    def edits(resource: Resource, grant: Grant) -> Edits:
        known = sources()
        parts = []
        for name, part in _split(resource, grant):
            source = known.get(name)
            parts.append(source.edits(part) if source is not None else NO_EDITS)
        if resource.assign is not None:
            parts.append(Edits(env=node_env(resource)))
        parts.append(fill(resource.extra, grant))
        return merge(parts)

    async def prepare(resource: Resource, grant: Grant) -> None:
        known = sources()
        for name, part in _split(resource, grant):
            source = known.get(name)
            if source is not None and source.prepare is not None:
                await source.prepare(part)

    async def wait_for(resource: Resource) -> str:
        known = sources()
        by_id = resource.inventory.by_id
        for name in sorted({by_id[device].backend for device in resource.slots_of if device in by_id}):
            source = known.get(name)
            if source is not None and source.wait_for is not None and (reason := await source.wait_for()):
                return reason
        return ""

    return Outfit(edits, prepare, granted=granted, wait_for=wait_for, assigns=assigns)


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
        parts.append((name, Grant(grant.resource, slots, tuple(devices), grant.unit_bytes, counts, grant.words)))
    return parts
