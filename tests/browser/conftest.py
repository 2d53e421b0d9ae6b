"""The browser, a node with eight GPUs, and a visit of its page."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fairlead.testing import Kubelet
from tests.browser.provision import browser
from tests.browser.visits import CONFIG, GPU, SHARED, Visit, visiting
from tests.system.rig import Node, running


@pytest.fixture
async def node(kubelet: Kubelet, kubelet_root: Path) -> AsyncIterator[Node]:
    async with running(kubelet, kubelet_root, CONFIG) as node:
        await node.ready(GPU, 6)
        await node.ready(SHARED, 8)
        await node.until_fact("http")
        yield node


@pytest.fixture
async def chromium() -> AsyncIterator[Any]:
    playwright = pytest.importorskip("playwright.async_api", reason="run: python -m tests.browser.provision")
    path = browser()
    if path is None:
        pytest.skip("no Chromium on this machine: python -m tests.browser.provision")
    async with playwright.async_playwright() as play:
        chromium = await play.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield chromium
        await chromium.close()


@pytest.fixture
async def visit(chromium: Any, node: Node) -> AsyncIterator[Visit]:
    async with visiting(chromium, node, color_scheme="light") as visit:
        yield visit
