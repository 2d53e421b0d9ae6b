"""A book: what is known of one resource whose devices a scheduler assigns. Who asks, who was given what, who waits.

Reads pods into seekers, and makes the words for a container's environment. Decides nothing and waits for nobody.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from math import inf

from msgspec import Struct, field
from msgspec.structs import replace

from fairlead.model.assign import Assign
from fairlead.model.names import DeviceId, SlotId
from fairlead.model.pod import Pod
from fairlead.model.resource import Resource
from fairlead.policy.assign import Match, Miss, is_under_way
from fairlead.policy.claims import Claim, Claims, share
from fairlead.policy.memory import MIB
from fairlead.policy.promise import Seeker, Want, read_pod
from fairlead.policy.reconcile import Holder

FORGET_S = 30.0  # a question whose Allocate never came
REFUSED_S = 2.0  # by then the API server has said which pod the kubelet has ended
GOES_ON_S = 2.0  # the kubelet goes on with a pod's next container at once; the watch may tell of the pod later

Texts = Mapping[str, str]
_OF_THE_POD = ("{podName}", "{podNamespace}", "{annotation:")


class Refusal(Struct, frozen=True):
    """The kubelet ends a pod that was refused. Until the API server says so it may have been another one."""

    at_s: float
    amount: int
    rivals: frozenset[str]  # uids of other pods that asked for as much then


class Book(Struct):
    resource: Resource
    assign: Assign
    names: Mapping[str, DeviceId]  # as annotations name devices
    room: Mapping[DeviceId, int]
    claims: Claims = field(default_factory=Claims)
    seekers: tuple[Seeker, ...] = ()
    seen: object = None  # the pods that the seekers were read from
    read: dict[str, tuple[Pod, Texts | None, Seeker | None]] = field(default_factory=dict)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    decided: tuple[str, str, frozenset[SlotId]] | None = None  # uid, container, slots: what was answered last
    free: AbstractSet[SlotId] | None = None  # what the kubelet could give, by its question that is to be answered
    ends: dict[int, float] = field(default_factory=dict)  # by amount: how long its question may still wait
    wrong: Mapping[str, str] = {}
    marked: set[str] = field(default_factory=set)  # uids: their marks were ordered
    locked_for: str = ""  # uid of the pod whose admission has begun, while the node is locked for it
    adopted: bool = False  # who had what before us is known
    refused: dict[str, Refusal] = field(default_factory=dict)  # by uid: pods that were refused, and ask no more
    strangers: frozenset[Holder] = frozenset()  # have slots, and are not known to the watch

    @property
    def whole(self) -> bool:
        """Whether a unit is a whole device."""
        return not self.resource.unit_bytes and all(units <= 1 for units in self.room.values())

    @property
    def names_pods(self) -> bool:
        """Whether containers are told of their pod: then it matters which one they were taken for."""
        extra = self.resource.extra
        texts = (*extra.env.values(), *extra.annotations.values())
        return any(word in text for text in texts for word in _OF_THE_POD)

    @property
    def unsettled(self) -> bool:
        """Whether there is more to see."""
        open_ends = self.claims.unsure or self.wrong or self.strangers or self.locked_for
        return bool(open_ends) or not self.adopted

    def only(self, amount: int) -> Want:
        """What a container gets that no pod explains."""
        return Want("", amount, tuple(self.names.values()))

    def end(self, amount: int, now_s: float, *, first: bool) -> float:
        """Until when a question may wait. It and the Allocate that follows wait together no longer than once."""
        self.ends = {key: end_s for key, end_s in self.ends.items() if now_s - end_s < FORGET_S}
        if first:
            self.ends[amount] = now_s + self.assign.wait_s
            return self.ends[amount]
        return self.ends.pop(amount, now_s + self.assign.wait_s)

    def release(self, slots: Sequence[SlotId], now_s: float) -> float:
        """Whoever was given these slots before has them no more, unless it goes on. For how long it still may."""
        claim, goes_on = self.claims.holder_of(slots), is_under_way(self.claims, slots)
        if claim is not None and goes_on and (left_s := claim.at_s + GOES_ON_S - now_s) > 0:
            return left_s
        self.claims.free(frozenset(slots), init=goes_on)
        return inf

    def holds_ghosts(self) -> bool:
        """Whether somebody has slots whom the API server does not know: a look at the kubelet may free them."""
        return any(claim.uid not in self.read for claim in self.claims)

    def doubts(self, amount: int) -> bool:
        """Whether something was given that another pod may have, and its promise is not rewritten."""
        return bool(self.assign.actual) and any(
            claim.rivals and not claim.sure and claim.amount == amount for claim in self.claims
        )

    def asking(self, seekers: Sequence[Seeker], amount: int) -> Iterator[Seeker]:
        """Pods whose next container asks for so much, in their order."""
        for seeker in seekers:
            if seeker.open and seeker.uid not in self.refused:
                want = seeker.next(self.claims)
                if want is not None and want.amount == amount:
                    yield seeker

    def refuse(self, uid: str, amount: int, now_s: float) -> None:
        """The pod was refused. It asks no more, and the next question is for another one."""
        if uid:
            rivals = frozenset(seeker.uid for seeker in self.asking(self.seekers, amount) if seeker.uid != uid)
            self.refused[uid] = Refusal(now_s, amount, rivals)

    def give(self, found: Match, slots: frozenset[SlotId], now_s: float, *, blunt: bool) -> None:
        """A container was given slots, for the pod that was found."""
        for claim in self.claims.of(found.left) if found.left else ():
            self.claims.drop(claim.key)
        for claim in found.moved:
            self.claims.add(claim)
        uid, want = found.seeker.uid, found.want
        self.settle_refused(uid)
        self.claims.add(
            Claim(
                uid,
                want.container,
                slots,
                want.devices,
                now_s,
                parts=want.parts,
                rivals=bool(found.rivals),
                init=want.init,
                words=uid,
                blunt=blunt,
            )
        )

    def settle_refused(self, uid: str) -> None:
        """This one was served: so it was not it that was refused."""
        for other, one in self.refused.items():
            if uid in one.rivals:
                self.refused[other] = replace(one, rivals=frozenset())

    def waits_for_refused(self, verdict: Match | Miss, amount: int, now_s: float) -> float:
        """How long to wait for news of a pod that was refused before the one that is to be served now. 0: not at all.

        If it was this one that the kubelet has ended, the question is once more for the other.
        """
        if isinstance(verdict, Miss):
            return 0.0
        uid = verdict.seeker.uid
        ends = [one.at_s + REFUSED_S for one in self.refused.values() if one.amount == amount and uid in one.rivals]
        return max(0.0, max(ends, default=0.0) - now_s)

    def look_up(self, pods: Mapping[str, Pod], promised: dict[str, Texts]) -> tuple[Seeker, ...]:
        """The pods that ask for the resource, in their order. Each is read once per change of it.

        `promised`: by uid, what its annotations will say as soon as we have written it; that goes before what they say.
        """
        if self.seen is pods:
            return self.seekers
        read = {}
        for uid, pod in pods.items():
            texts = promised.get(uid)
            if texts is not None and all(pod.annotations.get(key) == text for key, text in texts.items()):
                texts = None  # it stands there
            known = self.read.get(uid)
            if known is None or known[0] is not pod or known[1] != texts:
                known = (pod, texts, self._read(pod, texts))
            read[uid] = known
        self.read = read
        self.marked &= read.keys()
        # One that is gone was refused in truth. If a rival is gone instead, it was that one.
        self.refused = {uid: one for uid, one in self.refused.items() if uid in read and one.rivals <= read.keys()}
        self.seekers = tuple(sorted((s for _, _, s in read.values() if s is not None), key=lambda s: s.order))
        self.seen = pods
        return self.seekers

    def _read(self, pod: Pod, texts: Texts | None) -> Seeker | None:
        if texts:
            pod = replace(pod, annotations={**pod.annotations, **texts})
        return read_pod(pod, self.resource.name, self.assign, self.names, whole=self.whole)

    def spare_room(self) -> Mapping[DeviceId, int]:
        """Room for what is known, without what somebody has of whom nothing is known."""
        served = [s for s in self.seekers if not s.open and s.pod.phase == "Running" and s.plan[0]]
        unseen = [seeker for seeker in served if not self.claims.of(seeker.uid)]
        hidden = self._hidden()
        if not unseen and not hidden:
            return self.room
        room = dict(self.room)
        for taken in (hidden, *(seeker.footprint(seeker.told) for seeker in unseen)):
            for device, units in taken.items():
                room[device] = room.get(device, 0) - units
        return room

    def _hidden(self) -> dict[DeviceId, int]:
        """Slots that are not free, and that nobody was given: a pod has them that the watch has not told of."""
        resource, free = self.resource, self.free
        # What a pod uses again is free to it, and given: it explains none of the others.
        if free is None or len(resource.slots) - len(free) == len(self.claims.slots - free):
            return {}
        # With hints the kubelet asks for slots near some NUMA nodes only: then a device that is not there is not full.
        partly = resource.hints and any(device.numa_nodes for device in resource.inventory.devices)
        hidden = {}
        for device, slots in resource.slots_of.items():
            if not resource.inventory.condition(device).health.usable:
                continue
            offered = [slot.id for slot in slots if slot.retired_s is None and not slot.withheld]
            gone = [slot for slot in offered if slot not in free]
            count = sum(slot not in self.claims.slots for slot in gone)
            if count and not (partly and len(gone) == len(offered)):
                hidden[device] = count
        return hidden

    def told(self) -> dict[SlotId, DeviceId]:
        """Slots whose container was told another device than the one they are of."""
        found: dict[SlotId, DeviceId] = {}
        for claim in self.claims:
            if claim.maybe or claim.init:
                continue
            left = Counter(share(claim.amount, claim.devices, claim.parts))
            apart = []
            for slot in sorted(claim.slots):
                known = self.resource.by_id.get(slot)
                if known is not None and left[known.device] > 0:
                    left[known.device] -= 1
                else:
                    apart.append(slot)
            found.update(zip(apart, left.elements(), strict=False))
        return found

    def words(self, want: Want, seeker: Seeker | None) -> dict[str, str]:
        """What a container may be told beside its devices."""
        resource, assign = self.resource, self.assign
        devices = [found for d in want.devices if (found := resource.inventory.by_id.get(d)) is not None]
        by_device = {device: name for name, device in self.names.items()}
        words = {
            "podName": "",
            "podNamespace": "",
            "podUnits": str(want.amount),
            "assigned": ",".join(by_device.get(device, device) for device in want.devices),
            "deviceUnits": _of_one([self.room.get(device, 0) for device in want.devices]),
            "deviceMib": _of_one([device.memory_bytes // MIB for device in devices]),
            "nodeUnits": str(sum(self.room.values())),
        }
        if seeker is not None:
            pod = seeker.pod
            words |= {"podName": pod.name, "podNamespace": pod.namespace, "podUnits": str(seeker.units)}
            said = pod.annotations.get(assign.device)
            if said and want.devices in seeker.plan:
                words["assigned"] = said
            words |= {f"annotation:{key}": pod.annotations.get(key, "") for key in assign.needs}
        return words


def open_book(resource: Resource, assign: Assign, before: Book | None) -> Book:
    """The book of a resource as it is offered now, with all that an earlier one knows."""
    devices = [found for d in resource.slots_of if (found := resource.inventory.by_id.get(d)) is not None]
    words = {device.id: device.id if assign.by_id else device.index for device in devices}
    counts = Counter(words.values())
    names = {word: device for device, word in words.items() if counts[word] == 1}  # two of one name: neither is meant
    room = {d: sum(slot.retired_s is None for slot in slots) for d, slots in resource.slots_of.items()}
    if before is None:
        return Book(resource, assign, names, room)
    if (names, assign) != (before.names, before.assign):
        before.read, before.seen = {}, None
    before.resource, before.assign, before.names, before.room = resource, assign, names, room
    return before


def _of_one(sizes: Sequence[int]) -> str:
    """The size of one device. All of them, where they differ: programs read a single number."""
    return str(sizes[0]) if len(set(sizes)) == 1 else ",".join(map(str, sizes))
