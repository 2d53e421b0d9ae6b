from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio
from tests.unit.standin.sample import RESOURCE, SamplePlugin, devices

from fairlead.testing import FakeClock, Kubelet, fake_clock, kubelet_root

__all__ = ["fake_clock", "kubelet_root"]


@pytest_asyncio.fixture
async def kubelet(kubelet_root: Path, fake_clock: FakeClock) -> AsyncIterator[Kubelet]:
    """A running kubelet whose time stands still."""
    async with Kubelet(kubelet_root, clock=fake_clock) as running:
        yield running


@pytest_asyncio.fixture
async def plugin(kubelet: Kubelet) -> AsyncIterator[SamplePlugin]:
    """Dev-1 and Dev-2, registered and listed."""
    async with SamplePlugin(kubelet.plugin_dir, devices("Dev-1", "Dev-2")) as running:
        await running.register()
        await kubelet.wait_for_allocatable(RESOURCE, 2)
        yield running
