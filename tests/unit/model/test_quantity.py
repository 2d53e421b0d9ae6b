"""Amounts as people and API servers write them."""

from __future__ import annotations

import contextlib
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.model.errors import InvalidQuantity
from fairlead.model.quantity import AMOUNT_MAX, parse_amount, parse_quantity


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8", 8),
        ("0", 0),
        ("+3", 3),
        ("-2", -2),
        ("1k", 1000),
        ("1Ki", 1024),
        ("1.5Gi", 3 * 2**29),
        ("2e3", 2000),
        ("2E3", 2000),
        ("1E", 10**18),
        ("1Ei", 2**60),
        ("9E", 9 * 10**18),
        ("5.", 5),
        (".5k", 500),
        ("1500m", Fraction(3, 2)),
        ("1n", Fraction(1, 10**9)),
        ("12e-1", Fraction(6, 5)),
    ],
)
def test_a_quantity_means_what_kubernetes_means(text: str, value: Fraction | int):
    assert Fraction(*parse_quantity(text)) == value


@pytest.mark.parametrize(
    "text",
    ["", " 8", "8 ", "eight", "1K", "1ki", "1,5", "0x10", "1e", "1e1000", "--1", "inf", "nan", "٣", "1" * 65, "8\n"],
)
def test_what_is_no_quantity_is_refused(text: str):
    with pytest.raises(InvalidQuantity, match="not a quantity"):
        parse_quantity(text)


@given(st.text(max_size=80))
def test_any_text_is_a_number_or_is_refused(text: str):
    with contextlib.suppress(InvalidQuantity):
        assert 0 <= parse_amount(text) <= AMOUNT_MAX


@given(st.integers(0, AMOUNT_MAX))
def test_a_whole_number_is_itself(number: int):
    assert parse_amount(str(number)) == number


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("-1", "negative"),
        ("1500m", "whole number"),
        ("1e-1", "whole number"),
        (str(AMOUNT_MAX + 1), "larger than"),
        ("10E", "larger than"),
        ("1e999", "larger than"),
    ],
)
def test_an_amount_that_cannot_be_offered_says_why(text: str, reason: str):
    with pytest.raises(InvalidQuantity, match=reason):
        parse_amount(text)


def test_a_long_text_is_shown_short():
    with pytest.raises(InvalidQuantity) as caught:
        parse_amount("9" * 10_000)
    assert len(str(caught.value)) < 200
