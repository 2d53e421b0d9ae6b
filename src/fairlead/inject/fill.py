"""Fill a rule's edits with the facts of a grant: `{ids}`, `{count}`, `{memoryMib}` and so on.

Only these words are replaced, and those that the grant brings along, such as `{podName}`; any other brace stays as it
is, so that JSON in a variable survives. With several devices
a word is a list, in the order of `{ids}`. A variable whose name holds `{n}` is set once per device, counted from 0, and
its words are those of that device.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from msgspec.structs import replace

from fairlead.model.edits import Edits, Grant

MIB = 1 << 20

WORDS: dict[str, Callable[[Grant], str]] = {
    "ids": lambda grant: ",".join(device.id for device in grant.devices),
    "indexes": lambda grant: ",".join(device.index for device in grant.devices),
    "slots": lambda grant: ",".join(grant.slots),
    "count": lambda grant: str(len(grant.slots)),
    "resource": lambda grant: grant.resource,
}
MEMORY_WORDS: dict[str, Callable[[Grant], str]] = {
    "units": lambda grant: ",".join(map(str, grant.units)),
    "memoryMib": lambda grant: ",".join(str(units * grant.unit_bytes // MIB) for units in grant.units),
    "memoryTotalMib": lambda grant: str(sum(grant.units) * grant.unit_bytes // MIB),
    "memoryPercent": lambda grant: ",".join(map(str, _percents(grant))),
}
EACH = "{n}"
NAME = "{resource}"  # in the name of a variable: in capitals, as such names are
ASSIGN_WORDS = ("podName", "podNamespace", "podUnits", "assigned", "deviceUnits", "deviceMib", "nodeUnits")
NOTE = "annotation:"  # before the key of an annotation of the pod
_ALL = WORDS | MEMORY_WORDS
_WORD = re.compile("{([A-Za-z]+(?::[^{}]+)?)}")
_UNFIT = re.compile("[^A-Z0-9]")


def fill(edits: Edits, grant: Grant) -> Edits:
    if not edits.env and not edits.annotations:
        return edits
    return replace(edits, env=_fill(edits.env, grant), annotations=_fill(edits.annotations, grant))


def _fill(templates: Mapping[str, str], grant: Grant) -> dict[str, str]:
    filled: dict[str, str] = {}
    for name, template in templates.items():
        if "{" not in name:
            filled[name] = _text(template, grant)
            continue
        key = name.replace(NAME, _UNFIT.sub("_", grant.resource.upper()))
        for number, part in enumerate(_each(grant) if EACH in name else (grant,)):
            filled[key.replace(EACH, str(number))] = _text(template, part)
    return filled


def _text(template: str, grant: Grant) -> str:
    if "{" not in template:
        return template
    words = _ALL if grant.unit_bytes else WORDS

    def word(found: re.Match[str]) -> str:
        make = words.get(found[1])
        return make(grant) if make is not None else grant.words.get(found[1], found[0])

    return _WORD.sub(word, template)


def _each(grant: Grant) -> Iterator[Grant]:
    """The grant, device by device. Slots are in the order of the devices."""
    start = 0
    for device, units in zip(grant.devices, grant.units, strict=True):
        slots = grant.slots[start : start + units]
        start += units
        yield Grant(grant.resource, slots, (device,), grant.unit_bytes, (units,), grant.words)


def _percents(grant: Grant) -> Iterator[int]:
    """Of what is offered of the device, rounded down. At least 1: to some limiters 0 means that there is no limit."""
    for device, units in zip(grant.devices, grant.units, strict=True):
        yield max(1, units * 100 // max(1, device.memory_bytes // grant.unit_bytes))
