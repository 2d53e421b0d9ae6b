"""The books of a load are right when the kubelet restarts: they judge refusals, and must not invent free units."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.node import load as books
from tests.node.ledger import SEVERAL, Stay, unexplained, unseen
from tests.node.load import Cards, Load

RESOURCE = "example.com/memory"
CARDS = Cards({"a": 30, "b": 3}, {"a": 30, "b": 3}, 1, lambda slot: slot.partition("-")[0], lambda _env: None)


class Api:
    def __init__(self) -> None:
        self.pods: dict[str, str] = {}  # name -> phase

    def get(self, _path: str) -> Any:
        return {"items": [{"metadata": {"name": name}, "status": {"phase": at}} for name, at in self.pods.items()]}

    def call(self, *_words: Any) -> None: ...


class Cluster:
    def __init__(self) -> None:
        self.api = Api()
        self.held: dict[tuple[str, str], frozenset[str]] = {}

    def holdings(self, _resource: str) -> dict[tuple[str, str], frozenset[str]]:
        return self.held

    def start_pod(self, name: str, _asks: Any, **_more: Any) -> None:
        self.api.pods[name] = "Running"


@pytest.mark.parametrize("ends", ["deleted", "Succeeded"])
def test_a_pod_that_was_let_go_holds_its_units_until_it_has_ended_though_a_new_kubelet_does_not_name_it(
    ends: str, monkeypatch: pytest.MonkeyPatch
):
    now = [100.0]
    monkeypatch.setattr(books, "living", list)
    monkeypatch.setattr(time, "time", lambda: now[0])
    cluster = Cluster()
    load = Load(cluster, RESOURCE, CARDS)  # type: ignore[arg-type]  # as much of a cluster as the books look at
    load.make("first", (25,))
    cluster.held = {("first", "c0"): frozenset(f"a-{number}" for number in range(25))}
    load.look()
    load.release(["first"])
    now[0], cluster.held = 110.0, {}  # the kubelet was killed, and has not heard of its pods yet
    load.look()
    refusal = {"at": "1970-01-01T00:01:52+00:00", "reason": f"{SEVERAL}: a (5), b (3)"}
    assert unexplained(CARDS.units, load.stays, [refusal]) == []
    now[0] = 120.0
    if ends == "deleted":
        del cluster.api.pods["first"]
    else:
        cluster.api.pods["first"] = ends
    load.look()
    assert [stay.until for stay in load.stays] == [120.0]
    late = {**refusal, "at": "1970-01-01T00:02:05+00:00"}
    assert len(unexplained(CARDS.units, load.stays, [late])) == 1


def test_a_grant_that_was_over_before_anybody_looked_counts_until_the_next_look():
    """The kubelet granted it, was killed, and refused the pod when it came back."""
    seen = Stay("b", frozenset({"b-0"}), 100.0)
    grants = [
        {"at": "1970-01-01T00:01:40+00:00", "slots": ["b-0"]},
        {"at": "1970-01-01T00:01:45+00:00", "slots": [*(f"a-{number}" for number in range(8)), "and 17 more"]},
    ]
    (lost,) = unseen([seen], grants, [90.0, 120.0, 130.0], CARDS.card_of)
    assert (lost.card, len(lost.ids), lost.since, lost.until) == ("a", 25, 105.0, 120.0)
    refusal = {"at": "1970-01-01T00:01:52+00:00", "reason": f"{SEVERAL}: a (5), b (2)"}
    assert unexplained(CARDS.units, [seen, lost], [refusal]) == []
    assert len(unexplained(CARDS.units, [seen], [refusal])) == 1


def test_what_ended_while_the_kubelet_was_away_counts_as_held_until_it_is_back():
    """It frees the units of its checkpoint when it has heard of its pods from the API server, and not before."""
    ended = Stay("a", frozenset(f"a-{number}" for number in range(25)), 100.0, until=110.0)
    refusal = {"at": "1970-01-01T00:01:52+00:00", "reason": f"{SEVERAL}: a (5), b (3)"}
    outages = [(108.0, 115.0)]
    assert len(unexplained(CARDS.units, [ended], [refusal])) == 1
    assert unexplained(CARDS.units, [ended], [refusal], outages) == []
    later = {**refusal, "at": "1970-01-01T00:01:57+00:00"}
    assert len(unexplained(CARDS.units, [ended], [later], outages)) == 1


def test_what_ended_since_the_kubelets_last_checkpoint_is_held_by_the_next_one_for_its_first_pods():
    ended = Stay("a", frozenset(f"a-{number}" for number in range(25)), 90.0, until=105.0)
    refusal = {"at": "1970-01-01T00:01:52+00:00", "reason": f"{SEVERAL}: a (5), b (3)"}
    outages = [(108.0, 115.0)]
    before, after = ({"at": f"1970-01-01T00:01:{second}+00:00"} for second in ("44", "46"))  # the pod ended at 45
    assert unexplained(CARDS.units, [ended], [refusal], outages, [before]) == []
    assert len(unexplained(CARDS.units, [ended], [refusal], outages, [before, after])) == 1
