"""h2spec, the HTTP/2 conformance suite, against our server over loopback TCP: generic, http2 and hpack cases."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

import pytest
from tests.toolchain import build_or_skip

from fairlead.wire import deviceplugin as dp
from fairlead.wire.rpc import Call, Server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = [pytest.mark.go, pytest.mark.timeout(400, func_only=True)]  # a case that fails may wait two seconds

CASES = {False: 145, True: 146}  # by strictness; fewer would mean that the suite stopped early


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    build_or_skip("h2spec")


@dataclass(frozen=True)
class Case:
    section: str
    title: str
    outcome: str  # passed, skipped or failed
    detail: str = ""


def _plain(text: str) -> str:
    return escape("".join(char if char.isprintable() else " " for char in text))


def read_report(path: Path) -> list[Case]:
    cases = []
    # h2spec writes what it saw into <failure> and <error> as it came: NUL bytes, quotes and all.
    raw = re.compile(r"<(failure|error)>(.*?)</\1>", re.DOTALL)
    text = raw.sub(lambda seen: f"<{seen[1]}>{_plain(seen[2])}</{seen[1]}>", path.read_text())
    for element in ET.fromstring(text).iter("testcase"):
        outcome, detail = "passed", ""
        for kind in ("failure", "error", "skipped"):
            found = element.find(kind)
            if found is not None:
                outcome = "skipped" if kind == "skipped" else "failed"
                detail = " ".join("".join(found.itertext()).split())
        cases.append(Case(element.get("package", ""), element.get("classname", ""), outcome, detail))
    return cases


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[int]:
    """Our server on a free port, with the service a kubelet would call."""

    def options(request: dp.Empty, call: Call) -> dp.DevicePluginOptions:
        return dp.DevicePluginOptions()

    errors: list[BaseException] = []
    server = Server({dp.GET_OPTIONS: options}, on_error=lambda _, error: errors.append(error))
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    listener.setblocking(False)
    port = listener.getsockname()[1]
    await server.start(listener)
    try:
        yield port
    finally:
        await server.stop(0)
    assert errors == []


async def run_h2spec(*, strict: bool) -> list[Case]:
    binary = build_or_skip("h2spec")
    with tempfile.TemporaryDirectory() as home:
        report = Path(home, "report.xml")
        async with serving() as port:
            options = ["-h", "127.0.0.1", "-p", str(port), "-P", dp.GET_OPTIONS.path, "-j", str(report)]
            process = await asyncio.create_subprocess_exec(
                binary, *options, *(["-S"] if strict else []), stdout=asyncio.subprocess.DEVNULL
            )
            try:
                await process.wait()
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
        return read_report(report)


@pytest.mark.parametrize("strict", [False, True], ids=["usual", "strict"])
async def test_every_case_passes(strict: bool) -> None:
    cases = await run_h2spec(strict=strict)
    # A skipped case would be one that our answers give no occasion for. There is none: each one must pass.
    short = [
        f"{each.outcome}: {each.section} {each.title}: {each.detail}" for each in cases if each.outcome != "passed"
    ]
    assert not short, "h2spec cases did not pass:\n" + "\n".join(short)
    assert len(cases) >= CASES[strict]
