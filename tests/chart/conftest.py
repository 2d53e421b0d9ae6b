"""Marks all tests here: they run helm, which must be built first."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/chart/" in item.path.as_posix():
            item.add_marker(pytest.mark.chart)
            # The first test may have to build helm, which takes minutes.
            item.add_marker(pytest.mark.timeout(1800))
