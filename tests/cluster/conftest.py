"""A control plane for each test, and one with a thousand nodes that the tests of a file share."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio

from tests import toolchain
from tests.cluster.judge import GPUSHARE, NATIVE, Ledger
from tests.cluster.plane import Plane, Settings, control_plane

THOUSAND = [f"node-{number:05}" for number in range(1000)]
SMALL = [f"small-{number}" for number in range(10)]  # a pool of its own, which is soon full


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/cluster/" in item.path.as_posix():
            item.add_marker(pytest.mark.cluster)
            # For the test alone: the first one also waits until the programs are built.
            item.add_marker(pytest.mark.timeout(600, func_only=True))


async def _enter(stack: AsyncExitStack, home: Path, settings: Settings | None = None) -> Plane:
    try:
        for name in toolchain.CLUSTER_PROGRAMS:
            toolchain.build(name)
    except toolchain.ToolchainMissingError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI must have what this test needs: {error}", pytrace=False)
        pytest.skip(str(error))
    return await stack.enter_async_context(control_plane(home, settings))


@pytest.fixture
def settings() -> Settings:
    """Of the test's own plane. A file that wants others has a fixture of this name."""
    return Settings()


@pytest.fixture
async def plane(tmp_path: Path, settings: Settings) -> AsyncIterator[Plane]:
    async with AsyncExitStack() as stack:
        yield await _enter(stack, tmp_path, settings)


@pytest.fixture
async def ledger(plane: Plane) -> AsyncIterator[Ledger]:
    """Follows the pods of the test's own plane. What was wrong at any time fails the test."""
    ledger = await plane.follow(GPUSHARE, NATIVE)
    yield ledger
    assert ledger.faults == []


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def thousand(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Plane]:
    async with AsyncExitStack() as stack:
        plane = await _enter(stack, tmp_path_factory.mktemp("thousand"))
        await plane.add_nodes(THOUSAND, {"pool": "large"})
        await plane.add_nodes(SMALL, {"pool": "small"})
        await plane.start_kwok()
        await plane.begin()
        yield plane


@pytest_asyncio.fixture(loop_scope="module")
async def crowd(thousand: Plane) -> AsyncIterator[Ledger]:
    """Follows the pods of one test on the thousand nodes, and removes them: the next one finds them empty."""
    ledger = await thousand.follow(GPUSHARE, NATIVE)
    yield ledger
    await thousand.delete(*(pod["metadata"]["name"] for pod in ledger.named()))
    await thousand.until(lambda: not ledger.pods, "all pods are gone")
    assert not any(ledger.used.values())
    assert ledger.faults == []
