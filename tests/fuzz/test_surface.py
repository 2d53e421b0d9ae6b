"""The short form of the fuzz of the surface. `python -m tests.fuzz.surface` is the long one."""

from __future__ import annotations

import pytest
from tests.fuzz.surface import TARGETS, fuzz

# Each of those is a scan; two daemons answer each of these.
CASES = {"sysfs": 100, "http": 250}


@pytest.mark.parametrize("name", [*TARGETS])
async def test_nothing_but_documented_errors_comes_out(name: str) -> None:
    await fuzz(7, CASES.get(name, 400), [name], loud=False)
