"""A simulated driver for each test, and nvidia-ml-py on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.nvml import Driver, Node
from tests.nvml.library import compiled_or_skip


@pytest.fixture
def install(tmp_path: Path) -> Iterator[Callable[[Driver], Node]]:
    """Installs a driver and initialises nvidia-ml-py on it."""
    compiled_or_skip()
    with ExitStack() as stack:

        def put(driver: Driver) -> Node:
            node = stack.enter_context(driver.installed(tmp_path))
            stack.enter_context(node.loaded()).nvmlInit()
            return node

        yield put
