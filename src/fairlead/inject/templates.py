"""Renders the templates of a rule's edits with the facts of a grant: `{ids}`, `{count}`, `{memoryMib}` and so on.

Only these variables are replaced, and those that the grant carries, such as `{podName}`. Any other brace stays as it
is, so that JSON in an environment variable survives. With several devices a variable is a list, in the order of
`{ids}`. An environment variable whose name holds `{n}` is set once per device, counted from 0, and its value is
rendered for that device alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from msgspec.structs import replace

from fairlead.model.edits import Edits, Grant

MIB = 1 << 20

VARIABLES: dict[str, Callable[[Grant], str]] = {
    "ids": lambda grant: ",".join(device.id for device in grant.devices),
    "indexes": lambda grant: ",".join(device.index for device in grant.devices),
    "slots": lambda grant: ",".join(grant.slots),
    "count": lambda grant: str(len(grant.slots)),
    "resource": lambda grant: grant.resource,
}
MEMORY_VARIABLES: dict[str, Callable[[Grant], str]] = {
    "units": lambda grant: ",".join(map(str, grant.units)),
    "memoryMib": lambda grant: ",".join(str(units * grant.unit_bytes // MIB) for units in grant.units),
    "memoryTotalMib": lambda grant: str(sum(grant.units) * grant.unit_bytes // MIB),
    "memoryPercent": lambda grant: ",".join(map(str, _percents(grant))),
}
EACH = "{n}"
NAME = "{resource}"  # in the name of an environment variable: in capitals, as such names are
ASSIGNMENT_VARIABLES = ("podName", "podNamespace", "podUnits", "assigned", "deviceUnits", "deviceMib", "nodeUnits")
ANNOTATION = "annotation:"  # before the key of an annotation of the pod
_ALL = VARIABLES | MEMORY_VARIABLES
_VARIABLE = re.compile("{([A-Za-z]+(?::[^{}]+)?)}")
_UNFIT = re.compile("[^A-Z0-9]")


def render(edits: Edits, grant: Grant) -> Edits:
    if not edits.env and not edits.annotations:
        return edits
    return replace(edits, env=_render_all(edits.env, grant), annotations=_render_all(edits.annotations, grant))


def _render_all(templates: Mapping[str, str], grant: Grant) -> dict[str, str]:
    rendered: dict[str, str] = {}
    for name, template in templates.items():
        if "{" not in name:
            rendered[name] = _render(template, grant)
            continue
        key = name.replace(NAME, _UNFIT.sub("_", grant.resource.upper()))
        for number, part in enumerate(_each(grant) if EACH in name else (grant,)):
            rendered[key.replace(EACH, str(number))] = _render(template, part)
    return rendered


def _render(template: str, grant: Grant) -> str:
    if "{" not in template:
        return template
    known = _ALL if grant.unit_bytes else VARIABLES

    def value(found: re.Match[str]) -> str:
        make = known.get(found[1])
        return make(grant) if make is not None else grant.variables.get(found[1], found[0])

    return _VARIABLE.sub(value, template)


def _each(grant: Grant) -> Iterator[Grant]:
    """The grant, device by device. Slots are in the order of the devices."""
    start = 0
    for device, units in zip(grant.devices, grant.units, strict=True):
        slots = grant.slots[start : start + units]
        start += units
        yield Grant(grant.resource, slots, (device,), grant.unit_bytes, (units,), grant.variables)


def _percents(grant: Grant) -> Iterator[int]:
    """Of what is offered of the device, rounded down. At least 1: to some limiters 0 means that there is no limit."""
    for device, units in zip(grant.devices, grant.units, strict=True):
        yield max(1, units * 100 // max(1, device.memory_bytes // grant.unit_bytes))
