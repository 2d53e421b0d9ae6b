"""The stock: all sources together, as one inventory, and as resources once rules are applied."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from functools import partial

from msgspec.structs import replace

from fairlead.app.source import Source
from fairlead.app.units import Held, Units
from fairlead.model.device import Device
from fairlead.model.health import Condition
from fairlead.model.inventory import NO_LINKS, Findings, Inventory, Links
from fairlead.model.names import DeviceId, ResourceName, SlotId
from fairlead.model.resource import Resource, Slot
from fairlead.policy.memory import owner_of, short_name
from fairlead.policy.retain import retain
from fairlead.policy.rules import Assignment, Rule, assign, rule_of
from fairlead.policy.sharing import device_of
from fairlead.policy.units import Fixed

_Kept = tuple[Mapping[ResourceName, int], Mapping[ResourceName, Fixed]]
CLAIM_S = 60.0  # an Allocate is under way no longer than this before pod-resources shows its pod


def combine(findings: Iterable[Findings], conditions: Iterable[Mapping[DeviceId, Condition]] = ()) -> Inventory:
    links: Links = NO_LINKS
    devices: list[Device] = []
    for found in findings:
        devices += found.devices
        links |= found.links
    merged = {device: condition for part in conditions for device, condition in part.items()}
    return Inventory(tuple(devices), links, merged)


def inventory_of(sources: Iterable[Source]) -> Inventory:
    listed = list(sources)
    return combine((source.findings for source in listed), (source.conditions for source in listed))


class Ledger:
    """From inventory to what is served: applies the rules, keeps slots that may still be in use."""

    def __init__(self, units: Units | None = None) -> None:
        self.units = units or Units()
        self._served: dict[ResourceName, Resource] = {}
        self.assignment = Assignment((), (), ())
        self.problems: tuple[str, ...] = ()
        self.exclusive = False  # a device is offered in two forms
        self._claims: dict[tuple[ResourceName, SlotId], float] = {}  # handed out, and when
        # What the assignment was made of: devices, rules, units.
        self._basis: tuple[tuple[Device, ...], tuple[Rule, ...], _Kept] | None = None
        self._held: Held | None = None  # as it was last known

    @property
    def grown(self) -> dict[ResourceName, tuple[int, int, str]]:
        """Units that pods of another plugin count in, what they are here, and why."""
        told = ((made, self.units.asked(made.name)) for made in self.assignment.resources if made.note)
        return {made.name: (asked, made.unit_bytes, made.note) for made, asked in told if asked}

    @property
    def kept(self) -> dict[ResourceName, tuple[int, int, str]]:
        """Units that stay because of pods, what they would be, and why they stay."""
        return {
            made.name: (made.unit_bytes, made.wish_bytes, made.note)
            for made in self.assignment.resources
            if made.wish_bytes
        }

    def settle(
        self,
        inventory: Inventory,
        rules: tuple[Rule, ...],
        held: Held | None,
        preparing: frozenset[str],
        now_s: float,
        is_free: Callable[[ResourceName, Slot], bool] = lambda _name, _slot: False,
    ) -> tuple[Resource, ...]:
        """The resources to serve now. `held` None: it is not known who holds what; see `retain`."""
        self.assignment = self._assign(inventory, rules, held)
        offered = {made.name: made.follow(self._served.get(made.name)) for made in self.assignment.resources}
        plain = dict.fromkeys(
            name for rule in rules for part in (rule, *rule.also) if (name := part.resource) and not part.varies
        )
        named = {name: rule for name in {**plain, **offered, **self._served} if (rule := rule_of(name, rules))}
        problems = list(self.assignment.problems)
        served: dict[ResourceName, Resource] = {}
        for name in {**named, **self._served}:
            before = self._served.get(name)
            resource = offered.get(name)
            mine = None if held is None else held.get(name, frozenset())
            if name not in named:
                count = len(mine & {slot.id for slot in before.slots}) if mine and before else 0
                if not count:
                    continue  # nobody needs it any more, or nobody knows: the configuration decides
                problems.append(
                    f"{name} is not configured any more, but pods hold {count} of it: served until they end"
                )
            if resource is None:
                if before is None:
                    continue  # nothing to offer yet: the kubelet hears of a resource with its first device
                kept_on = before.slots if name in self.assignment.refused else ()
                slots = tuple(slot for slot in kept_on if slot.device in inventory.by_id)
                resource = replace(before, slots=slots, inventory=inventory)
                if rule := named.get(name):
                    resource = replace(
                        resource,
                        strategy=rule.strategy,
                        extra=rule.extra,
                        per_container=rule.per_container,
                        assign=rule.assign,
                    )
            elif preparing and any(device.backend in preparing for device in _devices(resource)):
                resource = replace(resource, prepare=True)
            kept = retain(before, resource, mine, now_s=now_s, is_free=partial(is_free, name))
            if kept.slots or name in plain or name not in named:
                served[name] = kept  # a name made from devices goes with the last of them
        if held is not None:
            self._held = held
        if self._held:  # a kubelet that is silent now has said it before: what pods held then is not free yet
            served = _withhold(served, self._held, inventory)
        for name, why in self.units.unsure(self.assignment.resources, rules, held).items():
            served[name] = _keep_back(served[name], set(served[name].slots_of))
            problems.append(why)
        self.exclusive = any(rule.also for rule in rules)
        if self.exclusive:
            served, unknown = self._exclude(served, held, now_s)
            problems += unknown
        self._served = served
        self.problems = tuple(problems)
        return tuple(served[name] for name in sorted(served))

    def _assign(self, inventory: Inventory, rules: tuple[Rule, ...], held: Held | None) -> Assignment:
        """Keeps a unit of memory while its rule stands: ids that pods hold, or are about to, must not lose meaning."""
        keep, fixed = self.units.decide(inventory.devices, rules, held, self._served)
        assignment = self._again(inventory, rules, (keep, fixed)) or assign(inventory, rules, keep, fixed)
        self._basis = inventory.devices, rules, (keep, fixed)
        self.units.settled(assignment, rules, fixed)
        return assignment

    def _again(self, inventory: Inventory, rules: tuple[Rule, ...], units: _Kept) -> Assignment | None:
        """As before, when only health has changed: rules do not look at it, and a fault must be told at once."""
        if self._basis != (inventory.devices, rules, units) or len(inventory.by_id) != len(inventory.devices):
            return None
        resources = tuple(replace(made, inventory=inventory) for made in self.assignment.resources)
        return replace(self.assignment, resources=resources)

    def claim(self, resource: ResourceName, slots: Iterable[SlotId], now_s: float) -> None:
        """Slots were just handed out. Counts until the kubelet can be expected to say so itself."""
        self._claims.update(((resource, slot), now_s) for slot in slots)

    def _exclude(
        self, served: dict[ResourceName, Resource], held: Held | None, now_s: float
    ) -> tuple[dict[ResourceName, Resource], list[str]]:
        """A device offered in two forms is given away in one of them."""
        if held is not None:
            self._claims = {key: at_s for key, at_s in self._claims.items() if now_s - at_s < CLAIM_S}
        forms: dict[DeviceId, set[ResourceName]] = {}
        takers: dict[DeviceId, set[ResourceName]] = {}
        for name, resource in served.items():
            taken = {slot for owner, slot in self._claims if owner == name}
            taken |= (self._held or {}).get(name, frozenset())
            for slot in resource.slots:
                if slot.retired_s is None:
                    forms.setdefault(slot.device, set()).add(name)
                if slot.id in taken:
                    takers.setdefault(slot.device, set()).add(name)
        twofold = {device for device, names in forms.items() if len(names) > 1}
        blind = self._held is None

        def kept_back(name: ResourceName, slot: Slot) -> bool:
            others = takers.get(slot.device, set()) - {name}
            return slot.retired_s is None and slot.device in twofold and (blind or bool(others))

        guarded = {
            name: replace(
                resource,
                slots=tuple(replace(slot, withheld=True) if kept_back(name, slot) else slot for slot in resource.slots),
            )
            for name, resource in served.items()
        }
        why = "it is not known who holds what, so devices that are offered in two forms are kept back"
        return guarded, [why] if blind and twofold else []

    @property
    def waiting(self) -> bool:
        """Whether a slot is listed, or kept back, only because it or its device may be in use."""
        slots = (slot for resource in self._served.values() for slot in resource.slots)
        return any(slot.retired_s is not None or slot.withheld for slot in slots)


def _withhold(
    served: Mapping[ResourceName, Resource], held: Held, inventory: Inventory
) -> dict[ResourceName, Resource]:
    """A device that a pod holds as it was offered before is not given to another pod as it is offered now.

    Rules may have moved it to another resource, or cut it into more or fewer slots.
    """
    busy = set()
    shorts: dict[str, DeviceId] = {}
    for name, resource in served.items():
        for slot in held.get(name, frozenset()):
            place = resource.order.get(slot)
            if place is None:
                shorts = shorts or {short_name(device.id): device.id for device in inventory.devices}
                busy.add(owner_of(slot, shorts) or device_of(slot))
            elif resource.slots[place].retired_s is not None:
                busy.add(resource.slots[place].device)  # ids of another plugin do not name it
    if not busy:
        return dict(served)
    return {name: _keep_back(resource, busy) for name, resource in served.items()}


def _keep_back(resource: Resource, devices: Container[DeviceId]) -> Resource:
    slots = tuple(
        replace(slot, withheld=True) if slot.device in devices and slot.retired_s is None else slot
        for slot in resource.slots
    )
    return replace(resource, slots=slots)


def _devices(resource: Resource) -> Iterable[Device]:
    return (device for device_id in resource.slots_of if (device := resource.inventory.by_id.get(device_id)))


def preparing(sources: Iterable[Source]) -> frozenset[str]:
    return frozenset(source.name for source in sources if source.prepare is not None)
