"""Claims: which container was given which slots, of which devices, and whether the kubelet has confirmed it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet

from msgspec import Struct
from msgspec.structs import replace

from fairlead.model.names import DeviceId, SlotId

Key = tuple[str, str]  # the pod's uid, and the container's name


class Claim(Struct, frozen=True):
    uid: str
    container: str
    slots: frozenset[SlotId]
    devices: tuple[DeviceId, ...]  # what the container was told
    at_s: float
    parts: tuple[int, ...] = ()  # units of each of them; empty: equal parts
    maybe: tuple[DeviceId, ...] = ()  # or it was told one of these: each counts in full until that is known
    rivals: bool = False  # other pods asked for as much, of other devices
    init: bool = False  # it ends before the others begin, and they use its slots again
    sure: bool = False  # the kubelet has said that this container has these slots
    blunt: bool = False  # given without a question for a preference: it says nothing of what is asked for next
    words: str = ""  # uid of the pod whose name and annotations the container was told; empty: nobody knows

    @property
    def key(self) -> Key:
        return self.uid, self.container

    @property
    def amount(self) -> int:
        return len(self.slots)


class Claims:
    """All of one resource. `latest`: the pod that was given something last; its admission may go on."""

    def __init__(self, claims: Iterable[Claim] = (), latest: str = "") -> None:
        self._by_key: dict[Key, Claim] = {}
        self._by_uid: dict[str, dict[str, Claim]] = {}  # each question looks at many pods
        self._by_slot: dict[SlotId, Claim] = {}
        self._load: dict[DeviceId, int] | None = None  # None: to be counted
        for claim in claims:
            self.add(claim)
        self.latest = latest

    def __contains__(self, key: Key) -> bool:
        return key in self._by_key

    def __iter__(self) -> Iterator[Claim]:
        return iter(self._by_key.values())

    def __len__(self) -> int:
        return len(self._by_key)

    def get(self, key: Key) -> Claim | None:
        return self._by_key.get(key)

    def of(self, uid: str) -> tuple[Claim, ...]:
        return tuple(self._by_uid.get(uid, {}).values())

    def holder(self, slot: SlotId) -> Claim | None:
        """Who was given it. Of a pod's init container and the one that uses its slots again: the latter."""
        return self._by_slot.get(slot)

    def holder_of(self, slots: Iterable[SlotId]) -> Claim | None:
        """Of any of them."""
        return next((claim for slot in slots if (claim := self._by_slot.get(slot)) is not None), None)

    @property
    def slots(self) -> AbstractSet[SlotId]:
        """All that were given to somebody."""
        return self._by_slot.keys()

    def load(self, device: DeviceId) -> int:
        """How many units of a device pods have. What an init container had stays its pod's as long as that lives."""
        if self._load is None:
            self._load = {}
            pods: dict[str, list[Claim]] = {}
            for claim in self:
                pods.setdefault(claim.uid, []).append(claim)
            for mine in pods.values():
                for name, units in _units(mine).items():
                    self._load[name] = self._load.get(name, 0) + units
        return self._load.get(device, 0)

    def spare(self, uid: str, device: DeviceId) -> int:
        """Units of a device that a pod's init containers had, for its next container to use again."""
        mine = self.of(uid)
        lasting = [claim for claim in mine if not claim.init]
        return _units(mine).get(device, 0) - _units(lasting).get(device, 0) if len(lasting) < len(mine) else 0

    def add(self, claim: Claim) -> None:
        self.drop(claim.key)
        self._put(claim)
        self.latest = claim.uid

    def drop(self, key: Key) -> None:
        claim = self._by_key.pop(key, None)
        if claim is None:
            return
        mine = self._by_uid[claim.uid]
        del mine[claim.container]
        if not mine:
            del self._by_uid[claim.uid]
        self._load = None
        for slot in claim.slots:
            if self._by_slot.get(slot) is claim:
                del self._by_slot[slot]
        if not claim.init:
            # The slots of an init container that it used are that one's again.
            for other in [other for other in self.of(claim.uid) if other.init]:
                self._by_slot.update((slot, other) for slot in other.slots & claim.slots)

    def free(self, slots: AbstractSet[SlotId], *, init: bool = False) -> None:
        """The kubelet gives these to somebody, so whoever was given them has nothing any more, or never had it.

        The claim itself stays until that is known from elsewhere: the question is not for that container. The slots of
        init containers are used again within a pod: they are free only with `init`, when nobody has them at all.
        """
        for claim in [c for c in self if (init or not c.init) and not c.slots.isdisjoint(slots)]:
            self.drop(claim.key)
            self._put(replace(claim, slots=frozenset(), sure=False))
            if claim.uid == self.latest:
                self.latest = ""  # its admission has failed, and does not go on

    @property
    def unsure(self) -> bool:
        return any(not claim.sure for claim in self._by_key.values())

    def _put(self, claim: Claim) -> None:
        self._by_key[claim.key] = claim
        self._by_uid.setdefault(claim.uid, {})[claim.container] = claim
        self._load = None
        for slot in claim.slots:
            known = self._by_slot.get(slot)
            if not claim.init or known is None or known.init or known.uid != claim.uid:
                self._by_slot[slot] = claim


def share(units: int, devices: Sequence[DeviceId], parts: Sequence[int] = ()) -> dict[DeviceId, int]:
    """How many units lie on each device that a container was told. `parts`: as written, where that makes the sum."""
    if len(parts) == len(devices) and sum(parts) == units:
        return dict(zip(devices, parts, strict=True))
    each, more = divmod(units, max(1, len(devices)))
    return {device: each + (number < more) for number, device in enumerate(devices)}


def _units(claims: Sequence[Claim]) -> dict[DeviceId, int]:
    """Of one pod. A slot that two of its containers have in turn counts once."""
    total: dict[DeviceId, int] = {}
    seen: set[SlotId] = set()
    again = any(claim.init for claim in claims)
    for claim in sorted(claims, key=lambda claim: claim.init):
        amount = claim.amount
        if again:
            amount = len(claim.slots - seen)
            seen |= claim.slots
        for device, units in (*share(amount, claim.devices, claim.parts).items(), *((d, amount) for d in claim.maybe)):
            total[device] = total.get(device, 0) + units
    return total
