"""What placement needs to know of a resource, worked out once per snapshot and kept as long as the snapshot lives.

Slots are positions here, in device order; so are devices. Knows nothing of strategies.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from fairlead.model.device import Device
from fairlead.model.inventory import Links
from fairlead.model.names import DeviceId, ResourceName, SlotId
from fairlead.model.resource import Resource
from fairlead.policy.align import align
from fairlead.policy.order import device_key

_MEMO_MAX = 512


class Fabric:
    """The links between a resource's devices, by position, and the answers already found. Health does not change it."""

    __slots__ = ("_crowds", "_memo", "_neighbours", "devices", "links", "nodes", "numa")

    def __init__(self, devices: tuple[Device, ...], links: Links) -> None:
        self.devices, self.links = devices, links
        self.numa = [device.numa_nodes for device in devices]
        self.nodes = _number(self.numa)
        self._neighbours: list[dict[int, int]] = [{} for _ in devices]
        number_of = {device.id: number for number, device in enumerate(devices)}
        for (one, other), score in links.items():
            if one in number_of and other in number_of:
                self._neighbours[number_of[one]][number_of[other]] = score
                self._neighbours[number_of[other]][number_of[one]] = score
        self._crowds: list[int] | None = None
        self._memo: dict[tuple[tuple[int, ...], tuple[int, ...], int], tuple[int, ...]] = {}

    def weights(self, devices: Sequence[int]) -> list[list[int]]:
        """The matrix of these devices."""
        none = [0] * len(devices)
        rows = map(self._neighbours.__getitem__, devices)
        return [list(map(row.get, devices, none)) if row else none for row in rows]

    def linked(self, devices: Sequence[int]) -> bool:
        among = set(devices)
        return any(not among.isdisjoint(self._neighbours[device]) for device in devices)

    def align(self, devices: tuple[int, ...], must: tuple[int, ...], size: int) -> tuple[int, ...]:
        """The best of these devices. The same question comes again and again: each pod of a job asks it."""
        key = (devices, must, size)
        answer = self._memo.get(key)
        if answer is None:
            place = {device: number for number, device in enumerate(devices)}
            chosen = align(self.weights(devices), [self.numa[d] for d in devices], sorted(place[d] for d in must), size)
            answer = tuple(devices[number] for number in chosen)
            if len(self._memo) >= _MEMO_MAX:
                self._memo.clear()
            self._memo[key] = answer
        return answer

    @property
    def crowds(self) -> list[int]:
        """Per device, the number of what it shares: its parent, else its NUMA nodes, else its strongest links."""
        if self._crowds is None:
            near = self._join_strongest()
            self._crowds = _number(
                [
                    device.parent or nodes or near[number]
                    for number, (device, nodes) in enumerate(zip(self.devices, self.numa, strict=True))
                ]
            )
        return self._crowds

    def _join_strongest(self) -> list[int]:
        """Joins each device with those that it has its strongest links to."""
        root = list(range(len(self.devices)))

        def find(device: int) -> int:
            while root[device] != device:
                root[device] = root[root[device]]
                device = root[device]
            return device

        for device, around in enumerate(self._neighbours):
            best = max(around.values(), default=0)
            for other, score in around.items():
                if score == best:
                    root[find(other)] = find(device)
        return [find(device) for device in range(len(root))]


class Table:
    """Slots by position. A device's slots lie together, in the order of the list."""

    __slots__ = ("_position", "fabric", "ids", "slots", "starts", "totals", "whole")

    def __init__(self, resource: Resource, known: Fabric | None) -> None:
        devices = _devices(resource)
        links = resource.inventory.links
        reuse = known is not None and known.links is links and known.devices == devices
        self.fabric = known if known is not None and reuse else Fabric(devices, links)
        groups = [resource.slots_of[device.id] for device in devices]
        self.ids: list[SlotId] = [slot.id for group in groups for slot in group]
        self.totals = [len(group) for group in groups]
        self.starts = [0, *accumulate(self.totals)]
        self.whole = all(sum(slot.retired_s is None for slot in group) <= 1 for group in groups)
        # Nearly always the order of the list itself, which the resource knows already.
        same = resource.slots == tuple([slot for group in groups for slot in group])
        self._position: Mapping[SlotId, int] = resource.order if same else {s: n for n, s in enumerate(self.ids)}
        self.slots = resource.slots

    def serves(self, resource: Resource) -> bool:
        """Whether another snapshot has the same table: only health has changed."""
        if self.slots != resource.slots or self.fabric.links is not resource.inventory.links:
            return False
        return self.fabric.devices == _devices(resource)

    def mark(self, slots: Iterable[SlotId]) -> bytearray:
        """One byte per position, set for the given slots. KeyError for a slot that is not in the list."""
        marks = bytearray(len(self.ids))
        for number in map(self._position.__getitem__, slots):
            marks[number] = 1
        return marks

    def unknown(self, slots: Iterable[SlotId]) -> set[SlotId]:
        return set(slots) - self._position.keys()

    def count(self, marks: bytearray) -> list[int]:
        """Per device, how many of its slots are marked."""
        if len(self.totals) == len(self.ids):
            return list(marks)
        return [marks.count(1, start, end) for start, end in zip(self.starts, self.starts[1:], strict=False)]

    def device(self, number: int) -> DeviceId:
        return self.fabric.devices[number].id


def _devices(resource: Resource) -> tuple[Device, ...]:
    return tuple(sorted((resource.inventory.by_id.get(d) or Device(d) for d in resource.slots_of), key=device_key))


_tables: dict[int, tuple[weakref.ref[Resource], Table]] = {}
_latest: dict[ResourceName, Table] = {}


def table_of(resource: Resource) -> Table:
    """The table of this very object. A snapshot cannot be hashed by value, and need not be: it never changes."""
    key = id(resource)
    entry = _tables.get(key)
    if entry is not None and entry[0]() is resource:
        return entry[1]
    table = _latest.get(resource.name)
    if table is None or not table.serves(resource):
        table = Table(resource, table.fabric if table is not None else None)
    _latest[resource.name] = table
    _tables[key] = (weakref.ref(resource, lambda _: _tables.pop(key, None)), table)
    return table


def _number(keys: Sequence[object]) -> list[int]:
    """Replaces each key by the order in which it was first seen."""
    numbers: dict[object, int] = {}
    return [numbers.setdefault(key, len(numbers)) for key in keys]
