"""The stock: all sources together, as one inventory, and as resources once rules are applied."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from fairlead.app.source import Source
from fairlead.model.device import Device
from fairlead.model.health import Condition
from fairlead.model.inventory import NO_LINKS, Findings, Inventory, Links
from fairlead.model.names import DeviceId, ResourceName, SlotId
from fairlead.model.resource import Resource
from fairlead.policy.retain import retain
from fairlead.policy.rules import Assignment, Rule, assign
from fairlead.policy.sharing import device_of


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

    def __init__(self) -> None:
        self._served: dict[ResourceName, Resource] = {}
        self.assignment = Assignment((), (), ())
        self.problems: tuple[str, ...] = ()

    def settle(
        self,
        inventory: Inventory,
        rules: tuple[Rule, ...],
        held: Mapping[ResourceName, frozenset[SlotId]] | None,
        preparing: frozenset[str],
        now_s: float,
    ) -> tuple[Resource, ...]:
        """The resources to serve now. `held` None: nobody knows who holds what, so no slot leaves."""
        self.assignment = assign(inventory, rules)
        offered = {resource.name: resource for resource in self.assignment.resources}
        named = {rule.resource: rule for rule in reversed(rules) if rule.resource is not None}
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
                resource = replace(before, slots=(), inventory=inventory)
                if rule := named.get(name):
                    resource = replace(resource, strategy=rule.strategy, extra=rule.extra)
            elif preparing and any(device.backend in preparing for device in _devices(resource)):
                resource = replace(resource, prepare=True)
            served[name] = retain(before, resource, mine, now_s=now_s)
        if held:
            served = _withhold(served, held)
        self._served = served
        self.problems = tuple(problems)
        return tuple(served[name] for name in sorted(served))

    @property
    def waiting(self) -> bool:
        """Whether a slot is listed, or kept back, only because it or its device may be in use."""
        slots = (slot for resource in self._served.values() for slot in resource.slots)
        return any(slot.retired_s is not None or slot.withheld for slot in slots)


def _withhold(
    served: Mapping[ResourceName, Resource], held: Mapping[ResourceName, frozenset[SlotId]]
) -> dict[ResourceName, Resource]:
    """A device that a pod holds as it was offered before is not given to another pod as it is offered now.

    Rules may have moved it to another resource, or cut it into more or fewer slots.
    """
    busy = set()
    for name, resource in served.items():
        offered = {slot.id for slot in resource.slots if slot.retired_s is None}
        busy |= {device_of(slot) for slot in held.get(name, frozenset()) - offered}
    if not busy:
        return dict(served)
    return {
        name: replace(
            resource,
            slots=tuple(
                replace(slot, withheld=True) if slot.device in busy and slot.retired_s is None else slot
                for slot in resource.slots
            ),
        )
        for name, resource in served.items()
    }


def _devices(resource: Resource) -> Iterable[Device]:
    return (device for device_id in resource.slots_of if (device := resource.inventory.by_id.get(device_id)))


def preparing(sources: Iterable[Source]) -> frozenset[str]:
    return frozenset(source.name for source in sources if source.prepare is not None)
