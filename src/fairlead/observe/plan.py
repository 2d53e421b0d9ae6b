"""The plan of a configuration: what would be offered on this node, and which rule each device meets."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec import Struct

from fairlead.model.errors import Oversize
from fairlead.model.holdings import Holdings
from fairlead.model.inventory import ALL_HEALTHY, Inventory
from fairlead.observe.status import DeviceFacts, ResourceFacts, device_facts, resource_facts
from fairlead.policy.offering import budget
from fairlead.policy.offering.amounts import Amount, count
from fairlead.policy.offering.rules import Offering
from fairlead.policy.offering.stall import stalls


class PlannedResource(ResourceFacts, frozen=True, kw_only=True):
    devices: int
    slots: int
    list_bytes: int
    worst_bytes: int
    limit_bytes: int


class PlannedAmount(Struct, frozen=True):
    name: str
    amount: int


class PlannedDevice(DeviceFacts, frozen=True, kw_only=True):
    resource: str | None
    rule: str | None
    reason: str


class Stranded(Struct, frozen=True):
    """A container that holds slots which would no longer be offered."""

    holder: str
    resource: str
    slots: int


class Holding(Struct, frozen=True):
    """Those that live pods hold, and would lose their place in the list: what was looked at, and what was found."""

    stranded: tuple[Stranded, ...] = ()
    not_looked_at: str = ""  # what of it, and why; empty: all was


class Plan(Struct, frozen=True, kw_only=True):
    resources: tuple[PlannedResource, ...]
    amounts: tuple[PlannedAmount, ...]
    devices: tuple[PlannedDevice, ...]
    holding: Holding = Holding()
    problems: tuple[str, ...]

    @property
    def good(self) -> bool:
        """Something would be offered, and nothing is wrong."""
        return bool(self.resources or any(row.amount for row in self.amounts)) and not self.problems


def find_stranded(offering: Offering, holdings: Holdings, served: Collection[str]) -> tuple[Stranded, ...]:
    """Of the resources that are planned or `served` now. Others belong to other plugins."""
    offered = {resource.name: resource.by_id for resource in offering.resources}
    return tuple(
        Stranded("/".join(holder), name, len(lost))
        for name in sorted({*offered, *(name for name in holdings.by_resource if name in served)})
        for holder, slots in sorted(holdings.by_holder(name).items())
        if (lost := slots - offered.get(name, {}).keys())
    )


def make_plan(
    inventory: Inventory,
    offering: Offering,
    problems: Sequence[str],
    amounts: Sequence[Amount] = (),
    holding: Holding | None = None,
) -> Plan:
    refused = []
    resources = []
    costs = stalls(offering.resources)
    for resource in offering.resources:
        try:
            budget.check(resource)
        except Oversize as error:
            refused.append(str(error))
        resources.append(
            PlannedResource(
                **resource_facts(resource, costs[resource.name]),
                devices=len(resource.slots_of),
                slots=len(resource.slots),
                list_bytes=budget.list_bytes(resource, ALL_HEALTHY),
                worst_bytes=budget.worst_bytes(resource),
                limit_bytes=budget.KUBELET_MESSAGE_MAX_BYTES,
            )
        )
    devices = {device.id: device for device in inventory.devices}
    return Plan(
        resources=tuple(resources),
        amounts=tuple(PlannedAmount(name, amount) for name, amount in count(inventory, ALL_HEALTHY, amounts).items()),
        devices=tuple(
            PlannedDevice(
                **device_facts(devices[match.device]),
                resource=match.resource,
                rule=match.label if match.rule is not None else None,
                reason=match.reason,
            )
            for match in offering.matches
        ),
        holding=holding or Holding(),
        problems=(*problems, *offering.problems, *refused),
    )
