"""From the amounts that people wrote to those that are published, with every fault named."""

from __future__ import annotations

from fairlead.config.compile import Problem, compile_selector
from fairlead.config.spec import AmountSpec, Config
from fairlead.model.errors import InvalidName, InvalidQuantity
from fairlead.model.names import ResourceName, parse_resource_name
from fairlead.model.quantity import parse_amount
from fairlead.policy.offering.amounts import Amount


def compile_amounts(config: Config) -> tuple[tuple[Amount, ...], list[Problem]]:
    """The amounts, and everything that is wrong with them. They are complete only if there is no problem."""
    problems: list[Problem] = []
    offered = {rule.resource for rule in config.rules}
    amounts = tuple(_amount(spec, number, offered, problems) for number, spec in enumerate(config.amounts))
    return amounts, problems


def _amount(spec: AmountSpec, number: int, offered: set[str], problems: list[Problem]) -> Amount:
    at = ("amounts", number)
    try:
        parse_resource_name(spec.resource)
    except InvalidName as error:
        problems.append(((*at, "resource"), str(error)))
    if spec.resource in offered:
        problems.append(
            ((*at, "resource"), f"a rule offers {spec.resource} with devices, and the kubelet tells its amount itself")
        )
    if bool(spec.per_device) == (spec.total != ""):
        problems.append((at, "needs either perDevice, such as 100, or total, such as 5"))
    total = 0
    try:
        total = parse_amount(str(spec.total)) if spec.total != "" else 0
    except InvalidQuantity as error:
        problems.append(((*at, "total"), str(error)))
    return Amount(
        ResourceName(spec.resource),
        compile_selector(spec.match, (*at, "match"), problems),
        spec.per_device,
        total,
        unusable=spec.unusable,
        adopt=spec.adopt,
    )
