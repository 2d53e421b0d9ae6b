"""The journal: facts with keys, kept short, written after the call that caused them."""

from __future__ import annotations

import asyncio
import json
import select
from collections.abc import Sequence

import pytest
from tests.clock import FakeClock

from fairlead.kit.decoding import Seconds
from fairlead.observe.journal import Fact, Journal, _chunks, json_line, text_line, to_stderr


async def test_a_fact_is_written_after_the_present_step_not_within_it():
    written: list[Sequence[Fact]] = []
    more = asyncio.Event()

    def write(facts: Sequence[Fact]) -> None:
        written.append(facts)
        more.set()

    journal = Journal(FakeClock(), write)
    journal.record("allocated", resource="a/b")
    journal.record("published")
    assert written == []
    await more.wait()
    assert [[fact.kind for fact in facts] for facts in written] == [["allocated", "published"]]


def test_without_a_loop_it_writes_at_once():
    written: list[Fact] = []
    Journal(FakeClock(), written.extend).record("stopped")
    assert [fact.kind for fact in written] == ["stopped"]


def test_it_keeps_the_newest_and_numbers_all():
    journal = Journal(FakeClock(), capacity=3)
    for number in range(5):
        journal.record("tick", number=number)
    assert [fact.keys["number"] for fact in journal.tail()] == [2, 3, 4]
    assert [fact.keys["number"] for fact in journal.tail(1)] == [4]
    assert [fact.seq for fact in journal.tail(after=3)] == [4]
    journal.flush()


def test_a_line_for_people():
    fact = Fact(0, 0.5, "allocated", {"resource": "a/b", "slots": ("x", "y"), "reason": "", "why": 'a "b"', "n": 1.50})
    assert text_line(fact) == '1970-01-01T00:00:00.500Z allocated resource=a/b slots=[x y] why="a \\"b\\"" n=1.5'


def test_a_line_for_machines():
    fact = Fact(0, 0.0, "x", {"slots": ["a"], "ok": True, "odd": FakeClock})
    assert json.loads(json_line(fact)) == {
        "at": "1970-01-01T00:00:00.000Z",
        "event": "x",
        "slots": ["a"],
        "ok": True,
        "odd": str(FakeClock),
    }


def test_a_duration_is_a_number_in_either():
    fact = Fact(0, 0.0, "loop-blocked", {"limit": Seconds(60)})
    assert json.loads(json_line(fact))["limit"] == 60
    assert "limit=60" in text_line(fact)


def test_a_grant_of_thousands_is_one_short_line():
    line = text_line(Fact(0, 0.0, "allocated", {"slots": [f"s{n}" for n in range(5000)]}))
    assert line.endswith('s7 "and 4992 more"]')
    assert len(line) < 150


def test_a_newline_in_a_value_cannot_forge_a_line():
    assert "\n" not in text_line(Fact(0, 0.0, "x", {"reason": "a\n2026 forged"}))


def test_an_item_of_a_list_cannot_forge_a_line_either():
    assert "\n" not in text_line(Fact(0, 0.0, "x", {"slots": ["a\n2026 forged"]}))


def test_lines_go_to_standard_error(capsys):
    to_stderr(text_line)([Fact(0, 0.0, "x", {})])
    assert capsys.readouterr().err == "1970-01-01T00:00:00.000Z x\n"


def test_a_long_list_is_cut_when_it_is_recorded():
    journal = Journal(FakeClock())
    journal.record("allocated", slots=tuple(f"s{n}" for n in range(16_000)))
    assert len(journal.tail()[0].keys["slots"]) == 9


def test_lines_are_put_together_but_never_beyond_what_a_pipe_takes_at_once():
    lines = ["x" * 1000] * 10 + ["y" * 9000]
    chunks = list(_chunks(lines))
    assert sum(count for count, _ in chunks) == 11
    assert all(len(chunk) <= select.PIPE_BUF for _, chunk in chunks)
    assert len(chunks) == 4
    assert b"".join(chunk for _, chunk in chunks).count(b"\n") == 11


def test_a_name_that_is_not_utf8_loses_no_line():
    journal = Journal(FakeClock())
    journal.record("device-found", device="nic\udcff", paths=["/dev/nic\udcff"], cause=ValueError("\udcfe"))
    (fact,) = journal.tail()
    assert text_line(fact).endswith(r"device=nic\xff paths=[/dev/nic\xff] cause=\xfe")
    assert json.loads(json_line(fact))["paths"] == [r"/dev/nic\xff"]


@pytest.mark.parametrize("text", ["\x1b[2J", "\x9b2J", "a\u202eb", "a\nb", "a\u2028b", "\x7f"])
def test_no_line_holds_what_a_terminal_obeys(text):
    journal = Journal(FakeClock())
    journal.record("problem", reason=text, some=[text])
    (fact,) = journal.tail()
    assert text_line(fact).isprintable()
    assert json_line(fact).isprintable()
    assert json.loads(json_line(fact))["reason"] == text
