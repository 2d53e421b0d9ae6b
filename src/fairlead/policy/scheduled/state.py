"""What is known of one resource whose devices a scheduler chooses: its pods, their allocations, and open questions.

One frozen value. `decide` and `observe` make the next one. Knows no clock and waits for nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

from msgspec import Struct, field
from msgspec.structs import replace

from fairlead.model.assign import Assign
from fairlead.model.inventory import ALL_HEALTHY, Conditions
from fairlead.model.names import DeviceId, ResourceName, SlotId
from fairlead.model.pod import Pod
from fairlead.model.resource import Resource
from fairlead.policy.pods.requests import ContainerRequest, share
from fairlead.policy.scheduled.allocations import Allocation, Allocations
from fairlead.policy.scheduled.match import Match
from fairlead.policy.scheduled.pending import PendingPod, read_pod
from fairlead.policy.scheduled.reconcile import Holder

MIB = 1 << 20
Texts = Mapping[str, str]
_OF_THE_POD = ("{podName}", "{podNamespace}", "{annotation:")


class Refusal(Struct, frozen=True):
    """The kubelet ends a pod that was refused. Until the API server says so it may have been another one."""

    at_s: float
    amount: int
    rivals: frozenset[str]  # uids of other pods that asked for as much then


class Preferred(Struct, frozen=True):
    """The answer to the last GetPreferredAllocation."""

    uid: str
    container: str
    slots: frozenset[SlotId]


class PodsRead(Struct, frozen=True):
    """Pods, as far as they ask for the resource. Each is read once per change of it."""

    source: object = None  # the pods they were read from
    ordered: object = None  # and what was ordered to be written on them
    by_uid: Mapping[str, tuple[Pod, Texts | None, PendingPod | None]] = {}
    pending: tuple[PendingPod, ...] = ()  # in the order in which the kubelet asks for them


class State(Struct, frozen=True):
    resource: Resource
    assign: Assign
    names: Mapping[str, DeviceId]  # as annotations name devices
    room: Mapping[DeviceId, int]  # units of each device
    conditions: Conditions = ALL_HEALTHY
    pods: PodsRead = PodsRead()
    allocations: Allocations = field(default_factory=Allocations)
    adopted: bool = False  # whether it is known what containers had before this daemon began
    ended: frozenset[SlotId] = frozenset()  # had by pods that have ended, and not given or seen free since
    # The question that is open.
    preferred: Preferred | None = None
    free: AbstractSet[SlotId] | None = None  # what the kubelet could give, by its last question for a preference
    deadlines: Mapping[int, float] = {}  # by amount: until when its question may wait
    refused: Mapping[str, Refusal] = {}  # by uid: pods that were refused, and ask no more
    locked_for: str = ""  # uid of the pod whose admission has begun, while the node is locked for it
    # What the last look at the kubelet has shown.
    wrong: Mapping[str, str] = {}  # by uid
    strangers: frozenset[Holder] = frozenset()  # have slots, and are not known to the watch
    annotated: frozenset[str] = frozenset()  # uids: that they have their devices was ordered to be written

    @property
    def name(self) -> ResourceName:
        return self.resource.name

    @property
    def keeps_assignments(self) -> bool:
        """Whether the scheduler's own annotations are never rewritten."""
        return bool(self.assign.actual)

    @property
    def whole(self) -> bool:
        """Whether a unit is a whole device."""
        return not self.resource.unit_bytes and all(units <= 1 for units in self.room.values())

    @property
    def shows_pods(self) -> bool:
        """Whether containers are shown which pod they are of: then it matters which one they were taken for."""
        extra = self.resource.terms.extra
        texts = (*extra.env.values(), *extra.annotations.values())
        return any(variable in text for text in texts for variable in _OF_THE_POD)

    @property
    def unsettled(self) -> bool:
        """Whether there is more to see."""
        open_ends = self.allocations.unconfirmed or self.wrong or self.strangers or self.locked_for
        return bool(open_ends) or not self.adopted

    @property
    def has_unknown_pods(self) -> bool:
        """Whether pods have slots that the API server does not know: a look at the kubelet may free them."""
        return any(each.uid not in self.pods.by_uid for each in self.allocations)

    def any_device(self, amount: int) -> ContainerRequest:
        """What a container gets that no pod explains."""
        return ContainerRequest("", amount, tuple(self.names.values()))

    def asking(self, amount: int) -> Iterator[PendingPod]:
        """Pods whose next container asks for so much, in their order."""
        for pending in self.pods.pending:
            if pending.open and pending.uid not in self.refused:
                request = pending.next(self.allocations)
                if request is not None and request.amount == amount:
                    yield pending

    # --- Room ---------------------------------------------------------------------------------------------------------

    def spare_room(self) -> Mapping[DeviceId, int]:
        """Room for what is known, without what containers have of which nothing is known."""
        served = [s for s in self.pods.pending if not s.open and s.pod.phase == "Running" and s.assigned[0]]
        unseen = [pending for pending in served if not self.allocations.of(pending.uid)]
        hidden = self._hidden()
        if not unseen and not hidden:
            return self.room
        room = dict(self.room)
        for taken in (hidden, *(pending.footprint(pending.actual_devices) for pending in unseen)):
            for device, units in taken.items():
                room[device] = room.get(device, 0) - units
        return room

    def _hidden(self) -> dict[DeviceId, int]:
        """Slots that are not free, and were not given out here: a pod has them that the watch has not shown.

        Slots of pods that have ended are no such: a kubelet that has just started counts them for its first pods.
        """
        resource, free, given = self.resource, self.free, self.allocations.slots
        if self.ended:
            given = given | self.ended
        # What a pod uses again is free to it, and given: it explains none of the others.
        if free is None or len(resource.slots) - len(free) == len(given) - len(given & free):
            return {}
        # With hints the kubelet asks for slots near some NUMA nodes only: then a device that is not there is not full.
        partly = resource.numa_hints and any(device.numa_nodes for device in resource.inventory.devices)
        hidden = {}
        for device, slots in resource.slots_of.items():
            if device in self.conditions.unhealthy:
                continue
            offered = [slot.id for slot in slots if slot.retired_s is None and not slot.withheld]
            gone = [slot for slot in offered if slot not in free]
            count = sum(slot not in given for slot in gone)
            if count and not (partly and len(gone) == len(offered)):
                hidden[device] = count
        return hidden

    # --- What containers are shown ------------------------------------------------------------------------------------

    def actual_devices(self) -> dict[SlotId, DeviceId]:
        """Slots whose container has another device than the one they are of."""
        found: dict[SlotId, DeviceId] = {}
        for each in self.allocations:
            if each.maybe or each.init:
                continue
            left = Counter(share(each.amount, each.devices, each.parts))
            apart = []
            for slot in sorted(each.slots):
                known = self.resource.by_id.get(slot)
                if known is not None and left[known.device] > 0:
                    left[known.device] -= 1
                else:
                    apart.append(slot)
            found.update(zip(apart, left.elements(), strict=False))
        return found

    def variables(self, request: ContainerRequest, pending: PendingPod | None) -> dict[str, str]:
        """For the templates of a container's environment, beside its devices."""
        devices = [found for d in request.devices if (found := self.resource.inventory.by_id.get(d)) is not None]
        by_device = {device: name for name, device in self.names.items()}
        variables = {
            "podName": "",
            "podNamespace": "",
            "podUnits": str(request.amount),
            "assigned": ",".join(by_device.get(device, device) for device in request.devices),
            "deviceUnits": _of_one([self.room.get(device, 0) for device in request.devices]),
            "deviceMib": _of_one([device.memory_bytes // MIB for device in devices]),
            "nodeUnits": str(sum(self.room.values())),
        }
        if pending is not None:
            pod = pending.pod
            variables |= {"podName": pod.name, "podNamespace": pod.namespace, "podUnits": str(pending.units)}
            said = pod.annotations.get(self.assign.device)
            if said and request.devices in pending.assigned:
                variables["assigned"] = said
            variables |= {f"annotation:{key}": pod.annotations.get(key, "") for key in self.assign.needs}
        return variables


# --- What changes it --------------------------------------------------------------------------------------------------


def offer(resource: Resource, assign: Assign, conditions: Conditions, before: State | None) -> State:
    """The state of a resource as it is listed now, with all that was known before."""
    devices = [found for d in resource.slots_of if (found := resource.inventory.by_id.get(d)) is not None]
    name_of = {device.id: device.id if assign.by_id else device.index for device in devices}
    counts = Counter(name_of.values())
    names = {name: device for device, name in name_of.items() if counts[name] == 1}  # two of one name: neither is meant
    room = {d: sum(slot.retired_s is None for slot in slots) for d, slots in resource.slots_of.items()}
    if before is None:
        return State(resource, assign, names, room, conditions)
    pods = before.pods if (names, assign) == (before.names, before.assign) else PodsRead()
    now = replace(before, resource=resource, assign=assign, names=names, room=room)
    ended = before.ended & resource.by_id.keys() if before.ended else before.ended
    return replace(now, conditions=conditions, pods=pods, ended=ended)


def read_pods(state: State, pods: Mapping[str, Pod], ordered: Mapping[str, Texts]) -> State:
    """`ordered`: by uid, what annotations will say as soon as it is written; that goes before what they say."""
    known = state.pods
    if known.source is pods and known.ordered is ordered:
        return state
    whole, read = state.whole, {}
    for uid, pod in pods.items():
        texts = ordered.get(uid)
        if texts is not None and all(pod.annotations.get(key) == text for key, text in texts.items()):
            texts = None  # it stands there
        before = known.by_uid.get(uid)
        if before is None or before[0] is not pod or before[1] != texts:
            said = replace(pod, annotations={**pod.annotations, **texts}) if texts else pod
            before = (pod, texts, read_pod(said, state.name, state.assign, state.names, whole=whole))
        read[uid] = before
    pending = tuple(sorted((s for _, _, s in read.values() if s is not None), key=lambda s: s.order))
    return replace(
        state,
        pods=PodsRead(pods, ordered, read, pending),
        annotated=state.annotated & read.keys(),
        # One that is gone was refused in truth. If a rival is gone instead, it was that one.
        refused={uid: one for uid, one in state.refused.items() if uid in read and one.rivals <= read.keys()},
    )


def allocate(state: State, found: Match | None, slots: frozenset[SlotId], now_s: float, *, unasked: bool) -> State:
    """A container was given slots, for the pod that was found. None: it is not known for which pod."""
    state = replace(state, ended=state.ended - slots) if state.ended else state
    if found is None:
        return replace(state, preferred=None, free=None, locked_for="")
    draft, uid, request = state.allocations.draft(), found.pending.uid, found.request
    for each in state.allocations.of(found.left) if found.left else ():
        draft.drop(each.key)
    for each in found.moved:
        draft.add(each)
    draft.add(
        Allocation(
            uid,
            request.container,
            slots,
            request.devices,
            now_s,
            parts=request.parts,
            rivals=bool(found.rivals),
            init=request.init,
            unasked=unasked,
            shown_uid=uid,
        )
    )
    # It was served: so it was not this pod that was refused.
    refused = {
        other: replace(one, rivals=frozenset()) if uid in one.rivals else one
        for other, one in state.refused.items()
        if other != uid
    }
    more = found.pending.next(draft) is not None
    return replace(state, allocations=draft, refused=refused, preferred=None, free=None, locked_for=uid if more else "")


def forget(state: State, slots: Sequence[SlotId]) -> State:
    """A container was refused, whatever it had been granted: its pod's admission is over."""
    draft = state.allocations.draft()
    for each in {found for slot in slots if (found := draft.holder(slot)) is not None}:
        draft.drop(each.key)
    return replace(state, allocations=draft, locked_for="")


def _of_one(sizes: Sequence[int]) -> str:
    """The size of one device. All of them, where they differ: programs read a single number."""
    return str(sizes[0]) if len(set(sizes)) == 1 else ",".join(map(str, sizes))
