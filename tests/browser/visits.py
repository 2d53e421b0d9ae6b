"""Visits of the page with a real browser, for the tests here."""

from __future__ import annotations

import asyncio
import importlib.util
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.system.rig import PATIENCE_S, Node
from tests.system.webclient import HTTP

GPU = "nvidia.com/gpu"
SHARED = "nvidia.com/gpu.shared"
CONFIG = HTTP.replace(
    "  - resource: nvidia.com/gpu",
    f"  - {{match: {{index: [6, 7]}}, resource: {SHARED}, replicas: 4}}\n  - resource: nvidia.com/gpu",
)
LOST = re.compile("EventSource|net::ERR|Failed to load resource")  # what Chromium itself says of a daemon that stops


class Visit:
    def __init__(self, page: Any) -> None:
        self.page = page
        self.complaints: list[str] = []
        page.set_default_timeout(PATIENCE_S * 1000)
        page.on("console", lambda message: self.complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))

    async def open(self, node: Node) -> None:
        assert node.daemon.web is not None
        await self.page.goto(f"http://127.0.0.1:{node.daemon.web.port}/")
        await self.page.wait_for_selector(".tile, tbody tr")

    async def see(self, text: str) -> None:
        await self.page.get_by_text(text).first.wait_for()

    async def open_device(self, device: str) -> Any:
        """Its dialog."""
        await self.page.click(f'.tile[data-device="{device}"]')
        dialog = self.page.locator("dialog[open]")
        await dialog.locator("#history li").first.wait_for()
        return dialog


@asynccontextmanager
async def visiting(chromium: Any, node: Node, **options: Any) -> AsyncIterator[Visit]:
    """A visit at which nothing goes wrong in the page."""
    context = await chromium.new_context(**{"viewport": {"width": 1360, "height": 900}, "locale": "en-GB", **options})
    visit = Visit(await context.new_page())
    await visit.open(node)
    yield visit
    assert [complaint for complaint in visit.complaints if not LOST.search(complaint)] == []
    await context.close()


async def find_faults(visit: Visit) -> list[Any]:
    """What axe has against the page. The visit must bypass its content policy."""
    package = importlib.util.find_spec("axe_playwright_python")
    assert package is not None
    assert package.origin is not None
    axe = await asyncio.to_thread((Path(package.origin).parent / "axe.min.js").read_text)
    await visit.page.add_script_tag(content=axe)
    found = await visit.page.evaluate("axe.run()")
    return [(each["id"], [node["html"] for node in each["nodes"]]) for each in found["violations"]]
