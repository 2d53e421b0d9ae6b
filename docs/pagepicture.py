"""Writes docs/page.png, the picture of the page in the README: `python -m docs.pagepicture`. Needs a browser.

`python -m tests.browser.provision` installs what it needs.
"""

from __future__ import annotations

import asyncio
import hashlib
import struct
import tempfile
import zlib
from pathlib import Path
from typing import Any

from tests.browser.provision import browser

from fairlead.app.daemon import Daemon
from fairlead.app.page import FILES
from fairlead.app.questions import itself
from fairlead.config.load import parse
from fairlead.testing import Kubelet

TARGET = Path(__file__).with_name("page.png")
KEYWORD = b"Source"  # of the text in the picture that names the files of the page it was taken of
GPU, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"
CONFIG = """
backends: [{{kind: sim, fleet: h100x8}}]
rules:
  - {{match: {{index: [6, 7]}}, resource: nvidia.com/gpu.shared, replicas: 4}}
  - {{resource: nvidia.com/gpu}}
kubelet: {{directory: {kubelet.plugin_dir}, podResources: {kubelet.podresources_socket}}}
status: {{socket: ""}}
http: {{listen: "127.0.0.1:0"}}
"""
PODS = (("train-llama", GPU, 2), ("inference-0", GPU, 1), ("notebook-1", SHARED, 1), ("notebook-2", SHARED, 1))


def digest() -> bytes:
    """Of the files of the page, by name: a picture of others is out of date."""
    files = sorted(path for path in FILES.iterdir() if path.is_file())
    whole = b"".join(path.name.encode() + b"\0" + path.read_bytes() for path in files)
    return hashlib.sha256(whole).hexdigest().encode()


def mark(png: bytes) -> bytes:
    """With a text before its last part, as PNG has it: length, type, content, check sum."""
    body = b"tEXt" + KEYWORD + b"\0" + digest()
    chunk = struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
    end = png.rindex(b"IEND") - 4
    return png[:end] + chunk + png[end:]


async def take(page: Any, root: Path) -> None:
    async with Kubelet(root / "k", seed=1, rate_limit=False) as kubelet:
        daemon = Daemon(parse(CONFIG.format(kubelet=kubelet), "/etc/fairlead/fairlead.yaml"))
        running = asyncio.create_task(daemon.run())
        await kubelet.wait_for_allocatable(GPU, 6)
        await kubelet.wait_for_allocatable(SHARED, 8)
        for name, resource, count in PODS:
            await kubelet.run_pod(name, {"main": {resource: count}})
        await daemon.questions.steer({"do": "fail", "device": "5", "xid": 79}, itself())
        assert daemon.web is not None
        await page.goto(f"http://127.0.0.1:{daemon.web.port}/")
        await page.get_by_text("xid-79").first.wait_for()
        await page.fill("#count", "2")
        await page.click("#ask button")
        await page.locator(".tile.picked").first.wait_for()
        TARGET.write_bytes(mark(await page.screenshot(full_page=True)))
        daemon.stop()
        await running


async def main() -> None:
    from playwright.async_api import async_playwright  # noqa: PLC0415 - an extra

    async with async_playwright() as play:
        chromium = await play.chromium.launch(executable_path=browser(), args=["--no-sandbox"])
        page = await chromium.new_page(viewport={"width": 1280, "height": 900}, locale="en-GB", color_scheme="light")
        with tempfile.TemporaryDirectory(prefix="fl") as root:
            await take(page, Path(root))
        await chromium.close()


if __name__ == "__main__":
    asyncio.run(main())
