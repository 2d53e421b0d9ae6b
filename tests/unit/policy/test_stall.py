"""What a list costs the kubelet: slots times held ids, and a word about it where it is much."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.unit.policy.cards import GIB, NAME, node, shared

from fairlead.model.names import ResourceName
from fairlead.policy.memory import MIB, Share
from fairlead.policy.stall import MAX_STALL_S, explain_stall, most_slots, stall_s, stalls


@pytest.mark.parametrize(
    ("slots", "held", "seconds"),
    [(2_560, 2_048, 0.4), (10_240, 8_192, 6.9), (5_120, 16_384, 5.7), (40_960, 16_384, 65.6)],
)
def test_the_model_is_near_what_a_true_kubelet_took(slots: int, held: int, seconds: float):
    """Kubelet 1.36.4; the third is a fault of one card of eight. Their machine's load was not recorded."""
    assert stall_s(slots, held) == pytest.approx(seconds, rel=0.5)
    assert stall_s(slots, held) >= seconds


@given(st.floats(0.001, 100.0))
def test_the_longest_list_that_is_borne_is_the_longest(seconds: float):
    most = most_slots(seconds)
    assert stall_s(most, most) <= seconds * (1 + 1e-9)
    assert stall_s(most + 1, most + 1) > seconds * (1 - 1e-9)


def test_a_list_of_the_default_is_well_under_a_second():
    assert most_slots() >= 2_000
    assert MAX_STALL_S < 1


def test_ids_of_all_resources_count():
    one = shared(node(GIB), Share(MIB, grow=False))
    other = replace(one, name=ResourceName("example.com/other"))
    alone, both = stalls([one])[NAME], stalls([one, other])[NAME]
    assert both.seconds == 2 * alone.seconds


def test_what_is_cheap_needs_no_word_and_what_is_dear_has_a_cure():
    def words(gib: int, unit: int, *, memory: bool = True) -> str:
        return explain_stall(stalls([shared(node(gib * GIB), Share(unit, grow=False))])[NAME], memory=memory)

    assert words(80, GIB) == ""
    assert words(80, 64 * MIB) == (
        "with all 1,280 slots held, a kubelet that restarts is busy with the list for about 0.16 s, "
        "and admits no pod meanwhile"
    )
    assert "about 671 s" in words(80, MIB)
    assert words(80, MIB).endswith("with a larger unit: memory.unit, memory.maxStall or --max-stall")
    assert words(80, MIB, memory=False).endswith("with fewer replicas")
