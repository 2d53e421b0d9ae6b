"""A kubelet for the tests of any device plugin.

In a conftest: `pytest_plugins = ["fairlead.testing"]`. Then a test asks for the `kubelet` fixture, points its plugin
at `kubelet.plugin_dir`, and runs pods. Owns the fixtures; the kubelet itself lives in `fairlead.standin`.
"""

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

try:
    import pytest
    import pytest_asyncio
except ImportError as error:
    raise ImportError("fairlead.testing needs pytest and pytest-asyncio; install both to use its fixtures") from error

from fairlead.standin import (
    Call,
    Clock,
    Container,
    Defects,
    DeviceNode,
    FakeClock,
    Faults,
    Kubelet,
    KubeletPanicked,
    Mount,
    Node,
    Pod,
    SystemClock,
    Timings,
)
from fairlead.testing.contract import check_backend

__all__ = [
    "Call",
    "Clock",
    "Container",
    "Defects",
    "DeviceNode",
    "FakeClock",
    "Faults",
    "Kubelet",
    "KubeletPanicked",
    "Mount",
    "Node",
    "Pod",
    "SystemClock",
    "Timings",
    "check_backend",
    "fake_clock",
    "kubelet",
    "kubelet_root",
]


@pytest.fixture
def kubelet_root() -> Iterator[Path]:
    """A short directory for the kubelet's sockets: pytest's own are too long for a unix path."""
    root = Path(tempfile.mkdtemp(prefix="fl"))
    yield root
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
def fake_clock() -> FakeClock:
    """A clock the test turns by hand. Hand it to a Kubelet of your own."""
    return FakeClock()


@pytest_asyncio.fixture
async def kubelet(kubelet_root: Path) -> AsyncIterator[Kubelet]:
    """A running kubelet that behaves as 1.36.4 does, on the system's clock."""
    async with Kubelet(kubelet_root) as running:
        yield running
