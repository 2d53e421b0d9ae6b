"""The allocator: what a container may have, and what it gets for it. Every front that hands out devices asks here.

Owns the decision and its record in the journal; knows no protocol. No hardware call, file or network in `prefer` and
`allocate`, because the kubelet's main loop waits for them without a deadline. The exception is a resource whose devices
a scheduler chose: `Chosen` may wait for the API server, for a bounded time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from fairlead.engine.grants import check_ask, check_ids, held_grant, make_grant, straddles
from fairlead.engine.recent import RecentGrants
from fairlead.engine.storms import Storms
from fairlead.model.edits import Edits, Grant
from fairlead.model.errors import AskRefused, BadAsk, FairleadError, UnknownSlots
from fairlead.model.inventory import Conditions
from fairlead.model.names import SlotId
from fairlead.model.ports import Record
from fairlead.model.resource import Resource

if TYPE_CHECKING:
    from fairlead.policy.placement.place import Choice


class Chosen(Protocol):
    """Knows which devices a scheduler has chosen for the pod that a request is for. Both raise AskRefused."""

    async def prefer(
        self, resource: Resource, available: Sequence[str], must: Sequence[str], size: int
    ) -> tuple[SlotId, ...]: ...

    async def confirm(self, resource: Resource, ids: Sequence[str]) -> Grant: ...

    def forget(self, resource: Resource, ids: Sequence[str]) -> None:
        """An admission is refused. These ids, which were confirmed, are not given after all."""
        ...


class Ask(Struct, frozen=True, gc=False):
    """A request that leaves a choice: `size` of the available slots, with those that it must include."""

    available: Sequence[str]
    must: Sequence[str]
    size: int


async def _ready(_resource: Resource) -> str:
    return ""


class Unconfirmed(Protocol):
    """Devices are offered that an earlier process found, and that no scan of this one has confirmed yet."""

    async def wait(self, resource: Resource, ids: Sequence[str]) -> None:
        """Until they are confirmed. Raises AskRefused if one is gone, or if it takes too long."""
        ...


class Allocator(Struct, frozen=True):
    edits: Callable[[Resource, Grant], Edits]
    prepare_grant: Callable[[Resource, Grant], Awaitable[None]]
    record: Record
    granted: Callable[[Resource, Grant], None] = lambda _resource, _grant: None
    wait_for: Callable[[Resource], Awaitable[str]] = _ready  # what a registration waits for
    prepares: Callable[[Resource], bool] = lambda _resource: False  # whether `prepare` must come before each start
    chosen: Callable[[], Chosen | None] = lambda: None
    recent: RecentGrants | None = None
    unconfirmed: Callable[[Resource], Unconfirmed | None] = lambda _resource: None
    storms: Storms | None = None

    def prefer(
        self, resource: Resource, asks: Sequence[Ask]
    ) -> list[tuple[SlotId, ...]] | Awaitable[list[tuple[SlotId, ...]]]:
        """Never an error: the kubelet would reject the pod for it. An empty answer leaves the choice to the kubelet."""
        if resource.terms.assign is not None and (chosen := self.chosen()) is not None:
            return self._prefer_chosen(chosen, resource, asks)
        answers: list[tuple[SlotId, ...]] = []
        for ask in asks:
            try:
                answers.append(self._place(resource, ask))
            except (FairleadError, OSError) as refusal:  # OSError: no descriptor is left to load placement with
                self._decline(resource, refusal)
                answers.append(())
        return answers

    async def _prefer_chosen(self, chosen: Chosen, resource: Resource, asks: Sequence[Ask]) -> list[tuple[SlotId, ...]]:
        answers: list[tuple[SlotId, ...]] = []
        for ask in asks:
            try:
                check_ask(resource, ask.available, ask.must, ask.size)
                answers.append(await chosen.prefer(resource, ask.available, ask.must, ask.size))
            except AskRefused as refusal:
                self._decline(resource, refusal)
                answers.append(())
        return answers

    def _place(self, resource: Resource, ask: Ask) -> tuple[SlotId, ...]:
        recent: AbstractSet[Any] = self.recent.of(resource.name) if self.recent is not None else frozenset()
        if recent:
            must = set(ask.must)  # what an init container of the same pod has had
            others = [slot for slot in ask.available if slot not in recent or slot in must]
            if ask.size <= len(others) < len(ask.available):
                try:
                    slots = _place(resource, Ask(others, ask.must, ask.size))
                except BadAsk:  # some of the others are no longer listed
                    slots = ()
                if slots and not straddles(resource, {resource.by_id[slot].device for slot in slots}):
                    return slots
        return _place(resource, ask)

    def _decline(self, resource: Resource, refusal: Exception) -> None:
        self.record("preference-declined", resource=resource.name, reason=str(refusal))

    def allocate(
        self, resource: Resource, conditions: Conditions, containers: Sequence[Sequence[str]]
    ) -> list[Edits] | Awaitable[list[Edits]]:
        """What each container gets for its ids. Raises AskRefused; then no container has got anything."""
        if (unconfirmed := self.unconfirmed(resource)) is not None:
            return self._allocate_confirmed(unconfirmed, resource, conditions, containers)
        return self._allocate(resource, conditions, containers)

    def _allocate(
        self, resource: Resource, conditions: Conditions, containers: Sequence[Sequence[str]]
    ) -> list[Edits] | Awaitable[list[Edits]]:
        if resource.terms.assign is not None and (chosen := self.chosen()) is not None:
            return self._allocate_chosen(chosen, resource, containers)
        try:
            _check_some(resource, containers)
            grants = [make_grant(resource, conditions, ids) for ids in containers]
            edits = [self.edits(resource, grant) for grant in grants]
        except AskRefused as refusal:
            if held_back_s := self._refused(resource, containers, refusal):
                return self._refuse_later(refusal, held_back_s)
            raise
        for ids, grant in zip(containers, grants, strict=True):
            self.granted(resource, grant)
            if self.recent is not None:
                self.recent.add(resource.name, grant.slots)
            self.record("allocated", resource=resource.name, slots=ids)
        return edits

    async def _allocate_confirmed(
        self,
        unconfirmed: Unconfirmed,
        resource: Resource,
        conditions: Conditions,
        containers: Sequence[Sequence[str]],
    ) -> list[Edits]:
        try:
            await unconfirmed.wait(resource, [slot for ids in containers for slot in ids])
        except AskRefused as refusal:
            await self._hold_back(self._refused(resource, containers, refusal))
            raise
        edits = self._allocate(resource, conditions, containers)
        return edits if isinstance(edits, list) else await edits

    async def _allocate_chosen(
        self, chosen: Chosen, resource: Resource, containers: Sequence[Sequence[str]]
    ) -> list[Edits]:
        edits: list[Edits] = []
        grants: list[Grant] = []
        try:
            _check_some(resource, containers)
            for ids in containers:
                check_ids(resource, ids)
                grants.append(await chosen.confirm(resource, ids))
                edits.append(self.edits(resource, grants[-1]))
        except AskRefused as refusal:
            chosen.forget(resource, [slot for grant in grants for slot in grant.slots])
            await self._hold_back(self._refused(resource, containers, refusal))
            raise
        for grant in grants:
            self.granted(resource, grant)
            self.record("allocated", resource=resource.name, slots=grant.slots)
        return edits

    def _refused(self, resource: Resource, containers: Sequence[Sequence[str]], refusal: AskRefused) -> float:
        """How long the refusal is to be held back."""
        self.record("allocate-refused", resource=resource.name, reason=str(refusal))
        return self.storms.refused(resource.name, containers, refusal) if self.storms is not None else 0.0

    async def _refuse_later(self, refusal: AskRefused, held_back_s: float) -> list[Edits]:
        await self._hold_back(held_back_s)
        raise refusal

    async def _hold_back(self, seconds: float) -> None:
        if seconds > 0 and self.storms is not None:
            await self.storms.sleep(seconds)

    async def prepare(self, resource: Resource, ids: Sequence[str]) -> None:
        """Before a container starts, or starts again, on slots that it holds."""
        grant = held_grant(resource, ids)
        if (unconfirmed := self.unconfirmed(resource)) is not None:
            await unconfirmed.wait(resource, ids)
        await self.prepare_grant(resource, grant)
        self.record("prepared", resource=resource.name, slots=grant.slots)


def _check_some(resource: Resource, containers: Sequence[Sequence[str]]) -> None:
    if not containers:
        raise BadAsk(f"{resource.name}: the request names no container")


def _place(resource: Resource, ask: Ask) -> tuple[SlotId, ...]:
    place = placement()
    try:
        return place(resource, ask.available, ask.must, ask.size).slots
    except UnknownSlots:
        # A list may have changed between the kubelet's look and its question: what is no longer known is left out.
        known: Mapping[Any, int] = resource.order
        available = [slot for slot in ask.available if slot in known]
        must = [slot for slot in ask.must if slot in known]
        return place(resource, available, must, ask.size).slots


def placement() -> Callable[..., Choice]:
    """Loaded when first needed: a daemon registers before it is asked to choose, and loads it then."""
    from fairlead.policy.placement.place import place  # noqa: PLC0415 - see above

    return place
