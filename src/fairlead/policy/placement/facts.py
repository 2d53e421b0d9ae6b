"""What placement needs to know of a resource, worked out once per snapshot and kept as long as the snapshot lives.

Slots are positions here, in device order; so are devices. Knows nothing of strategies.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import TypeAlias

from fairlead.model.device import Device
from fairlead.model.inventory import Links
from fairlead.model.names import DeviceId, SlotId
from fairlead.model.resource import Resource
from fairlead.policy.order import device_key
from fairlead.policy.placement.align import EXACT_MAX, align

_MEMO_MAX = 512

_Question: TypeAlias = tuple[tuple[int, ...], tuple[int, ...], int, bool]
_Answer: TypeAlias = tuple[tuple[int, ...], bool]  # the chosen devices; whether no better choice exists


class DeviceTopology:
    """The links between a resource's devices, by position, and the answers already found. Health does not change it."""

    __slots__ = ("_costs", "_localities", "_memo", "_neighbours", "devices", "links", "nodes", "numa")

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
        self._localities: list[int] | None = None
        self._costs: list[list[int]] | None = None
        self._memo: dict[_Question, tuple[tuple[int, ...], bool]] = {}

    def weights(self, devices: Sequence[int]) -> list[list[int]]:
        """The matrix of these devices."""
        none = [0] * len(devices)
        rows = map(self._neighbours.__getitem__, devices)
        return [list(map(row.get, devices, none)) if row else none for row in rows]

    def linked(self, devices: Sequence[int]) -> bool:
        among = set(devices)
        return any(not among.isdisjoint(self._neighbours[device]) for device in devices)

    def choose(self, devices: tuple[int, ...], must: tuple[int, ...], size: int, *, close: bool) -> _Answer:
        """The best of these devices. The same question comes again and again: each pod of a job asks it."""
        key = (devices, must, size, close)
        answer = self._memo.get(key)
        if answer is None:
            answer = self._closest(devices, must, size) if close else self._align(devices, must, size)
            if len(self._memo) >= _MEMO_MAX:
                self._memo.clear()
            self._memo[key] = answer
        return answer

    def _align(self, devices: tuple[int, ...], must: tuple[int, ...], size: int) -> _Answer:
        place = {device: number for number, device in enumerate(devices)}
        chosen = align(self.weights(devices), [self.numa[d] for d in devices], sorted(place[d] for d in must), size)
        return tuple(devices[number] for number in chosen), len(devices) <= EXACT_MAX

    def _closest(self, devices: tuple[int, ...], must: tuple[int, ...], size: int) -> _Answer:
        from fairlead.policy.placement.closest import choose_closest  # noqa: PLC0415 - few rules need it

        parents = [self.devices[d].parent or self.devices[d].id for d in devices]
        return choose_closest(self._costs_of_pairs(), parents, devices, must, size)

    def _costs_of_pairs(self) -> list[list[int]]:
        """What each pair costs in one grant: the more, the farther apart."""
        if self._costs is None:
            from fairlead.policy.placement.closest import cost_rows  # noqa: PLC0415 - as above

            self._costs = cost_rows(self.weights(range(len(self.devices))))
        return self._costs

    @property
    def localities(self) -> list[int]:
        """Per device, the number of what it shares: its parent, else its NUMA nodes, else its strongest links."""
        if self._localities is None:
            near = self._join_strongest()
            self._localities = _number(
                [
                    device.parent or nodes or near[number]
                    for number, (device, nodes) in enumerate(zip(self.devices, self.numa, strict=True))
                ]
            )
        return self._localities

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


class SlotTable:
    """Slots by position. A device's slots lie together, in the order of the list."""

    __slots__ = ("_position", "ids", "slots", "starts", "topology", "totals", "whole")

    def __init__(self, resource: Resource) -> None:
        by_id = resource.inventory.by_id
        devices = tuple(sorted((by_id.get(device) or Device(device) for device in resource.slots_of), key=device_key))
        self.topology = DeviceTopology(devices, resource.inventory.links)
        groups = [resource.slots_of[device.id] for device in devices]
        self.ids: list[SlotId] = [slot.id for group in groups for slot in group]
        self.totals = [len(group) for group in groups]
        self.starts = [0, *accumulate(self.totals)]
        self.whole = all(sum(slot.retired_s is None for slot in group) <= 1 for group in groups)
        # Nearly always the order of the list itself, which the resource knows already.
        same = resource.slots == tuple([slot for group in groups for slot in group])
        self._position: Mapping[SlotId, int] = resource.order if same else {s: n for n, s in enumerate(self.ids)}
        self.slots = resource.slots

    def mask_of(self, slots: Iterable[SlotId]) -> bytearray:
        """One byte per position, set for the given slots. KeyError for a slot that is not in the list."""
        mask = bytearray(len(self.ids))
        for number in map(self._position.__getitem__, slots):
            mask[number] = 1
        return mask

    def unknown(self, slots: Iterable[SlotId]) -> set[SlotId]:
        return set(slots) - self._position.keys()

    def count(self, mask: bytearray) -> list[int]:
        """Per device, how many of its slots are marked."""
        if len(self.totals) == len(self.ids):
            return list(mask)
        return [mask.count(1, start, end) for start, end in zip(self.starts, self.starts[1:], strict=False)]

    def device(self, number: int) -> DeviceId:
        return self.topology.devices[number].id


_tables: dict[int, tuple[weakref.ref[Resource], SlotTable]] = {}


def slot_table_of(resource: Resource) -> SlotTable:
    """The table of this very object, as long as it lives. A fault changes no resource, and so no table."""
    key = id(resource)
    entry = _tables.get(key)
    if entry is not None and entry[0]() is resource:
        return entry[1]
    table = SlotTable(resource)
    _tables[key] = (weakref.ref(resource, lambda _: _tables.pop(key, None)), table)
    return table


def _number(keys: Sequence[object]) -> list[int]:
    """Replaces each key by the order in which it was first seen."""
    numbers: dict[object, int] = {}
    return [numbers.setdefault(key, len(numbers)) for key in keys]
