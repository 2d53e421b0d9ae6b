"""Expressions of Go: what they match, in linear time; and what is refused."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.kit.re2 import Regex


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("^snd$", ["snd"], ["snd/x", "xsnd", ""]),
        ("video[0-9]*", ["xvideo3y", "video"], ["vide"]),
        ("^ttyUSB[0-9]+$", ["ttyUSB0", "ttyUSB12"], ["ttyUSB", "ttyUSB1a"]),
        ("(?i)^TTY(s|usb)$", ["ttyS", "TTYusb"], ["tty"]),
        ("^i2c-[[:digit:]]{1,2}$", ["i2c-1", "i2c-12"], ["i2c-", "i2c-123"]),
        ("^(?:a|bc)+?$", ["abca"], ["b"]),
        (r"^\w+\.\d\z", ["x.1"], ["x.12", "xx1"]),
        (r"\bnet\b", ["net/tun", "a net"], ["internet"]),
        (r"^[^a-c\]]$", ["d"], ["a", "]"]),
        (r"^[]a\-]$", ["]", "a", "-"], ["b"]),
        (r"^\x41\x{42}$", ["AB"], ["ab"]),
        ("^(?P<n>x){0}y$", ["y"], ["xy"]),
        ("", ["", "x"], []),
        ("a{,2}", ["a{,2}"], ["aa"]),  # as in Go: no repetition
    ],
)
def test_it_matches_as_go_does(pattern: str, yes: list[str], no: list[str]):
    compiled = Regex(pattern)
    assert [text for text in yes if not compiled.search(text)] == []
    assert [text for text in no if compiled.search(text)] == []


@pytest.mark.parametrize(
    "pattern", ["(a*)*b", "(a|a)*b", "(a+)+$b", "a?" * 60 + "a" * 60 + "b", "(.*)(.*)(.*)(.*)[^a]"]
)
def test_no_expression_takes_long(pattern: str):
    began = time.process_time()
    assert not Regex(pattern).search("a" * 255)
    assert time.process_time() - began < 5  # Python's own engine would not end in a lifetime


@pytest.mark.parametrize(
    "pattern",
    [
        *("(", ")", "[", "[]", "[b-a]", "a**", "*a", "(?=x)", "(?!x)", "(?<=a)b", "(?>a)", r"\1", r"\pN", r"\Z"),
        *("x{1001}", "x{3,2}", "((x{100}){100}){100}", "[[:nope:]]", "(" * 60 + ")" * 60, "x" * 1001, "\\"),
    ],
)
def test_what_go_refuses_or_we_do_not_know_is_refused(pattern: str):
    with pytest.raises(ValueError, match=r"\w"):
        Regex(pattern)


SIMPLE = st.recursive(
    st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "^", "$", ""]),
    lambda inner: (
        st.tuples(inner, inner).map("".join)
        | inner.map(lambda text: f"(?:{text})*")
        | inner.map(lambda text: f"(?:{text}){{1,2}}")
        | st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})")
    ),
    max_leaves=6,
)


@given(SIMPLE, st.text(alphabet="abc", max_size=6))
def test_it_agrees_with_pythons_engine_where_both_know_the_expression(pattern: str, text: str):
    assert Regex(pattern).search(text) == bool(re.search(pattern, text))


@given(st.text(alphabet=r"^$.*+?()[]{}|\ab-1,:i<>P", max_size=20), st.text(alphabet="ab1", max_size=5))
def test_any_text_is_an_expression_or_refused(pattern: str, text: str):
    try:
        Regex(pattern).search(text)
    except ValueError as error:
        assert str(error)
