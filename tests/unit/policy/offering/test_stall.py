"""What a list costs the kubelet: slots times held ids, and a word about it where it is much."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.unit.policy.placement.cards import GIB, NAME, node, shared

from fairlead.model.names import ResourceName
from fairlead.model.resource import MemoryTerms
from fairlead.policy.offering.memory import MIB
from fairlead.policy.offering.stall import MAX_STALL_S, explain_stall, most_slots, stall_s, stalls


@pytest.mark.parametrize(
    ("slots", "held", "seconds"),
    [
        # One machine; the third is a fault of one card of eight.
        (2_560, 2_048, 0.4),
        (10_240, 8_192, 6.9),
        (5_120, 16_384, 5.7),
        (40_960, 16_384, 65.6),
        # Another one, with two cores: `python -m bench --only kubelet`.
        (512, 512, 0.033),
        (1_024, 1_024, 0.139),
        (2_048, 2_048, 0.592),
        (4_096, 4_096, 2.302),
        (8_192, 8_192, 8.954),
    ],
)
def test_the_model_is_no_less_than_a_true_kubelet_took_and_at_most_two_and_a_half_times_that(
    slots: int, held: int, seconds: float
):
    """Kubelet 1.36.4."""
    assert seconds <= stall_s(slots, held) <= 2.5 * seconds


@given(st.floats(0.001, 100.0))
def test_the_longest_list_that_is_borne_is_the_longest(seconds: float):
    most = most_slots(seconds)
    assert stall_s(most, most) <= seconds * (1 + 1e-9)
    assert stall_s(most + 1, most + 1) > seconds * (1 - 1e-9)


def test_a_list_of_the_default_is_well_under_a_second():
    assert most_slots() >= 1_800
    assert MAX_STALL_S < 1


def test_ids_of_all_resources_count():
    one = shared(node(GIB), MemoryTerms(MIB, grow=False))
    other = replace(one, name=ResourceName("example.com/other"))
    alone, both = stalls([one])[NAME], stalls([one, other])[NAME]
    assert both.seconds == 2 * alone.seconds


def test_what_is_cheap_needs_no_word_and_what_is_dear_has_a_cure():
    def words(gib: int, unit: int, *, memory: bool = True) -> str:
        return explain_stall(stalls([shared(node(gib * GIB), MemoryTerms(unit, grow=False))])[NAME], memory=memory)

    assert words(80, GIB) == ""
    assert words(80, 64 * MIB) == (
        "with all 1,280 slots held, a kubelet that restarts is busy with the list for about 0.25 s, "
        "and admits no pod meanwhile"
    )
    assert "about 1,007 s" in words(80, MIB)
    assert words(80, MIB).endswith("with a larger unit: memory.unit, memory.maxStall or --max-stall")
    assert words(80, MIB, memory=False).endswith("with fewer replicas")
