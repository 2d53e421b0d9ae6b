"""Slots granted a moment ago: not to be preferred again at once, even where the kubelet counts them as free.

While an Allocate is in flight, the kubelet keeps its ids in a set that every List of pod-resources may rebuild without
them (devicemanager: UpdateAllocatedDevices, when a pod has ended). It then offers ids that a container has just been
given to the next one. No plugin can prevent that; a preference for other slots avoids it while there are others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

from fairlead.model.names import ResourceName, SlotId
from fairlead.model.ports import Clock

# Pods of a burst come within seconds. Longer, and devices of short pods would be passed over for no reason.
AVOIDED_S = 10.0
MAX_SLOTS = 100_000  # of one resource; more than a device list can hold


class RecentGrants:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._granted: dict[ResourceName, dict[SlotId, float]] = {}

    def add(self, resource: ResourceName, slots: Iterable[SlotId]) -> None:
        now_s = self._clock.monotonic()
        granted = self._granted.setdefault(resource, {})
        for slot in slots:
            granted.pop(slot, None)  # the newest are last
            granted[slot] = now_s
        while len(granted) > MAX_SLOTS:
            del granted[next(iter(granted))]

    def copy(self) -> dict[ResourceName, dict[SlotId, float]]:
        return {name: dict(slots) for name, slots in self._granted.items() if slots}

    def restore(self, granted: Mapping[ResourceName, Mapping[SlotId, float]]) -> None:
        """As they were in another process."""
        self._granted = {name: dict(slots) for name, slots in granted.items()}

    def of(self, resource: ResourceName) -> AbstractSet[SlotId]:
        granted = self._granted.get(resource)
        if not granted:
            return frozenset()
        oldest_s = self._clock.monotonic() - AVOIDED_S
        while granted and granted[slot := next(iter(granted))] <= oldest_s:
            del granted[slot]
        return granted.keys()
