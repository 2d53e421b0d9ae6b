"""Trees are written into memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.amd.tree import scratch


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with scratch() as directory:
        yield directory
