"""What stands between the daemon and those whom the engine asks, where a recorder listens: each notes the answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from msgspec import UNSET, UnsetType

from fairlead.engine.allocator import Chosen
from fairlead.fronts.holders import Holders
from fairlead.model.edits import Edits, Grant
from fairlead.model.errors import AskRefused
from fairlead.model.names import ResourceName, SlotId
from fairlead.model.ports import Clock
from fairlead.model.resource import Resource, Slot
from fairlead.observe import recording as rec

_NO_ENV: Mapping[str, str] = {}
Given = tuple[str, Grant, Edits | Exception]  # a backend, its part of a grant, and what it gave


class Asking:
    """A call that is under way, and what it was given."""

    __slots__ = ("choices", "edits", "later", "node_env", "now_s", "number", "resolved", "resource")

    def __init__(self, number: int, resource: ResourceName, now_s: float) -> None:
        self.number, self.resource, self.now_s = number, resource, now_s
        self.later = self.resolved = False  # it waits for something; that has come
        self.edits: list[Given] = []
        self.choices: tuple[rec.Choice, ...] = ()
        self.node_env: Mapping[str, str] = _NO_ENV


ASKING: ContextVar[Asking | None] = ContextVar("asking", default=None)


class Stamp(Clock):
    """The time at which the call came: what is worked out of it is worked out of the same figure again."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._now_s = clock, clock.monotonic()

    def set(self) -> float:
        self._now_s = self._clock.monotonic()
        return self._now_s

    def use(self, now_s: float) -> None:
        """The time of a call that came before others, and is answered after them."""
        self._now_s = now_s

    def monotonic(self) -> float:
        return self._now_s

    def now(self) -> float:
        return self._clock.now()

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)

    def alarm(self, seconds: float, ring: Callable[[], None]) -> Callable[[], object]:
        return self._clock.alarm(seconds, ring)


class HoldersTap:
    """Stands before the holders, and notes what the engine was told."""

    def __init__(self, holders: Holders) -> None:
        self._holders = holders
        self._free: list[tuple[ResourceName, SlotId]] = []
        self._listed: rec.HeldTexts = {}
        self._on_disk: tuple[ResourceName, ...] | UnsetType | None = UNSET

    def take(self) -> tuple[tuple[tuple[ResourceName, SlotId], ...], rec.HeldTexts, Any]:
        """The answers since the last time."""
        taken = tuple(self._free), self._listed, self._on_disk
        self._free, self._listed, self._on_disk = [], {}, UNSET
        return taken

    @property
    def asked_s(self) -> float:
        return self._holders.asked_s

    @property
    def known_s(self) -> float:
        return self._holders.known_s

    @property
    def held(self) -> Mapping[ResourceName, frozenset[SlotId]] | None:
        return self._holders.held

    def on_disk(self) -> frozenset[ResourceName] | None:
        answer = self._holders.on_disk()
        self._on_disk = None if answer is None else tuple(sorted(answer))
        return answer

    def listed(self, resource: ResourceName) -> frozenset[SlotId]:
        answer = self._holders.listed(resource)
        self._listed[resource] = tuple(sorted(answer))
        return answer

    def is_free(self, resource: ResourceName, slot: Slot) -> bool:
        answer = self._holders.is_free(resource, slot)
        if answer:
            self._free.append((resource, slot.id))
        return answer


class ChosenTap:
    """Stands before what knows a scheduler's choice, and notes its answers."""

    def __init__(self, chosen: Chosen) -> None:
        self._chosen = chosen

    async def prefer(
        self, resource: Resource, available: Sequence[str], must: Sequence[str], size: int
    ) -> tuple[SlotId, ...]:
        try:
            slots = await self._chosen.prefer(resource, available, must, size)
        except AskRefused as refusal:
            _note(_refusal(refusal))
            raise
        _note(rec.Choice(tuple(slots)))
        return slots

    async def confirm(self, resource: Resource, ids: Sequence[str]) -> Grant:
        try:
            grant = await self._chosen.confirm(resource, ids)
        except AskRefused as refusal:
            _note(_refusal(refusal))
            raise
        devices = tuple(device.id for device in grant.devices)
        _note(rec.Choice(grant.slots, devices, grant.unit_bytes, grant.units, dict(grant.variables)))
        return grant

    def forget(self, resource: Resource, ids: Sequence[str]) -> None:
        self._chosen.forget(resource, ids)


def _note(choice: rec.Choice) -> None:
    if (asking := ASKING.get()) is not None:
        asking.choices += (choice,)


def _refusal(error: AskRefused) -> rec.Choice:
    return rec.Choice(error=str(error), kind=type(error).__name__)
