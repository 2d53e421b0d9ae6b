"""Rules: which device belongs to which resource. First match wins. Never raises for what a backend found.

Owns the explanation of each decision. Knows nothing of where rules come from.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from msgspec import Struct, field
from msgspec.structs import replace

from fairlead.model.device import Device
from fairlead.model.errors import InvalidName, UsageError
from fairlead.model.inventory import Inventory
from fairlead.model.names import SLOT_ID_MAX, DeviceId, ResourceName, SlotId, parse_resource_name, parse_slot_id
from fairlead.model.resource import Resource, Slot, Terms
from fairlead.policy.offering.memory import is_tight, read_id
from fairlead.policy.offering.sharing import slots_for
from fairlead.policy.offering.units import Fixed, Uncut, cut_memory
from fairlead.policy.order import device_key


class Selector(Struct, frozen=True):
    """What a device must be. Every given part must hold; within a part, any pattern. Nothing given: any device."""

    ids: tuple[str, ...] = ()
    indexes: tuple[str, ...] = ()  # "0", or "0:*" for every partition of device 0
    pci: tuple[str, ...] = ()  # case does not matter: drivers disagree on "3B" and "3b"
    vendors: tuple[str, ...] = ()  # case does not matter
    models: tuple[str, ...] = ()  # case does not matter
    memory_min_bytes: int | None = None  # inclusive
    memory_max_bytes: int | None = None  # inclusive
    numa: tuple[int, ...] = ()  # the device is near at least one of these nodes
    backends: tuple[str, ...] = ()  # who found it
    attributes: tuple[tuple[str, tuple[str, ...]], ...] = ()  # what the backend says of it, by name
    first: int = 0  # only so many of the devices that match, in their order; 0: all

    @property
    def everything(self) -> bool:
        return self == ANY

    def miss(self, device: Device) -> str:
        """The first part that does not hold, in words; empty if the device matches."""
        for name, text, globs, fold in (
            ("id", device.id, self.ids, False),
            ("index", device.index, self.indexes, False),
            ("pci address", device.pci_address, self.pci, True),
            ("vendor", device.vendor, self.vendors, True),
            ("model", device.model, self.models, True),
            ("backend", device.backend, self.backends, False),
        ):
            if globs and not _any_glob(text, globs, fold=fold):
                return f"{name} {text!r} is not {_either(globs)}"
        for name, globs in self.attributes:
            found = device.attributes.get(name)
            if found is None:
                return f"it has no {name}"
            if not _any_glob(found, globs, fold=False):
                return f"{name} {found!r} is not {_either(globs)}"
        if self.memory_min_bytes is not None and device.memory_bytes < self.memory_min_bytes:
            return f"memory {device.memory_bytes:,} bytes is under {self.memory_min_bytes:,}"
        if self.memory_max_bytes is not None and device.memory_bytes > self.memory_max_bytes:
            return f"memory {device.memory_bytes:,} bytes is over {self.memory_max_bytes:,}"
        if self.numa and not set(self.numa) & set(device.numa_nodes):
            near = ", ".join(map(str, device.numa_nodes)) or "unknown"
            return f"NUMA node {near} is not {_either(map(str, self.numa))}"
        return ""


ANY = Selector()


class Rule(Struct, frozen=True):
    selector: Selector = ANY
    resource: ResourceName | None = None  # None: leave the device out. May hold {attribute}: a name per kind of device
    replicas: int = 1
    mark: str = ""  # between a device's id and the number of a slot; empty: the usual one
    terms: Terms = Terms()
    also: tuple[Rule, ...] = ()  # the same devices once more, cut otherwise; only one of them is given out
    label: str = ""

    @property
    def shares(self) -> bool:
        return self.replicas > 1 or self.terms.memory is not None

    @property
    def varies(self) -> bool:
        return self.resource is not None and "{" in self.resource

    def names(self, resource: ResourceName) -> bool:
        """Whether the resource is, or can be, one of this rule's own."""
        if self.resource is None or not self.varies:
            return self.resource == resource
        parts = _FIELD.split(self.resource)[::2]
        return re.fullmatch("[-A-Za-z0-9_.]+".join(map(re.escape, parts)), resource) is not None

    def name_for(self, device: Device) -> ResourceName | None:
        """InvalidName if the device's attributes make no resource name."""
        if not self.varies:
            return self.resource

        def word(found: re.Match[str]) -> str:
            value = device.attributes.get(found[1])
            if value is None:
                raise InvalidName("resource name", str(self.resource), f"the device has no {found[1]!r}")
            return _UNFIT.sub(".", value)

        return parse_resource_name(_FIELD.sub(word, str(self.resource)))


_FIELD = re.compile(r"\{([A-Za-z][A-Za-z0-9_-]*)\}")
_UNFIT = re.compile(r"[^-A-Za-z0-9_.]")


NO_UNITS: Mapping[ResourceName, int] = {}
NO_FIXED: Mapping[ResourceName, Fixed] = {}


class RuleMatch(Struct, frozen=True):
    """Which rule a device met, and why not an earlier one. Rules count from 0 here, from 1 in words."""

    device: DeviceId
    rule: int | None
    label: str
    resource: ResourceName | None
    reason: str


class Offering(Struct, frozen=True):
    resources: tuple[Resource, ...]  # by name; only those with at least one slot
    matches: tuple[RuleMatch, ...]  # in device order
    problems: tuple[str, ...]  # devices that are left out, and not because a rule says so
    refused: Mapping[ResourceName, str] = {}  # resources that cannot be offered as they are configured, and why
    needed: tuple[str, ...] = ()  # of these reasons, those that leave nothing to run for


class _Draft(Struct):
    """A resource in the making. Its terms are those of the first rule that names it."""

    terms: Terms
    slots: list[Slot] = field(default_factory=list)
    taken: dict[SlotId, DeviceId] = field(default_factory=dict)  # ids that devices named themselves
    devices: list[Device] = field(default_factory=list)  # whose memory is cut when all of them are known
    unit_bytes: int = 0
    wanted_unit_bytes: int = 0
    note: str = ""


def make_offering(
    inventory: Inventory,
    rules: Sequence[Rule],
    units: Mapping[ResourceName, int] = NO_UNITS,
    fixed: Mapping[ResourceName, Fixed] = NO_FIXED,
) -> Offering:
    """`units`: those of memory that are in use, and stay while they can. `fixed`: those that must stay."""
    devices, problems = _unique(inventory.devices)
    if len(devices) != len(inventory.devices):
        inventory = replace(inventory, devices=tuple(devices))
    flat = [(name, part) for rule in rules for part in (rule, *rule.also) if (name := part.resource) is not None]
    first_rules: dict[ResourceName, Rule] = {}
    for name, part in flat:
        first_rules.setdefault(name, part)
    drafts: dict[ResourceName, _Draft] = {}
    taken: dict[SlotId, DeviceId] = {}
    matches: list[RuleMatch] = []
    counts: Counter[int] = Counter()
    for device in sorted(devices, key=device_key):
        match = _find(device, rules, counts)
        matches.append(match)
        if match.rule is None:
            continue
        counts[match.rule] += 1
        rule = rules[match.rule]
        for part in (rule, *rule.also):
            try:
                name = part.name_for(device)
                if name is None:
                    continue
                first = first_rules.get(name) or first_rules.get(part.resource or name, part)
                draft = drafts.setdefault(name, _Draft(first.terms))
                if part.terms.memory is not None:
                    draft.devices.append(device)
                    continue
                slots = _slots(device, part, draft.taken if device.slots else taken)
            except UsageError as error:
                problems.append(f"device {device.id!r} is left out: {error}")
                continue
            (draft.taken if device.slots else taken).update((slot.id, device.id) for slot in slots)
            draft.slots.extend(slots)
    refused: dict[ResourceName, str] = {}
    for name, draft in sorted(drafts.items()):
        if draft.terms.memory is None:
            continue
        made = cut_memory(draft.devices, draft.terms.memory, units.get(name), fixed.get(name), taken)
        problems += made.problems
        if isinstance(made, Uncut):
            problems.append(why := f"{name} is not offered: {made.why}")
            refused[name] = why
            continue
        draft.slots.extend(made.slots)
        draft.unit_bytes, draft.wanted_unit_bytes, draft.note = made.unit_bytes, made.wanted_unit_bytes, made.note
    needed = [why for name, why in refused.items() if (share := drafts[name].terms.memory) and share.required]
    for name, draft in sorted(drafts.items()):
        if kinds := _differing(draft, inventory):
            problems.append(why := f"{name} is not offered: {kinds}")
            refused[name] = why
            needed.append(why)
    resources = tuple(
        Resource(
            name=name,
            slots=tuple(draft.slots),
            inventory=inventory,
            terms=draft.terms,
            unit_bytes=draft.unit_bytes,
            wanted_unit_bytes=draft.wanted_unit_bytes,
            note=draft.note,
            compact=draft.terms.memory is not None and is_tight(draft.devices, draft.terms.memory, draft.unit_bytes),
        )
        for name, draft in sorted(drafts.items())
        if draft.slots and name not in refused
    )
    return Offering(resources, tuple(matches), tuple(problems), refused, tuple(needed))


def _differing(draft: _Draft, inventory: Inventory) -> str:
    """How devices differ in what they must have alike; empty if they do not."""
    attribute = draft.terms.uniform
    if not attribute:
        return ""
    devices = {slot.device for slot in draft.slots}
    kinds = Counter(found for device in devices if (found := inventory.by_id[device].attributes.get(attribute)))
    if len(kinds) < 2:
        return ""
    counts = ", ".join(f"{count} with {kind}" for kind, count in sorted(kinds.items()))
    return f"its devices differ in {attribute} ({counts}). Make them alike, or give each kind a resource of its own"


def rule_of(resource: ResourceName, rules: Sequence[Rule]) -> Rule | None:
    """The first rule that can give this resource. One with the plain name goes before one that makes names."""
    parts = [part for rule in rules for part in (rule, *rule.also)]
    plain = (part for part in parts if part.resource == resource)
    return next(plain, None) or next((part for part in parts if part.names(resource)), None)


TERM_NAMES = {
    "strategy": "strategy",
    "extra": "set of extra edits",
    "per_container": "number per container",
    "memory": "way to share memory",
    "assign": "assign setting",
    "uniform": "uniform attribute",
    "cleanup": "clean-up",
}


def check_rules(rules: Sequence[Rule]) -> tuple[str, ...]:
    """Contradictions between rules, and rules that can do nothing."""
    problems: list[str] = []
    settings: dict[ResourceName, tuple[int, Rule]] = {}
    closed: int | None = None  # the first rule that takes every device
    for number, rule in enumerate(rules):
        name = _named(number, rule)
        if closed is not None:
            problems.append(
                f"{name} is never reached: {_named(closed, rules[closed])} already takes every device. Move it up"
            )
        elif (twin := _same_selector(rules, number)) is not None:
            problems.append(
                f"{name} is never reached: {_named(twin, rules[twin])} matches the same devices. Remove one of them"
            )
        if closed is None and rule.selector.everything:
            closed = number
        problems += [f"{name}: {problem}" for problem in _own_problems(rule)]
        for part in (rule, *rule.also):
            if part.resource is None:
                continue
            first, other = settings.setdefault(part.resource, (number, part))
            for what in _differences(other.terms, part.terms):
                problems.append(
                    f"{name} gives {part.resource} another {what} than {_named(first, rules[first])}. "
                    f"A resource has one {what}: make them equal, or use two resource names"
                )
    return tuple(problems)


def _find(device: Device, rules: Sequence[Rule], counts: Counter[int]) -> RuleMatch:
    misses: list[str] = []
    for number, rule in enumerate(rules):
        miss = rule.selector.miss(device)
        if not miss and rule.selector.first and counts[number] >= rule.selector.first:
            miss = f"it takes only the first {rule.selector.first}, and has them"
        if not miss:
            verdict = f"matches {_named(number, rule)}"
            if rule.resource is None:
                verdict += ", which leaves it out"
            return RuleMatch(device.id, number, rule.label, _name_or_none(rule, device), "; ".join([verdict, *misses]))
        misses.append(f"not {_named(number, rule)}: {miss}")
    return RuleMatch(device.id, None, "", None, "; ".join(["no rule matches", *misses]))


def _name_or_none(rule: Rule, device: Device) -> ResourceName | None:
    try:
        return rule.name_for(device)
    except InvalidName:
        return None


def _slots(device: Device, rule: Rule, taken: dict[SlotId, DeviceId]) -> tuple[Slot, ...]:
    slots = slots_for(device, rule.replicas, rule.mark)
    if device.slots:
        if not all(0 < len(slot.id) <= SLOT_ID_MAX for slot in slots):  # whatever they hold: pods have them already
            raise InvalidName("slot id", device.id, f"the ids of its slots have 1 to {SLOT_ID_MAX} characters")
    elif slots[0].id == device.id and read_id(device.id) is not None:
        raise InvalidName("slot id", device.id, "parts of memory have such ids. Give the device another one")
    else:
        parse_slot_id(slots[-1].id)  # the longest of them
    for slot in slots:
        if slot.id in taken:
            raise InvalidName("slot id", slot.id, f"device {taken[slot.id]!r} has it already; ids must be unique")
    return slots


def _unique(devices: Iterable[Device]) -> tuple[list[Device], list[str]]:
    """The first of each id. The kubelet counts an id twice if it is listed once healthy and once not."""
    kept: dict[DeviceId, Device] = {}
    problems: list[str] = []
    for device in devices:
        if device.id in kept:
            problems.append(f"device {device.id!r} was found twice; the second one is left out")
        else:
            kept[device.id] = device
    return list(kept.values()), problems


def _own_problems(rule: Rule) -> Iterable[str]:
    selector = rule.selector
    if rule.replicas < 1:
        yield f"replicas is {rule.replicas}; it must be at least 1"
    if rule.resource is None and rule.shares:
        yield f"{'memory' if rule.terms.memory else 'replicas'} has no effect on devices that are left out"
    if rule.terms.memory is not None and rule.replicas > 1:
        yield "has both replicas and memory. A device is shared in one way"
    if rule.resource is None and rule.also:
        yield "also has no effect on devices that are left out"
    names = [part.resource for part in (rule, *rule.also)]
    if len(set(names)) != len(names):
        yield "also names a resource that it has already. Each way to cut a device needs a name of its own"
    if rule.also and sorted(part.shares for part in (rule, *rule.also)) != [False, True]:
        yield "also can offer a device whole and shared: one resource with replicas or memory, one without"
    if (
        selector.memory_min_bytes is not None
        and selector.memory_max_bytes is not None
        and selector.memory_min_bytes > selector.memory_max_bytes
    ):
        yield f"no memory is at least {selector.memory_min_bytes:,} and at most {selector.memory_max_bytes:,} bytes"


def _differences(one: Terms, other: Terms) -> Iterable[str]:
    return [TERM_NAMES[field] for field in Terms.__struct_fields__ if getattr(one, field) != getattr(other, field)]


def _same_selector(rules: Sequence[Rule], number: int) -> int | None:
    selector = rules[number].selector
    return next((earlier for earlier in range(number) if rules[earlier].selector == selector), None)


def _named(number: int, rule: Rule) -> str:
    return f"rule {number + 1} ({rule.label})" if rule.label else f"rule {number + 1}"


def _any_glob(text: str, globs: Iterable[str], *, fold: bool) -> bool:
    if fold:
        return any(fnmatchcase(text.lower(), glob.lower()) for glob in globs)
    return any(fnmatchcase(text, glob) for glob in globs)


def _either(options: Iterable[str]) -> str:
    return " or ".join(repr(option) for option in options)
