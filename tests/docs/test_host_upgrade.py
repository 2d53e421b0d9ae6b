"""The upgrade without a gap of the guide to the host: its own commands, with a test in the place of systemd."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.docs.blocks import ROOT, Command, commands, read_blocks
from tests.system.process import fairlead, write_config
from tests.system.rig import GPU

from fairlead.app.handover import LINGER_S
from fairlead.testing import Kubelet

PAGE = ROOT / "docs/guide/host.md"
UNIT = "etc/systemd/system/fairlead.service"
PROGRAM = f"{sys.executable} -m fairlead"
PATIENCE_S = 60.0


def upgrade() -> list[Command]:
    (block,) = [one for one in read_blocks(PAGE) if "systemd-run" in one.text]
    return commands(block)


def here(text: str, root: Path) -> str:
    """A command of the page, for a host below `root`."""
    return re.sub(r"/opt/\S+/bin/fairlead", PROGRAM, text).replace("/etc/", f"{root}/etc/")


def variables(file: Path) -> dict[str, str]:
    lines = [line for line in file.read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


async def start(words: list[str], environment: Path) -> asyncio.subprocess.Process:
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("FAIRLEAD_")}
    return await asyncio.create_subprocess_exec(
        *words,
        env={**inherited, **variables(environment)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )


class Service:
    """What systemd does with the unit that install-host wrote: runs it, and starts it again when it ends."""

    def __init__(self, root: Path) -> None:
        unit = (root / UNIT).read_text()
        self._told = dict(re.findall(r"^(\w+)=(.*)$", unit, re.MULTILINE))
        assert self._told["Restart"] == "always"
        self._environment = root / self._told["EnvironmentFile"].lstrip("-/")
        self._root = root
        self.codes: list[int] = []
        self.process: asyncio.subprocess.Process | None = None

    async def run(self) -> None:
        words = shlex.split(self._told["ExecStart"].replace("/etc/", f"{self._root}/etc/"))
        try:
            while True:
                self.process = await start(words, self._environment)
                self.codes.append(await self.process.wait())
                await asyncio.sleep(float(self._told["RestartSec"]))
        finally:
            if self.process is not None and self.process.returncode is None:
                self.process.terminate()
                await self.process.wait()


@asynccontextmanager
async def serving(root: Path) -> AsyncIterator[Service]:
    service = Service(root)
    task = asyncio.create_task(service.run())
    try:
        yield service
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def offered(kubelet: Kubelet) -> AsyncIterator[list[int]]:
    """How many devices the node offered, at every change that the kubelet saw."""
    seen: list[int] = []

    def look() -> bool:
        seen.append(kubelet.node().allocatable.get(GPU, 0))
        return False

    watching = asyncio.create_task(kubelet.wait_for(look, 600.0))
    try:
        yield seen
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


@pytest.mark.timeout(300)
async def test_the_upgrade_of_the_guide_has_no_gap(kubelet: Kubelet, kubelet_root: Path, tmp_path: Path):
    root = tmp_path / "host"
    root.mkdir()
    config = write_config(kubelet_root, kubelet)
    code, _, said = await fairlead(
        "install-host", "--root", str(root), "--config", config, "--command", PROGRAM, env={"NO_COLOR": "1"}
    )
    assert code == 0, said
    permit, reload, take_over = (here(command.text, root) for command in upgrade())
    assert reload == "systemctl daemon-reload"
    options = [word for word in shlex.split(take_over) if word.startswith("--") and "=" in word]
    words = shlex.split(take_over.partition("fairlead.env ")[2])

    async with serving(root) as service, offered(kubelet) as seen:
        await kubelet.wait_for_allocatable(GPU, 8)
        seen.clear()
        assert (await kubelet.run_pod("before", {"main": {GPU: 2}})).phase == "Running"
        shell = await asyncio.create_subprocess_exec("sh", "-c", permit)
        assert await shell.wait() == 0
        (environment,) = [Path(word.rpartition("=")[2]) for word in options if "EnvironmentFile" in word]
        old = service.process
        assert old is not None
        between = await start(words, environment)
        try:
            async with asyncio.timeout(LINGER_S + PATIENCE_S):
                assert await old.wait() == 0
            assert between.returncode is None
            assert (await kubelet.run_pod("during", {"main": {GPU: 2}})).phase == "Running"
            async with asyncio.timeout(LINGER_S + PATIENCE_S):
                assert await between.wait() == 0
        finally:
            if between.returncode is None:
                between.kill()
                await between.wait()
        assert (await kubelet.run_pod("after", {"main": {GPU: 2}})).phase == "Running"
        assert service.codes == [0]  # started again once, and not refused
        assert service.process is not None
        assert service.process.returncode is None
        assert min(seen) == 8
