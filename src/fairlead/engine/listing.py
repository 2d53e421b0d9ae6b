"""The listing: what rules offer, and beside it what stays listed because a pod may hold it.

Made anew when devices, rules or holders change. Knows nothing of health: that is beside it, in `Conditions`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from msgspec.structs import replace

from fairlead.engine.units import Held, Units
from fairlead.model.inventory import Inventory
from fairlead.model.names import ResourceName, SlotId
from fairlead.model.resource import Resource, Slot
from fairlead.policy.offering.retain import one_form_at_a_time, retain, withhold, withhold_held
from fairlead.policy.offering.rules import Offering, Rule, make_offering, rule_of
from fairlead.policy.offering.units import Fixed

_Inputs = tuple[Inventory, tuple[Rule, ...], Mapping[ResourceName, int], Mapping[ResourceName, Fixed]]
ALLOCATE_S = 60.0  # an Allocate is under way no longer than this before pod-resources shows its pod


class Listing:
    def __init__(self, units: Units | None = None) -> None:
        self.units = units or Units()
        self.offering = Offering((), (), ())
        self.problems: tuple[str, ...] = ()
        self.exclusive = False  # a device is offered in two forms
        self._inputs: _Inputs | None = None  # what the offering was made of
        self._listed: dict[ResourceName, Resource] = {}
        self._allocated: dict[tuple[ResourceName, SlotId], float] = {}  # handed out by us, and when
        self._held: Held | None = None  # as it was last known
        self.unsure_s = 0.0  # when the last slot left of which it is not known whether a pod has it; 0: there is none

    @property
    def enlarged_units(self) -> dict[ResourceName, tuple[int, int, str]]:
        """Units that pods of another plugin count in, what they are here, and why."""
        noted = ((made, self.units.asked(made.name)) for made in self.offering.resources if made.note)
        return {made.name: (asked, made.unit_bytes, made.note) for made, asked in noted if asked}

    @property
    def kept_units(self) -> dict[ResourceName, tuple[int, int, str]]:
        """Units that stay because of pods, what they would be, and why they stay."""
        return {
            made.name: (made.unit_bytes, made.wanted_unit_bytes, made.note)
            for made in self.offering.resources
            if made.wanted_unit_bytes
        }

    @property
    def waiting(self) -> bool:
        """Whether a slot is listed, or withheld, only because it or its device may be in use."""
        slots = (slot for resource in self._listed.values() for slot in resource.slots)
        return any(slot.retired_s is not None or slot.withheld for slot in slots)

    def settle(
        self,
        inventory: Inventory,
        rules: tuple[Rule, ...],
        held: Held | None,
        now_s: float,
        is_free: Callable[[ResourceName, Slot], bool] = lambda _name, _slot: False,
        known_s: float = math.inf,
        unsent: Mapping[ResourceName, Resource | None] | None = None,
    ) -> tuple[Resource, ...]:
        """The resources to serve now. One that has not changed is the same object as before.

        `held` None: it is not known who holds what; see `retain`. `known_s`: since when it has been known. `unsent`:
        resources whose last list the kubelet never got, and what it got before. No pod holds what was never listed.
        """
        for name, sent in (unsent or {}).items():
            if sent is not None:
                self._listed[name] = sent
            else:
                self._listed.pop(name, None)
        self._offer(inventory, rules, held)
        listed, problems = self._retain(inventory, rules, held, partial(retain, now_s=now_s), is_free)
        if held is not None:
            self._held = held
        if self._held is not None:  # a kubelet that is silent now has said it before: what pods held is not free yet
            listed, self.unsure_s = withhold_held(listed, self._held, inventory.devices, known_s)
        for name, why in self.units.unsure(self.offering.resources, rules, held).items():
            listed[name] = withhold(listed[name], listed[name].slots_of)
            problems.append(why)
        self.exclusive = any(rule.also for rule in rules)
        if self.exclusive:
            listed = self._exclude(listed, held, now_s, problems)
        self._listed = {name: _same(self._listed.get(name), made) for name, made in sorted(listed.items())}
        self.problems = tuple(problems)
        return tuple(self._listed.values())

    @property
    def granted(self) -> tuple[tuple[ResourceName, SlotId, float], ...]:
        """Slots that were handed out by us, and when; of devices that are offered in two forms."""
        return tuple((*key, at_s) for key, at_s in self._allocated.items())

    @property
    def last_held(self) -> Held | None:
        return self._held

    def restore(
        self,
        listed: Iterable[Resource],
        granted: Iterable[tuple[ResourceName, SlotId, float]],
        held: Held | None,
    ) -> tuple[Resource, ...]:
        """As it was in another process."""
        self._listed = {resource.name: resource for resource in listed}
        self._allocated = {(name, slot): at_s for name, slot, at_s in granted}
        self._held = held
        return tuple(self._listed.values())

    def allocated(self, resource: ResourceName, slots: Iterable[SlotId], now_s: float) -> None:
        """Slots were just handed out. Counts until the kubelet can be expected to say so itself."""
        self._allocated.update(((resource, slot), now_s) for slot in slots)

    def _offer(self, inventory: Inventory, rules: tuple[Rule, ...], held: Held | None) -> None:
        """Keeps a unit of memory while its rule stands: ids that pods hold, or are about to, must not lose meaning."""
        keep, fixed = self.units.decide(inventory.devices, rules, held, self._listed)
        inputs = inventory, rules, keep, fixed
        if inputs != self._inputs:  # asked again with each Allocate where a device has two forms
            self.offering, self._inputs = make_offering(*inputs), inputs
        self.units.settled(self.offering, rules, fixed)

    def _retain(
        self,
        inventory: Inventory,
        rules: tuple[Rule, ...],
        held: Held | None,
        retained: Callable[..., Resource],
        is_free: Callable[[ResourceName, Slot], bool],
    ) -> tuple[dict[ResourceName, Resource], list[str]]:
        """The offered resources, with the slots and resources that left them and may be in use."""
        offered = {made.name: made for made in self.offering.resources}
        plain = dict.fromkeys(
            name for rule in rules for part in (rule, *rule.also) if (name := part.resource) and not part.varies
        )
        named = {name: rule for name in {**plain, **offered, **self._listed} if (rule := rule_of(name, rules))}
        problems = list(self.offering.problems)
        listed: dict[ResourceName, Resource] = {}
        for name in {**named, **self._listed}:
            before = self._listed.get(name)
            resource = offered.get(name)
            mine = None if held is None else held.get(name, frozenset())
            if name not in named:
                count = len(mine & {slot.id for slot in before.slots}) if mine and before else 0
                if not count:
                    continue  # no pod needs it any more, or it is not known: the configuration decides
                problems.append(
                    f"{name} is not configured any more, but pods hold {count} of it: served until they end"
                )
            if resource is None:
                if before is None:
                    continue  # nothing to offer yet: the kubelet hears of a resource with its first device
                kept_on = before.slots if name in self.offering.refused else ()
                slots = tuple(slot for slot in kept_on if slot.device in inventory.by_id)
                terms = named[name].terms if name in named else before.terms
                resource = replace(before, slots=slots, inventory=inventory, terms=terms)
            kept = retained(before, resource, mine, is_free=partial(is_free, name))
            if kept.slots or name in plain or name not in named:
                listed[name] = kept  # a name made from devices goes with the last of them
        return listed, problems

    def _exclude(
        self, listed: Mapping[ResourceName, Resource], held: Held | None, now_s: float, problems: list[str]
    ) -> dict[ResourceName, Resource]:
        """A device offered in two forms is given away in one of them."""
        if held is not None:
            self._allocated = {key: at_s for key, at_s in self._allocated.items() if now_s - at_s < ALLOCATE_S}
        if self._held is None:
            taken = None
        else:
            taken = {name: set(self._held.get(name, ())) for name in listed}
            for name, slot in self._allocated:
                taken.setdefault(name, set()).add(slot)
        guarded, twofold = one_form_at_a_time(listed, taken)
        if taken is None and twofold:
            problems.append("it is not known who holds what, so devices that are offered in two forms are kept back")
        return guarded


def _same(before: Resource | None, now: Resource) -> Resource:
    """The earlier object if it is equal: what was worked out of it, such as its encoded list, stays good."""
    return before if before is not None and before == now else now
