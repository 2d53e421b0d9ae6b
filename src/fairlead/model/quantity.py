"""Amounts as the API server writes them: 8, 1k, 4Gi, 1500m, 2e3. Owns the grammar, and what may be published.

In whole numbers: `fractions` would cost every daemon half a megabyte.
"""

from __future__ import annotations

import re

from fairlead.model.errors import InvalidQuantity

# What the API server holds in 64 bits; it would cut a larger amount down without a word.
AMOUNT_MAX = 2**63 - 1
_LENGTH_MAX = 64  # a longer text is no amount of anything

_QUANTITY = (
    r"(?P<sign>[+-]?)(?:(?P<whole>[0-9]+)(?:\.(?P<part>[0-9]*))?|\.(?P<only>[0-9]+))"
    r"(?:(?P<binary>[KMGTPE])i|(?P<decimal>[numkMGTPE])|[eE](?P<exponent>[+-]?[0-9]{1,3}))?"
)
_BINARY = {letter: 10 * power for power, letter in enumerate("KMGTPE", 1)}
_DECIMAL = {letter: 3 * power for power, letter in enumerate("numkMGTPE", -3)}
_DECIMAL |= {letter: 3 * power for power, letter in enumerate("kMGTPE", 1)}  # there is no letter for 10^0


def parse_quantity(text: str) -> tuple[int, int]:
    """The exact value of a quantity, as a numerator and a denominator."""
    found = re.fullmatch(_QUANTITY, text) if len(text) <= _LENGTH_MAX else None
    if found is None:
        raise InvalidQuantity(text, "it is not a quantity. Write a number such as 8, 1k or 4Gi")
    part = found["part"] or found["only"] or ""
    number = int((found["whole"] or "0") + part) << _BINARY.get(found["binary"] or "", 0)
    power = _DECIMAL.get(found["decimal"] or "", 0) + int(found["exponent"] or 0) - len(part)
    signed = -number if found["sign"] == "-" else number
    return (signed * 10**power, 1) if power >= 0 else (signed, 10**-power)


def parse_amount(text: str) -> int:
    """A whole number of a thing that cannot be split, as nodes offer and pods ask for it."""
    number, parts = parse_quantity(text)
    if number < 0:
        raise InvalidQuantity(text, "it is negative. Give 0 or more")
    if number % parts:
        raise InvalidQuantity(text, "it is not a whole number, and such a resource cannot be split")
    if number // parts > AMOUNT_MAX:
        raise InvalidQuantity(text, f"it is larger than {AMOUNT_MAX}, which is all that the API server can count")
    return number // parts
