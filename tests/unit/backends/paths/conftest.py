from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.backends.host import Host


@pytest.fixture
def host(tmp_path: Path) -> Host:
    (tmp_path / "dev").mkdir()
    return Host(tmp_path)
