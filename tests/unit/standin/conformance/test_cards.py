"""The cards in the docs are whole: each failure says what it means, and an old recording never looks like a new run."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.cards import CARDS

from fairlead.standin.conformance import SCENARIOS
from fairlead.standin.conformance.card import SUITE

KNOWN = {scenario.id for scenario in SCENARIOS}
ALL = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(CARDS.glob("*.json"))}
OLD = [f"C{number:02}" for number in range(1, 78)]
PEERS = {"amd", "generic", "gke", "gpushare", "intel", "mini", "nvidia", "sample", "smarter", "volcano"}

cards = pytest.mark.parametrize("card", ALL.values(), ids=list(ALL))


def test_every_peer_has_a_card():
    assert set(ALL) == PEERS


@cards
def test_a_card_says_what_was_played_when_and_what_each_failure_means(card: dict[str, Any]):
    assert all(card[key] for key in ("peer", "version", "date", "suite", "setup"))
    failed = {one["id"] for one in card["scenarios"] if one["result"] == "fail"}
    assert failed <= set(card["worth"])
    assert set(card["worth"]) | set(card.get("now", {})) <= KNOWN


@cards
def test_what_an_older_suite_did_not_play_is_marked_as_expected(card: dict[str, Any]):
    played = sorted(one["id"] for one in card["scenarios"])
    if card["suite"] == SUITE:
        assert played == sorted(KNOWN)
        assert not card.get("now")
        return
    assert played == OLD
    passed = {one["id"] for one in card["scenarios"] if one["result"] == "pass"}
    assert {i for i in card["worth"] if i in passed or i not in OLD} <= set(card["now"])
    assert {one["expected"] for one in card["now"].values()} <= {"pass", "fail", "open"}
