"""The short form of the fuzz of the surface. `python -m tests.fuzz.surface` is the long one."""

from __future__ import annotations

import pytest
from tests.fuzz.surface import TARGETS, fuzz


@pytest.mark.parametrize("name", [*TARGETS])
async def test_nothing_but_documented_errors_comes_out(name: str) -> None:
    await fuzz(7, 100 if name == "sysfs" else 400, [name], loud=False)  # each of those is a scan
