"""Allocations: which container was given which slots, of which devices, and whether the kubelet has confirmed it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet

from msgspec import Struct
from msgspec.structs import replace

from fairlead.model.names import DeviceId, SlotId
from fairlead.policy.pods.requests import share

Key = tuple[str, str]  # the pod's uid, and the container's name


class Allocation(Struct, frozen=True):
    uid: str
    container: str
    slots: frozenset[SlotId]
    devices: tuple[DeviceId, ...]  # what the container was given
    at_s: float
    parts: tuple[int, ...] = ()  # units of each of them; empty: equal parts
    maybe: tuple[DeviceId, ...] = ()  # or it was given one of these: each counts in full until that is known
    rivals: bool = False  # other pods asked for as much, of other devices
    init: bool = False  # it ends before the others begin, and they use its slots again
    confirmed: bool = False  # the kubelet has said that this container has these slots
    unasked: bool = False  # given without GetPreferredAllocation: it says nothing of what is asked for next
    shown_uid: str = ""  # of the pod whose name and annotations the container's environment shows; empty: not known

    @property
    def key(self) -> Key:
        return self.uid, self.container

    @property
    def amount(self) -> int:
        return len(self.slots)


class Allocations:
    """All of one resource. A value: what changes it is a `Draft`. `latest`: the pod that was given something last."""

    def __init__(self, allocations: Iterable[Allocation] = (), latest: str = "") -> None:
        self._by_key: dict[Key, Allocation] = {}
        self._by_uid: dict[str, tuple[Allocation, ...]] = {}  # each question looks at many pods
        self._by_slot: dict[SlotId, Allocation] = {}
        self._load: dict[DeviceId, int] | None = None  # None: to be counted
        for allocation in allocations:
            self._put(allocation)
        self.latest = latest

    def draft(self) -> Draft:
        """A copy that may be changed."""
        draft = Draft(latest=self.latest)
        for name in ("_by_key", "_by_uid", "_by_slot"):
            setattr(draft, name, getattr(self, name).copy())  # much faster than to add them one by one
        return draft

    def __contains__(self, key: Key) -> bool:
        return key in self._by_key

    def __iter__(self) -> Iterator[Allocation]:
        return iter(self._by_key.values())

    def __len__(self) -> int:
        return len(self._by_key)

    def get(self, key: Key) -> Allocation | None:
        return self._by_key.get(key)

    def of(self, uid: str) -> tuple[Allocation, ...]:
        return self._by_uid.get(uid, ())

    def holder(self, slot: SlotId) -> Allocation | None:
        """Who was given it. Of a pod's init container and the one that uses its slots again: the latter."""
        return self._by_slot.get(slot)

    def holder_of(self, slots: Iterable[SlotId]) -> Allocation | None:
        """Of any of them."""
        return next((found for slot in slots if (found := self._by_slot.get(slot)) is not None), None)

    @property
    def slots(self) -> AbstractSet[SlotId]:
        """All that containers were given."""
        return self._by_slot.keys()

    @property
    def unconfirmed(self) -> bool:
        return any(not each.confirmed for each in self)

    def load(self, device: DeviceId) -> int:
        """How many units of a device pods have. What an init container had stays its pod's as long as that lives."""
        if self._load is None:
            self._load = {}
            for mine in self._by_uid.values():
                for name, units in _units(mine).items():
                    self._load[name] = self._load.get(name, 0) + units
        return self._load.get(device, 0)

    def reusable(self, uid: str, device: DeviceId) -> int:
        """Units of a device that a pod's init containers had, for its next container to use again."""
        mine = self.of(uid)
        lasting = [each for each in mine if not each.init]
        return _units(mine).get(device, 0) - _units(lasting).get(device, 0) if len(lasting) < len(mine) else 0

    def released(self, slots: AbstractSet[SlotId], *, init: bool = False) -> Allocations:
        """The kubelet gives these slots to a container, so the one that was given them before no longer has them.

        Its allocation stays, without slots, until that is known from elsewhere: the question is not for that container.
        The slots of init containers are used again within a pod: they are free only with `init`, when no pod has them.
        """
        gone = [each for each in self if (init or not each.init) and not each.slots.isdisjoint(slots)]
        if not gone:
            return self
        draft = self.draft()
        for each in gone:
            draft.empty(each)
        return draft

    def _put(self, allocation: Allocation) -> None:
        self._by_key[allocation.key] = allocation
        self._by_uid[allocation.uid] = (*self.of(allocation.uid), allocation)
        for slot in allocation.slots:
            known = self._by_slot.get(slot)
            if not allocation.init or known is None or known.init or known.uid != allocation.uid:
                self._by_slot[slot] = allocation


class Draft(Allocations):
    """Allocations while they are put together. After that they are read as `Allocations`."""

    def add(self, allocation: Allocation) -> None:
        self.drop(allocation.key)
        self._put(allocation)
        self._load = None
        self.latest = allocation.uid

    def empty(self, allocation: Allocation) -> None:
        self.drop(allocation.key)
        self._put(replace(allocation, slots=frozenset(), confirmed=False))
        if allocation.uid == self.latest:
            self.latest = ""  # its admission has failed, and does not go on

    def drop(self, key: Key) -> None:
        gone = self._by_key.pop(key, None)
        if gone is None:
            return
        mine = tuple(each for each in self._by_uid.pop(gone.uid) if each is not gone)
        if mine:
            self._by_uid[gone.uid] = mine
        self._load = None
        for slot in gone.slots:
            if self._by_slot.get(slot) is gone:
                del self._by_slot[slot]
        if not gone.init:
            # The slots of an init container that it used are that one's again.
            for other in mine:
                if other.init:
                    self._by_slot.update((slot, other) for slot in other.slots & gone.slots)


def _units(allocations: Sequence[Allocation]) -> dict[DeviceId, int]:
    """Of one pod. A slot that two of its containers have in turn counts once."""
    total: dict[DeviceId, int] = {}
    seen: set[SlotId] = set()
    again = any(allocation.init for allocation in allocations)
    for allocation in sorted(allocations, key=lambda allocation: allocation.init):
        amount = allocation.amount
        if again:
            amount = len(allocation.slots - seen)
            seen |= allocation.slots
        for device, units in (
            *share(amount, allocation.devices, allocation.parts).items(),
            *((d, amount) for d in allocation.maybe),
        ):
            total[device] = total.get(device, 0) + units
    return total
