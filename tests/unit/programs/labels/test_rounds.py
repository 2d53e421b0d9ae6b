"""The rounds of a labeller: how often, and what is said how often."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest
from tests.clock import FakeClock, settle

from fairlead.programs.labels.rounds import NOTED_MAX, Rounds, keep


class Kept:
    def __init__(self) -> None:
        self.written: list[Mapping[str, str]] = []

    async def write(self, labels: Mapping[str, str]) -> None:
        self.written.append(labels)

    async def withdraw(self) -> None:
        raise AssertionError("it is not the rounds that withdraw")


async def test_what_is_odd_is_said_once_and_the_labels_are_written_each_time():
    notes: list[str] = []
    output = Kept()

    async def look() -> tuple[dict[str, str], list[str]]:
        return {"a": str(len(output.written))}, ["odd", f"round {len(output.written)}"]

    rounds = Rounds(look, output, notes.append)
    for _ in range(3):
        await rounds.turn()
    assert output.written == [{"a": "0"}, {"a": "1"}, {"a": "2"}]
    assert notes == ["odd", "round 0", "round 1", "round 2"]


def test_what_was_said_is_not_remembered_without_an_end():
    notes: list[str] = []

    async def look() -> tuple[dict[str, str], list[str]]:
        return {}, []

    rounds = Rounds(look, Kept(), notes.append)
    for number in range(2 * NOTED_MAX):
        rounds.say_once(str(number))
    assert len(rounds._noted) <= NOTED_MAX
    assert len(notes) == 2 * NOTED_MAX


@pytest.mark.parametrize("oneshot", [True, False])
async def test_a_turn_follows_after_the_interval_unless_once_is_enough(oneshot: bool):
    clock, stop, turns = FakeClock(), asyncio.Event(), 0

    async def turn() -> None:
        nonlocal turns
        turns += 1

    work = asyncio.create_task(keep(turn, clock, stop, interval_s=60.0, oneshot=oneshot))
    await settle()
    await clock.advance(59)
    assert turns == 1
    assert work.done() == oneshot
    await clock.advance(1)
    assert turns == (1 if oneshot else 2)
    stop.set()
    await work
