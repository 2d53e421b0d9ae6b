"""The short form of the campaign. `python -m tests.campaign` is the long one."""

from __future__ import annotations

import pytest

from tests.campaign.events import Event, generate, read, write
from tests.campaign.run import run
from tests.campaign.shrink import shrink


@pytest.mark.parametrize("seed", [11, 12])
def test_the_node_comes_right_after_any_faults(seed: int) -> None:
    result = run(generate(seed, 180), seed)
    assert result.failure is None, f"{result.failure}; replay: python -m tests.campaign --events 180 --seed {seed}"


def test_a_seed_gives_the_same_events_and_a_file_holds_them() -> None:
    events = generate(5, 200)
    assert events == generate(5, 200)
    assert events[:100] == generate(5, 100)[:100]
    assert events != generate(6, 200)
    assert read("# a comment\n" + write(events)) == events


def test_a_failing_list_is_shrunk_to_what_matters() -> None:
    events = [Event("fail", n) for n in range(500)]
    short = shrink(events, lambda some: {17, 450} <= {event.n for event in some}, 10.0)
    assert [event.n for event in short] == [17, 450, 499]
