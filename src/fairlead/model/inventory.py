"""Inventory: an immutable snapshot of devices and the links between them. Conditions: their health, beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

from msgspec import Struct

from fairlead.model.device import Device
from fairlead.model.health import HEALTHY, Condition
from fairlead.model.names import DeviceId


class Links:
    """How well each pair of devices is joined: a symmetric score, 0 where nothing is known.

    Scores are relative; only their order and sums matter to placement. A link may be reported from one side only.
    """

    __slots__ = ("_scores",)

    def __init__(self, scores: Mapping[tuple[DeviceId, DeviceId], int] | None = None) -> None:
        both: dict[tuple[DeviceId, DeviceId], int] = {}
        for (one, other), score in (scores or {}).items():
            if one != other and score:
                best = max(score, both.get((one, other), 0))
                both[one, other] = both[other, one] = best
        self._scores = both

    def between(self, one: DeviceId, other: DeviceId) -> int:
        return self._scores.get((one, other), 0)

    def items(self) -> Iterable[tuple[tuple[DeviceId, DeviceId], int]]:
        """Each joined pair once, smaller id first."""
        return ((pair, score) for pair, score in self._scores.items() if pair[0] < pair[1])

    def __bool__(self) -> bool:
        return bool(self._scores)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Links) and self._scores == other._scores

    def __hash__(self) -> int:
        return hash(frozenset(self._scores.items()))

    def __or__(self, other: Links) -> Links:
        return Links({**self._scores, **other._scores}) if self and other else self or other

    def __repr__(self) -> str:
        return f"Links({dict(self.items())!r})"


NO_LINKS = Links()


class Findings(Struct, frozen=True):
    """What one scan of a backend found. Says nothing of health: that comes by reports and probes."""

    devices: tuple[Device, ...] = ()
    links: Links = NO_LINKS
    problems: tuple[str, ...] = ()  # what people should know of this scan: a device that could not be read


class Inventory(Struct, frozen=True, dict=True):
    devices: tuple[Device, ...] = ()
    links: Links = NO_LINKS

    @cached_property
    def by_id(self) -> Mapping[DeviceId, Device]:
        return {device.id: device for device in self.devices}


EMPTY = Inventory()


class Conditions(Struct, frozen=True, dict=True):
    """The health of all devices at one moment. A fault changes this value, and neither inventory nor resources."""

    by_device: Mapping[DeviceId, Condition] = {}

    @cached_property
    def unhealthy(self) -> frozenset[DeviceId]:
        """Devices that must not start a container."""
        return frozenset(device for device, condition in self.by_device.items() if not condition.health.usable)

    def of(self, device: DeviceId) -> Condition:
        """No data is not unhealthy."""
        return self.by_device.get(device, HEALTHY)


ALL_HEALTHY = Conditions()
