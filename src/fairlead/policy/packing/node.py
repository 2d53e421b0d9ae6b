"""NodeRoom: the devices of one node for one resource, what is booked of each, and what still fits.

Free units may be negative: a node that shrank under its pods has less than they hold. Nothing wraps, and nothing fits
there until it is positive again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from enum import StrEnum

from msgspec import Struct

DEVICES_MAX = 256


class Preference(StrEnum):
    """Among the devices that fit."""

    TIGHTEST = "binpack"  # the one with the least free units
    EMPTIEST = "spread"  # the one with the most


class DeviceRoom(Struct, frozen=True):
    index: str  # as annotations name it
    id: str = ""
    units: int = 0
    usable: bool = True  # healthy, and offered
    numa: int | None = None


class Demand(Struct, frozen=True):
    """What a pod asks for: so many devices, and so many units of each. The same devices serve all its containers."""

    units: int
    devices: int = 1
    whole: bool = False  # only devices that no other pod has; `units` is what is booked of each, 0: all of it

    @property
    def total(self) -> int:
        return self.units * self.devices


class Share(Struct, frozen=True):
    """What a pod has of one device."""

    device: int  # its position in the node
    units: int


class NodeRoom(Struct, frozen=True):
    """A value: every change makes another one. A node has few devices."""

    devices: tuple[DeviceRoom, ...] = ()
    used: tuple[int, ...] = ()  # units, by device
    pods: tuple[int, ...] = ()  # how many pods have a part of it, by device
    pods_max: int = 0  # of one device; 0: any number
    # What fits is read from these alone: positions and free units of the devices that may take a pod.
    ascending: tuple[int, ...] = ()  # free units, the least first
    untouched: tuple[int, ...] = ()  # units of devices without a pod, the least first

    @property
    def free(self) -> tuple[int, ...]:
        return tuple(device.units - used for device, used in zip(self.devices, self.used, strict=True))

    @property
    def is_empty(self) -> bool:
        return not any(self.pods)

    def fits(self, demand: Demand) -> bool:
        if demand.whole:
            return self._whole_from(demand) is not None
        count = len(self.ascending)
        return demand.devices <= count and self.ascending[count - demand.devices] >= demand.units

    def left_over(self, demand: Demand) -> int | None:
        """Units that stay free on the devices that `choose` would take by `TIGHTEST`; None: it does not fit."""
        row = self.untouched if demand.whole else self.ascending
        start = self._whole_from(demand) if demand.whole else bisect_left(row, demand.units)
        if start is None or len(row) - start < demand.devices:
            return None
        taken = row[start : start + demand.devices]
        return 0 if demand.whole and not demand.units else sum(taken) - demand.total

    def choose(self, demand: Demand, preference: Preference = Preference.TIGHTEST) -> tuple[int, ...]:
        """Positions of the devices, ascending; empty if it does not fit. Of equal ones the first."""
        free = self.free
        fitting = [place for place in self._open() if free[place] >= max(demand.units, 1)]
        if demand.whole:
            fitting = [place for place in fitting if not self.pods[place] and not self.used[place]]
        sign = 1 if preference is Preference.TIGHTEST else -1
        chosen = sorted(fitting, key=lambda place: (sign * free[place], place))[: demand.devices]
        return tuple(sorted(chosen)) if len(chosen) == demand.devices else ()

    def shares(self, demand: Demand, places: Iterable[int]) -> tuple[Share, ...]:
        """What the pod has of them."""
        return tuple(Share(place, demand.units or self.devices[place].units) for place in places)

    def devices_of(self, shares: Iterable[Share]) -> list[DeviceRoom]:
        return [self.devices[share.device] for share in shares if 0 <= share.device < len(self.devices)]

    @property
    def largest(self) -> int:
        """The most units that one device still gives."""
        return max(self.ascending, default=0)

    def book(self, shares: Sequence[Share], sign: int = 1) -> NodeRoom:
        """With them booked; with -1, released. Shares of devices that the node does not have are left out."""
        used, pods = list(self.used), list(self.pods)
        for share in shares:
            if 0 <= share.device < len(used):
                used[share.device] += sign * share.units
                pods[share.device] += sign
        return _made(self.devices, tuple(used), tuple(pods), self.pods_max)

    def _whole_from(self, demand: Demand) -> int | None:
        start = bisect_left(self.untouched, max(demand.units, 1))
        return start if len(self.untouched) - start >= demand.devices else None

    def _open(self) -> list[int]:
        return _open(self.devices, self.pods, self.pods_max)


def make_room(devices: Sequence[DeviceRoom], booked: Iterable[Sequence[Share]] = (), pods_max: int = 0) -> NodeRoom:
    """A node with all of its bookings."""
    kept = tuple(devices[:DEVICES_MAX])
    used, pods = [0] * len(kept), [0] * len(kept)
    for shares in booked:
        for share in shares:
            if 0 <= share.device < len(kept):
                used[share.device] += share.units
                pods[share.device] += 1
    return _made(kept, tuple(used), tuple(pods), pods_max)


def _made(devices: tuple[DeviceRoom, ...], used: tuple[int, ...], pods: tuple[int, ...], pods_max: int) -> NodeRoom:
    free, untouched = [], []
    for place in _open(devices, pods, pods_max):
        units, taken = devices[place].units, used[place]
        free.append(units - taken)
        if not taken and not pods[place]:
            untouched.append(units)
    free.sort()
    untouched.sort()
    return NodeRoom(devices, used, pods, pods_max, tuple(free), tuple(untouched))


def _open(devices: Sequence[DeviceRoom], pods: Sequence[int], pods_max: int) -> list[int]:
    """Devices that may take a pod, if it is small enough."""
    return [place for place, device in enumerate(devices) if device.usable and (not pods_max or pods[place] < pods_max)]
