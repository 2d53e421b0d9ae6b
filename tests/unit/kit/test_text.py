"""Text from outside: shown without harm, sent without an error, and always in the same way."""

from __future__ import annotations

import json
import os

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.kit.text import each_text, encodable, is_encodable, printable, show_json, to_json

ANY_TEXT = st.text(st.characters(exclude_categories=()))  # halves of surrogate pairs too


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("GPU-0 é 漢", "GPU-0 é 漢"),
        ("\x1b[2J\x07", r"\x1b[2J\x07"),
        ("a\nb\tc", r"a\nb\tc"),
        ("\x9b31m", r"\x9b31m"),
        ("abc\u202e", r"abc\u202e"),
        ("\U000e0001", r"\U000e0001"),
        (os.fsdecode(b"nic\xff"), r"nic\xff"),
        ("\ud800", r"\ud800"),
    ],
)
def test_what_a_terminal_would_obey_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(ANY_TEXT)
def test_what_is_shown_is_printable_and_stays_as_it_is(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert printable(shown) == shown


@given(ANY_TEXT)
def test_any_encoder_takes_what_is_encodable(text: str) -> None:
    made = encodable(text)
    assert made.encode().decode() == made
    assert is_encodable(made)
    assert (made == text) == is_encodable(text)


@given(st.recursive(ANY_TEXT | st.integers(0, 9), lambda below: st.lists(below) | st.dictionaries(ANY_TEXT, below)))
def test_plain_data_becomes_json_that_a_terminal_may_have(data: object) -> None:
    text = to_json(data).decode()
    assert msgspec.json.decode(show_json(text)) == each_text(data, encodable) == json.loads(text)
    assert show_json(text).isprintable()


def test_what_json_does_not_know_is_told_as_text() -> None:
    assert json.loads(to_json({"a": object, "b": "\udcff"}))["b"] == r"\xff"
