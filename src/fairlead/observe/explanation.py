"""The explanation of a choice: which slots a request would get now, and why not the others."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import asdict

from fairlead.engine.allocator import placement
from fairlead.kit.decoding import did_you_mean
from fairlead.model.assign import Assign
from fairlead.model.errors import UsageError
from fairlead.model.holdings import Holdings, Unknown
from fairlead.model.inventory import Conditions
from fairlead.model.names import SlotId
from fairlead.model.resource import Resource, Slot

if TYPE_CHECKING:
    from fairlead.policy.placement.place import Choice
    from fairlead.policy.scheduled.explain import Explanation as Scheduled


class DeviceReason(Struct, frozen=True, kw_only=True):
    device: str
    index: str
    picked: int  # slots
    score: int
    why: str


class LeftOut(Struct, frozen=True):
    slot: str
    why: str


class PodReason(Struct, frozen=True):
    pod: str
    why: str


class Assignment(Struct, frozen=True, kw_only=True):
    """Of a resource whose devices a scheduler chooses: which container a request would be for, and why no other."""

    annotation: str  # names the devices on a pod
    pod: str  # empty: the request is for no pod that is known
    container: str
    devices: tuple[str, ...]
    reason: str  # why the request would be refused; empty if it would not
    others: tuple[PodReason, ...]  # the other pods that ask for the resource


class Explanation(Struct, frozen=True, kw_only=True):
    resource: str
    count: int
    placement: str
    unit_bytes: int
    available: int
    slots: tuple[str, ...]
    fallback: str
    devices: tuple[DeviceReason, ...]
    left_out: tuple[LeftOut, ...]
    notes: tuple[str, ...]
    assignment: Assignment | None = None


def pick_resource(resources: Sequence[Resource], name: str) -> Resource:
    for resource in resources:
        if resource.name == name:
            return resource
    raise UsageError(f"no resource {name!r}{did_you_mean(name, [resource.name for resource in resources])}")


def explain(
    resource: Resource,
    conditions: Conditions,
    count: int,
    holdings: Holdings | Unknown,
    scheduled: Scheduled | None = None,
) -> Explanation:
    """The choice for a request that came now: of free slots only, as the kubelet would offer them.

    `scheduled`: which container it would be for, where a scheduler chooses the devices.
    """
    held = holdings.of(resource.name) if isinstance(holdings, Holdings) else frozenset()
    free = {slot.id for slot in resource.slots if slot.usable(conditions) and slot.id not in held}
    notes = []
    if isinstance(holdings, Unknown):
        notes.append(f"who holds what is unknown ({holdings.reason}): every slot counts as free")
    if resource.terms.assign is None:
        choice, assignment = placement()(resource, list(free), [], count, explain=True), None
    else:
        choice, assignment = _assigned(resource, resource.terms.assign, count, free, scheduled)
    index = {device.id: device.index for device in resource.inventory.devices}
    return Explanation(
        resource=resource.name,
        count=count,
        placement=resource.terms.strategy.value,
        unit_bytes=resource.unit_bytes,
        available=len(free),
        slots=tuple(choice.slots),
        fallback=choice.fallback,
        devices=tuple(DeviceReason(index=index.get(reason.device, ""), **asdict(reason)) for reason in choice.reasons),
        left_out=tuple(
            LeftOut(slot.id, _why_not(slot, conditions, held)) for slot in resource.slots if slot.id not in free
        ),
        notes=tuple(notes),
        assignment=assignment,
    )


def _why_not(slot: Slot, conditions: Conditions, held: AbstractSet[SlotId]) -> str:
    condition = slot.condition(conditions)
    return "in use" if slot.id in held else f"{condition.health.value}: {condition.cause or 'no cause given'}"


def _assigned(
    resource: Resource, assign: Assign, count: int, free: AbstractSet[SlotId], scheduled: Scheduled | None
) -> tuple[Choice, Assignment]:
    """The scheduler's choice in place of a placement: slots of the devices that the annotations of the pod name."""
    from fairlead.policy.placement.place import Choice, Reason  # noqa: PLC0415 - as `placement`
    from fairlead.policy.pods.requests import ContainerRequest  # noqa: PLC0415 - as above
    from fairlead.policy.scheduled.explain import Explanation as Scheduled  # noqa: PLC0415 - where a scheduler chooses
    from fairlead.policy.scheduled.match import choose_slots  # noqa: PLC0415 - as above

    scheduled = scheduled or Scheduled(reason="only a running daemon knows the pods of its node")
    reason = scheduled.reason
    slots: tuple[SlotId, ...] = ()
    if scheduled.devices:
        request = ContainerRequest(scheduled.container, count, scheduled.devices, parts=scheduled.parts)
        slots = choose_slots(request, resource.slots_of, free, (), strict=assign.strict)
        reason = "" if slots else f"{len(free)} slots are free"
    chosen = set(slots)
    source = f"by the annotations of {scheduled.pod}" if scheduled.pod else "by no pod; it is the only device"
    reasons = tuple(
        Reason(
            device,
            sum(slot.id in chosen for slot in group),
            sum(slot.id in free for slot in group),
            f"named {source}" if device in scheduled.devices else "not named",
        )
        for device, group in resource.slots_of.items()
        if scheduled.devices
    )
    assignment = Assignment(
        annotation=assign.device,
        pod=scheduled.pod,
        container=scheduled.container,
        devices=scheduled.devices,
        reason=reason,
        others=tuple(PodReason(pod, why) for pod, why in scheduled.others),
    )
    return Choice(slots, reasons), assignment
