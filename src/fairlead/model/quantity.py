"""Amounts as the API server writes them: 8, 1k, 4Gi, 1500m, 2e3. Owns the grammar, and what may be published."""

from __future__ import annotations

import re
from fractions import Fraction

from fairlead.model.errors import InvalidQuantity

# What the API server holds in 64 bits; it would cut a larger amount down without a word.
AMOUNT_MAX = 2**63 - 1
_LENGTH_MAX = 64  # a longer text is no amount of anything

_QUANTITY = re.compile(
    r"(?P<sign>[+-]?)(?P<number>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
    r"(?:(?P<suffix>[KMGTPE]i|[numkMGTPE])|[eE](?P<exponent>[+-]?[0-9]{1,3}))?"
)
_SUFFIXES = {
    **{f"{letter}i": Fraction(2 ** (10 * power)) for power, letter in enumerate("KMGTPE", 1)},
    **{letter: Fraction(10) ** (3 * power) for power, letter in enumerate("kMGTPE", 1)},
    **{letter: 1 / Fraction(10) ** (3 * power) for power, letter in enumerate("mun", 1)},
}


def parse_quantity(text: str) -> Fraction:
    """The exact value of a quantity."""
    found = _QUANTITY.fullmatch(text) if len(text) <= _LENGTH_MAX else None
    if found is None:
        raise InvalidQuantity(text, "it is not a quantity. Write a number such as 8, 1k or 4Gi")
    value = Fraction(found["number"].rstrip(".") if found["number"].endswith(".") else found["number"])
    if found["suffix"]:
        value *= _SUFFIXES[found["suffix"]]
    elif found["exponent"]:
        value *= Fraction(10) ** int(found["exponent"])
    return -value if found["sign"] == "-" else value


def parse_amount(text: str) -> int:
    """A whole number of a thing that cannot be split, as nodes offer and pods ask for it."""
    value = parse_quantity(text)
    if value < 0:
        raise InvalidQuantity(text, "it is negative. Give 0 or more")
    if value.denominator != 1:
        raise InvalidQuantity(text, "it is not a whole number, and such a resource cannot be split")
    if value > AMOUNT_MAX:
        raise InvalidQuantity(text, f"it is larger than {AMOUNT_MAX}, which is all that the API server can count")
    return int(value)
