"""How large a node's units of memory are, as an annotation of the node says it: `aliyun.com/gpu-mem=40960x16MiB`.

With the number of units, so that the word of a daemon that is gone is not taken for that of the plugin after it. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from fairlead.model.resource import Resource
from fairlead.policy.memory import MIB

UNITS = "units.fairlead/"  # and the daemon's name
_MARK = re.compile(r"([0-9]{1,9})x([1-9][0-9]{0,9})MiB")


def write_units(resources: Iterable[Resource]) -> str:
    return ",".join(f"{one.name}={len(one.slots)}x{one.unit_bytes // MIB}MiB" for one in resources if one.unit_bytes)


def read_unit(annotations: Mapping[str, str], resource: str, count: int) -> int | None:
    """MiB in a unit, if one of the annotations says it of just so many units."""
    for key, text in annotations.items():
        for entry in text.split(",") if key.startswith(UNITS) else ():
            name, _, mark = entry.partition("=")
            if name == resource and (found := _MARK.fullmatch(mark)) and int(found[1]) == count:
                return int(found[2])
    return None
