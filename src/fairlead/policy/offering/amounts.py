"""Amounts without devices behind them: how much to publish, and what to change on a node for it. Pure.

The kubelet hands nothing out for such a resource; the scheduler alone counts it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

from fairlead.model.errors import InvalidQuantity
from fairlead.model.inventory import Conditions, Inventory
from fairlead.model.names import ResourceName
from fairlead.model.quantity import AMOUNT_MAX, parse_amount
from fairlead.policy.offering.rules import Selector


class Amount(Struct, frozen=True):
    """So much for each device that matches, or a fixed total."""

    resource: ResourceName
    selector: Selector = Selector()
    per_device: int = 0
    total: int = 0
    unusable: bool = False  # devices that are not usable count too
    adopt: bool = False  # take the name over from another client that has set it


def count(inventory: Inventory, conditions: Conditions, amounts: Sequence[Amount]) -> dict[str, int]:
    """What there is of each resource now. Several entries of one name add up."""
    found: dict[str, int] = {}
    for amount in amounts:
        number = amount.total
        if amount.per_device:
            matching = [device for device in inventory.devices if not amount.selector.miss(device)]
            counted = sum(amount.unusable or device.id not in conditions.unhealthy for device in matching)
            number = amount.per_device * counted
        found[amount.resource] = min(AMOUNT_MAX, found.get(amount.resource, 0) + number)
    return found


class Posted(Struct, frozen=True):
    """What a node says of its amounts, and which of them a client has signed for."""

    capacity: Mapping[str, str]
    allocatable: Mapping[str, str]
    owners: Mapping[str, str]  # resource -> who signed

    def amount(self, resource: str) -> int | None:
        """What stands there in both places; None where there is nothing, nonsense or a difference."""
        pair = {_amount(self.capacity.get(resource)), _amount(self.allocatable.get(resource))}
        return pair.pop() if len(pair) == 1 else None

    def __contains__(self, resource: object) -> bool:
        return resource in self.capacity or resource in self.allocatable


class AmountChange(Struct, frozen=True):
    put: Mapping[str, int]
    drop: tuple[str, ...]
    signed: tuple[str, ...]  # all that is ours afterwards
    refused: Mapping[str, str]  # resource -> why it is left alone

    @property
    def empty(self) -> bool:
        return not self.put and not self.drop


def needed_change(
    wanted: Mapping[str, int], posted: Posted, owner: str, adopt: frozenset[str] = frozenset()
) -> AmountChange:
    """The smallest change after which exactly `wanted` is the owner's. Amounts of other owners are not touched."""
    refused = {}
    for resource in wanted:
        signed_by = posted.owners.get(resource)
        if resource in adopt or signed_by == owner or resource not in posted:
            continue
        if signed_by is not None:
            refused[resource] = f"{signed_by!r} keeps it"
        elif _amount(posted.capacity.get(resource)) != 0:  # the kubelet leaves a 0 where a plugin was
            refused[resource] = f"it is {posted.capacity.get(resource)} already, and not by Fairlead"
    ours = tuple(sorted(wanted.keys() - refused.keys()))
    mine = {resource for resource, name in posted.owners.items() if name == owner}
    put = {
        resource: wanted[resource]
        for resource in ours
        if posted.amount(resource) != wanted[resource] or resource not in mine
    }
    return AmountChange(put, tuple(sorted(mine - wanted.keys())), ours, refused)


def amended(posted: Posted, owner: str, put: Mapping[str, int], drop: Collection[str] = ()) -> dict[str, int]:
    """What is wanted after a change by hand: all that the owner has signed for so far, with the change."""
    kept = {
        resource: number
        for resource, name in posted.owners.items()
        if name == owner and resource not in drop and (number := _amount(posted.capacity.get(resource))) is not None
    }
    return {**kept, **put}


def _amount(text: str | None) -> int | None:
    try:
        return None if text is None else parse_amount(text)
    except InvalidQuantity:
        return None
