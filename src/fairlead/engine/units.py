"""The units of memory in use: which may change now, and which must stay because pods hold some or may hold some."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from fairlead.engine.unitfile import UnitFiles
from fairlead.model.device import Device
from fairlead.model.names import ResourceName, SlotId
from fairlead.model.resource import MemoryTerms, Resource
from fairlead.policy.offering.memory import unit_in_use
from fairlead.policy.offering.rules import Offering, Rule, rule_of
from fairlead.policy.offering.units import Fixed, devices_of, is_cut_with

GRANT_S = 60.0  # an Allocate is under way no longer than this before the kubelet names its pod

Held = Mapping[ResourceName, frozenset[SlotId]]
OnDisk = Callable[[], frozenset[ResourceName] | None]
Listed = Callable[[ResourceName], frozenset[SlotId]]


class Units:
    """`on_disk`: resources that the kubelet has written down for a pod; None: not read since it was asked.

    `listed`: ids that the kubelet has written down as offered.
    """

    def __init__(
        self,
        files: UnitFiles | None = None,
        on_disk: OnDisk = frozenset,
        listed: Listed = lambda _name: frozenset(),
    ) -> None:
        self.files = files or UnitFiles()
        self._on_disk = on_disk
        self._listed = listed
        self._chosen: dict[ResourceName, tuple[MemoryTerms, int]] = {}  # by this process, and for what
        self._granted_s: dict[ResourceName, float] = {}
        self._waiting: set[ResourceName] = set()  # whose unit would be another if it could
        self._unsure: set[ResourceName] = set()  # whose unit is not known
        self.asked_s = float("inf")  # when the kubelet was last asked who holds what

    @property
    def waiting(self) -> set[ResourceName]:
        """What waits until no pod holds a unit."""
        return self._waiting | self._unsure

    @property
    def chosen(self) -> dict[ResourceName, int]:
        """By this process."""
        return {name: unit for name, (_, unit) in self._chosen.items()}

    @property
    def granted_s(self) -> dict[ResourceName, float]:
        """When units were last given to a container."""
        return dict(self._granted_s)

    def restore(
        self, chosen: Mapping[ResourceName, tuple[MemoryTerms, int]], granted_s: Mapping[ResourceName, float]
    ) -> None:
        """As they were in another process."""
        self._chosen, self._granted_s = dict(chosen), dict(granted_s)

    def asked(self, name: ResourceName) -> int:
        """The unit that the rule names; 0 if this process did not choose for it."""
        chosen = self._chosen.get(name)
        return chosen[0].unit_bytes if chosen else 0

    def granted(self, name: ResourceName, now_s: float) -> None:
        if name in self.files.units:
            self._granted_s[name] = now_s

    def decide(
        self,
        devices: tuple[Device, ...],
        rules: tuple[Rule, ...],
        held: Held | None,
        served: Mapping[ResourceName, Resource],
    ) -> tuple[dict[ResourceName, int], dict[ResourceName, Fixed]]:
        """Units that stay while they can, and units that must stay."""
        keep: dict[ResourceName, int] = {}
        fixed: dict[ResourceName, Fixed] = {}
        plain = (rule.resource for rule in rules if rule.terms.memory is not None and rule.resource is not None)
        for name in {*(held or {}), *self._chosen, *self.files.units, *plain}:
            rule = rule_of(name, rules)
            share = rule.terms.memory if rule else None
            if share is None:
                continue
            mine = None if held is None else held.get(name, frozenset())
            chosen = self._chosen.get(name)
            if chosen is not None and chosen[0] == share:
                keep[name] = chosen[1]
            elif mine and not share.ids and (unit := unit_in_use(mine)):
                keep[name] = unit  # an earlier daemon may have cut with a unit that this one would not choose
            unit = self.files.units.get(name, 0)
            if (unit or share.ids) and (why := self._holds(name, share, mine)):
                before = served.get(name)
                if unit and before is None and self._is_of_old(unit, share, name, devices):
                    unit = share.unit_bytes
                first = frozenset(before.slots_of) if before else devices_of(mine or (), devices, share.ids)
                fixed[name] = Fixed(unit, why, first, frozenset() if unit or before else self._listed(name))
        return keep, fixed

    def _is_of_old(self, unit: int, share: MemoryTerms, name: ResourceName, devices: tuple[Device, ...]) -> bool:
        """Whether another plugin has served the resource since the file was written, in the unit that is asked for."""
        listed = self._listed(name) if share.ids and unit != share.unit_bytes else frozenset()
        theirs = is_cut_with(share.unit_bytes, listed, devices, share.ids)
        return theirs and not is_cut_with(unit, listed, devices, share.ids)

    def settled(self, offering: Offering, rules: tuple[Rule, ...], fixed: Mapping[ResourceName, Fixed]) -> None:
        self._waiting.clear()
        for made in offering.resources:
            rule = rule_of(made.name, rules)
            if not made.unit_bytes or rule is None or rule.terms.memory is None:
                continue
            if made.name in fixed and made.wanted_unit_bytes:
                self._waiting.add(made.name)
                self._chosen.pop(made.name, None)  # it was not chosen: the next look may
            else:
                self._chosen[made.name] = rule.terms.memory, made.unit_bytes
            self.files.keep({made.name: made.unit_bytes})

    def unsure(
        self, resources: Iterable[Resource], rules: tuple[Rule, ...], held: Held | None
    ) -> dict[ResourceName, str]:
        """Resources whose file is damaged while pods may hold units: how large these are is not known."""
        found: dict[ResourceName, str] = {}
        for made in resources:
            rule, damage = rule_of(made.name, rules), self.files.damage(made.name)
            if not damage or rule is None or rule.terms.memory is None:
                continue
            mine = None if held is None else held.get(made.name, frozenset())
            if self._holds(made.name, rule.terms.memory, mine):
                found[made.name] = (
                    f"{damage}, and pods hold units of {made.name} or may hold some: their size is not known, so "
                    "nothing more is offered. Drain the node; or, if the unit was never another than now, remove the "
                    "file and restart"
                )
            else:
                self.files.forget_damage(made.name)
        self._unsure = set(found)
        return found

    def _holds(self, name: ResourceName, share: MemoryTerms, mine: frozenset[SlotId] | None) -> str:
        """Why units must not change their size; empty if they may."""
        if mine is None:
            file = self.files.where(name)
            return (
                "the kubelet does not say who holds units. It changes when pod-resources is there and says that no pod "
                f"does; or remove {file} when the node is drained, and restart"
            )
        if not share.ids:
            return ""  # our own ids say their unit: devices that are held in another one are kept back
        if mine:
            return "pods hold units of it. Drain the node to change it"
        written = self._on_disk()
        if self.asked_s < self._granted_s.get(name, -GRANT_S) + GRANT_S or written is None or name in written:
            return "the kubelet may have a pod with units on its books. It changes when these pods are gone"
        return ""
