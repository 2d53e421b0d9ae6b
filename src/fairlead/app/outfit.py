"""What a grant becomes: each backend speaks for its own devices, the rule adds its part, and the whole must agree."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fairlead.inject.fill import fill
from fairlead.inject.merge import merge
from fairlead.kubelet.service import Outfit
from fairlead.model.device import Device
from fairlead.model.edits import Edits, Grant
from fairlead.model.ports import Backend, EditsGrants, Prepares
from fairlead.model.resource import Resource

Backends = Callable[[], Mapping[str, Backend]]


def make_outfit(backends: Backends) -> Outfit:
    def edits(resource: Resource, grant: Grant) -> Edits:
        known = backends()
        parts = [_edits(known.get(name), part) for name, part in _split(resource, grant)]
        return merge([*parts, fill(resource.extra, grant)])

    async def prepare(resource: Resource, grant: Grant) -> None:
        known = backends()
        for name, part in _split(resource, grant):
            backend: object = known.get(name)
            if isinstance(backend, Prepares):
                await backend.prepare(part)

    return Outfit(edits, prepare)


def _edits(backend: object, grant: Grant) -> Edits:
    if isinstance(backend, EditsGrants):
        return backend.edits(grant)
    return Edits(nodes=tuple(node for device in grant.devices for node in device.nodes))


def _split(resource: Resource, grant: Grant) -> list[tuple[str, Grant]]:
    """The grant, per backend. Nearly always one."""
    groups: dict[str, list[Device]] = {}
    for device in grant.devices:
        groups.setdefault(device.backend, []).append(device)
    if len(groups) <= 1:
        return [(name, grant) for name in groups]
    parts = []
    for name, devices in groups.items():
        ids = {device.id for device in devices}
        slots = tuple(slot for slot in grant.slots if resource.by_id[slot].device in ids)
        parts.append((name, Grant(grant.resource, slots, tuple(devices))))
    return parts
