"""Claims: which container was given which slots, of which devices, and whether the kubelet has confirmed it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from fairlead.model.names import DeviceId, SlotId

Key = tuple[str, str]  # the pod's uid, and the container's name


class Claim(Struct, frozen=True):
    uid: str
    container: str
    slots: frozenset[SlotId]
    devices: tuple[DeviceId, ...]  # what the container was told
    at_s: float
    init: bool = False  # it ends before the others begin, and they use its slots again
    sure: bool = False  # the kubelet has said that this container has these slots

    @property
    def key(self) -> Key:
        return self.uid, self.container

    @property
    def amount(self) -> int:
        return len(self.slots)


class Claims:
    """All of one resource. `latest`: the pod that was given something last; its admission may go on."""

    def __init__(self, claims: Iterable[Claim] = (), latest: str = "") -> None:
        self._by_key = {claim.key: claim for claim in claims}
        self._by_slot: dict[SlotId, Claim] = {}
        self._load: dict[DeviceId, int] = {}
        for claim in self._by_key.values():
            self._count(claim, +1)
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
        return tuple(claim for claim in self._by_key.values() if claim.uid == uid)

    def holder(self, slot: SlotId) -> Claim | None:
        return self._by_slot.get(slot)

    def load(self, device: DeviceId) -> int:
        """How many units running containers have of a device."""
        return self._load.get(device, 0)

    def add(self, claim: Claim) -> None:
        self.drop(claim.key)
        self._by_key[claim.key] = claim
        self._count(claim, +1)
        self.latest = claim.uid

    def drop(self, key: Key) -> None:
        claim = self._by_key.pop(key, None)
        if claim is not None:
            self._count(claim, -1)

    @property
    def unsure(self) -> bool:
        return any(not claim.sure for claim in self._by_key.values())

    def _count(self, claim: Claim, sign: int) -> None:
        for slot in claim.slots:
            if sign > 0:
                self._by_slot[slot] = claim
            elif self._by_slot.get(slot) is claim:
                del self._by_slot[slot]
        if claim.init:
            return
        each, more = divmod(claim.amount, max(1, len(claim.devices)))
        for number, device in enumerate(claim.devices):
            self._load[device] = self._load.get(device, 0) + sign * (each + (number < more))
