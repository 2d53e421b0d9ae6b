"""The size of units as a node tells it: what is written is read, of just that list."""

from __future__ import annotations

from tests.unit.policy.placement.cards import GIB, NAME, node, shared

from fairlead.model.resource import MemoryTerms
from fairlead.policy.offering.memory import MIB
from fairlead.policy.offering.units import UNITS, read_unit, write_units


def test_what_is_written_is_read():
    text = write_units([shared(node(GIB, GIB), MemoryTerms(16 * MIB, grow=False))])
    assert text == f"{NAME}=128x16MiB"
    assert read_unit({f"{UNITS}doslab": text, "other": "x"}, NAME, 128) == 16
    assert read_unit({f"{UNITS}doslab": text}, NAME, 127) is None
    assert read_unit({"elsewhere/doslab": text}, NAME, 128) is None
