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

from fairlead.model.assign import Assign
from fairlead.model.device import Device
from fairlead.model.edits import NO_EDITS, Edits
from fairlead.model.errors import InvalidName, UsageError
from fairlead.model.inventory import Inventory
from fairlead.model.names import DeviceId, ResourceName, SlotId, parse_resource_name, parse_slot_id
from fairlead.model.resource import Resource, Slot, Strategy
from fairlead.policy.memory import Share, is_tight, read_id
from fairlead.policy.order import device_key
from fairlead.policy.sharing import slots_for
from fairlead.policy.units import Fixed, Uncut, cut_memory


class Match(Struct, frozen=True):
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


ANY = Match()


class Rule(Struct, frozen=True):
    match: Match = ANY
    resource: ResourceName | None = None  # None: leave the device out. May hold {attribute}: a name per kind of device
    replicas: int = 1
    memory: Share | None = None  # instead of replicas: the slots are units of memory
    strategy: Strategy = Strategy.ALIGNED
    extra: Edits = NO_EDITS
    prepare: bool = False
    per_container: int = 0
    assign: Assign | None = None
    also: tuple[Rule, ...] = ()  # the same devices once more, cut otherwise; whoever takes one keeps the other away
    label: str = ""

    @property
    def shares(self) -> bool:
        return self.replicas > 1 or self.memory is not None

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
        """InvalidName if the device's own words make no resource name."""
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


class Hit(Struct, frozen=True):
    """Which rule a device met, and why not an earlier one. Rules count from 0 here, from 1 in words."""

    device: DeviceId
    rule: int | None
    label: str
    resource: ResourceName | None
    reason: str


class Assignment(Struct, frozen=True):
    resources: tuple[Resource, ...]  # by name; only those with at least one slot
    hits: tuple[Hit, ...]  # in device order
    problems: tuple[str, ...]  # devices left out through no rule's wish
    refused: Mapping[ResourceName, str] = {}  # resources that cannot be offered as they are configured, and why
    needed: tuple[str, ...] = ()  # of these reasons, those that leave nothing to run for


class _Draft(Struct):
    """A resource being filled. Its settings are those of the first rule that names it."""

    rule: Rule
    slots: list[Slot] = field(default_factory=list)
    devices: list[Device] = field(default_factory=list)  # whose memory is cut when all of them are known
    unit_bytes: int = 0
    wish_bytes: int = 0
    note: str = ""


def assign(
    inventory: Inventory,
    rules: Sequence[Rule],
    units: Mapping[ResourceName, int] = NO_UNITS,
    fixed: Mapping[ResourceName, Fixed] = NO_FIXED,
) -> Assignment:
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
    hits: list[Hit] = []
    counts: Counter[int] = Counter()
    for device in sorted(devices, key=device_key):
        hit = _find(device, rules, counts)
        hits.append(hit)
        if hit.rule is None:
            continue
        counts[hit.rule] += 1
        rule = rules[hit.rule]
        for part in (rule, *rule.also):
            try:
                name = part.name_for(device)
                if name is None:
                    continue
                settings = first_rules.get(name) or first_rules.get(part.resource or name, part)
                draft = drafts.setdefault(name, _Draft(settings))
                if part.memory is not None:
                    draft.devices.append(device)
                    continue
                slots = _slots(device, part.replicas, taken)
            except UsageError as error:
                problems.append(f"device {device.id!r} is left out: {error}")
                continue
            taken.update((slot.id, device.id) for slot in slots)
            draft.slots.extend(slots)
    refused: dict[ResourceName, str] = {}
    for name, draft in sorted(drafts.items()):
        if draft.rule.memory is None:
            continue
        made = cut_memory(draft.devices, draft.rule.memory, units.get(name), fixed.get(name), taken)
        problems += made.problems
        if isinstance(made, Uncut):
            problems.append(why := f"{name} is not offered: {made.why}")
            refused[name] = why
            continue
        draft.slots.extend(made.slots)
        draft.unit_bytes, draft.wish_bytes, draft.note = made.unit_bytes, made.wish_bytes, made.note
    needed = tuple(why for name, why in refused.items() if (share := drafts[name].rule.memory) and share.required)
    resources = tuple(
        Resource(
            name=name,
            slots=tuple(draft.slots),
            inventory=inventory,
            strategy=draft.rule.strategy,
            extra=draft.rule.extra,
            prepare=draft.rule.prepare,
            per_container=draft.rule.per_container,
            unit_bytes=draft.unit_bytes,
            wish_bytes=draft.wish_bytes,
            note=draft.note,
            straddle=draft.rule.memory is not None and draft.rule.memory.straddle,
            hints=draft.rule.memory is None or not draft.rule.memory.ids,
            terse=draft.rule.memory is not None and is_tight(draft.devices, draft.rule.memory, draft.unit_bytes),
            assign=draft.rule.assign,
        )
        for name, draft in sorted(drafts.items())
        if draft.slots
    )
    return Assignment(resources, tuple(hits), tuple(problems), refused, needed)


def rule_of(resource: ResourceName, rules: Sequence[Rule]) -> Rule | None:
    """The first rule that can give this resource. One with the plain name goes before one that makes names."""
    parts = [part for rule in rules for part in (rule, *rule.also)]
    plain = (part for part in parts if part.resource == resource)
    return next(plain, None) or next((part for part in parts if part.names(resource)), None)


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
        elif (twin := _same_match(rules, number)) is not None:
            problems.append(
                f"{name} is never reached: {_named(twin, rules[twin])} matches the same devices. Remove one of them"
            )
        if closed is None and rule.match.everything:
            closed = number
        problems += [f"{name}: {problem}" for problem in _own_problems(rule)]
        for part in (rule, *rule.also):
            if part.resource is None:
                continue
            first, other = settings.setdefault(part.resource, (number, part))
            for what in _differences(other, part):
                problems.append(
                    f"{name} gives {part.resource} another {what} than {_named(first, rules[first])}. "
                    f"A resource has one {what}: make them equal, or use two resource names"
                )
    return tuple(problems)


def _find(device: Device, rules: Sequence[Rule], counts: Counter[int]) -> Hit:
    misses: list[str] = []
    for number, rule in enumerate(rules):
        miss = rule.match.miss(device)
        if not miss and rule.match.first and counts[number] >= rule.match.first:
            miss = f"it takes only the first {rule.match.first}, and has them"
        if not miss:
            verdict = f"matches {_named(number, rule)}"
            if rule.resource is None:
                verdict += ", which leaves it out"
            return Hit(device.id, number, rule.label, _name_or_none(rule, device), "; ".join([verdict, *misses]))
        misses.append(f"not {_named(number, rule)}: {miss}")
    return Hit(device.id, None, "", None, "; ".join(["no rule matches", *misses]))


def _name_or_none(rule: Rule, device: Device) -> ResourceName | None:
    try:
        return rule.name_for(device)
    except InvalidName:
        return None


def _slots(device: Device, replicas: int, taken: dict[SlotId, DeviceId]) -> tuple[Slot, ...]:
    slots = slots_for(device, replicas)
    if replicas == 1 and read_id(device.id) is not None:
        raise InvalidName("slot id", device.id, "parts of memory have such ids. Give the device another one")
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
    match = rule.match
    if rule.replicas < 1:
        yield f"replicas is {rule.replicas}; it must be at least 1"
    if rule.resource is None and rule.shares:
        yield f"{'memory' if rule.memory else 'replicas'} has no effect on devices that are left out"
    if rule.memory is not None and rule.replicas > 1:
        yield "has both replicas and memory. A device is shared in one way"
    if rule.resource is None and rule.also:
        yield "also has no effect on devices that are left out"
    names = [part.resource for part in (rule, *rule.also)]
    if len(set(names)) != len(names):
        yield "also names a resource that it has already. Each way to cut a device needs a name of its own"
    if rule.also and sorted(part.shares for part in (rule, *rule.also)) != [False, True]:
        yield "also can offer a device whole and shared: one resource with replicas or memory, one without"
    if (
        match.memory_min_bytes is not None
        and match.memory_max_bytes is not None
        and match.memory_min_bytes > match.memory_max_bytes
    ):
        yield f"no memory is at least {match.memory_min_bytes:,} and at most {match.memory_max_bytes:,} bytes"


def _differences(one: Rule, other: Rule) -> Iterable[str]:
    if one.strategy != other.strategy:
        yield "strategy"
    if one.extra != other.extra:
        yield "set of extra edits"
    if one.prepare != other.prepare:
        yield "prepare setting"
    if one.per_container != other.per_container:
        yield "number per container"
    if one.memory != other.memory:
        yield "way to share memory"
    if one.assign != other.assign:
        yield "assign setting"


def _same_match(rules: Sequence[Rule], number: int) -> int | None:
    match = rules[number].match
    return next((earlier for earlier in range(number) if rules[earlier].match == match), None)


def _named(number: int, rule: Rule) -> str:
    return f"rule {number + 1} ({rule.label})" if rule.label else f"rule {number + 1}"


def _any_glob(text: str, globs: Iterable[str], *, fold: bool) -> bool:
    if fold:
        return any(fnmatchcase(text.lower(), glob.lower()) for glob in globs)
    return any(fnmatchcase(text, glob) for glob in globs)


def _either(options: Iterable[str]) -> str:
    return " or ".join(repr(option) for option in options)
