"""The short form of the campaign. `python -m tests.campaign` is the long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlead.programs.replay.compare import Comparison
from tests.campaign.events import Event, generate, read, write
from tests.campaign.node import Node
from tests.campaign.run import run
from tests.campaign.shrink import shrink


@pytest.mark.parametrize("seed", [11, 12])
def test_the_node_comes_right_after_any_faults(seed: int) -> None:
    result = run(generate(seed, 180), seed)
    assert result.failure is None, f"{result.failure}; replay: python -m tests.campaign --events 180 --seed {seed}"


def test_what_a_recorded_campaign_answered_is_answered_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Faults, reloads, restarts, kubelets that misbehave: each list and each answer comes out to the byte."""
    recording = tmp_path / "flight.rec"
    true_init = Node.__init__

    def init(self: Node, root: Path, seed: int) -> None:
        true_init(self, root, seed)
        self.more = f"record: {{file: {recording}}}\n"

    monkeypatch.setattr(Node, "__init__", init)
    result = run(generate(13, 300), 13)
    assert result.failure is None
    report = Comparison(recording).run()
    assert report.differences == ()
    assert report.notes == ()
    assert report.lists > 30
    assert report.calls > 10


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
