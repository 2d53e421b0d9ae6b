"""Runs the blocks of one page in order, in one directory, beside an embedded kubelet: a page is one story.

Owns the processes it starts and ends them. The environment points `fairlead` at the kubelet of the page.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.docs.blocks import ROOT, Block, Command, commands

from fairlead.app.backends import open_backends
from fairlead.backends.sim.build import build
from fairlead.backends.sim.library import load_fleet
from fairlead.config.load import parse
from fairlead.kit import documents
from fairlead.kit.clock import SystemClock
from fairlead.model.errors import ConfigError
from fairlead.testing import Kubelet

PATIENCE_S = 50.0  # a page may start several interpreters, on a machine that is busy with other tests
CONFIG = "fairlead.yaml"


class Story:
    def __init__(self, kubelet: Kubelet, root: Path) -> None:
        self._kubelet = kubelet
        self._root = root
        self._directory = root  # where commands are run
        self._started: list[asyncio.subprocess.Process] = []
        self._tellers: dict[str, Callable[[Block], Any]] = {
            "console": self._console,
            "python": self._python,
            "yaml": self._yaml,
            "ini": self._ini,
        }
        self._env = {key: value for key, value in os.environ.items() if not key.startswith("FAIRLEAD_")} | {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(root),
            "NO_COLOR": "1",
            # A pytest at its end removes what earlier ones left in the shared directory, which can take a minute.
            "PYTEST_DEBUG_TEMPROOT": str(root),
            "FAIRLEAD_PLUGIN_DIR": str(kubelet.plugin_dir),
            "FAIRLEAD_POD_RESOURCES": str(kubelet.podresources_socket),
            "FAIRLEAD_STATUS_SOCKET": str(root / "fairlead.sock"),
        }

    async def tell(self, block: Block) -> None:
        teller = self._tellers.get(block.language)
        if teller is not None and block.mark != "skip":
            await teller(block)

    async def end(self) -> None:
        """What was left running must end well when it is told to."""
        for process in self._started:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE_S):
            codes = [await process.wait() for process in self._started]
        assert not any(codes), f"what ran in the background ended with {codes}:\n{self._log()}"

    # --- Blocks ---------------------------------------------------------------------------------------------------

    async def _console(self, block: Block) -> None:
        if block.mark == "checkout":
            self._check_out()
        if block.mark == "daemon":
            await self._start(Command(block.where, f"fairlead run --config {CONFIG}", ()))
        for command in commands(block):
            await (self._start(command) if block.mark == "background" else self._run(command))

    async def _python(self, block: Block) -> None:
        path = self._write(block, "block.py")
        compile(block.text, block.where, "exec")
        if block.mark != "file":
            await self._run(Command(block.where, f"python {path.name}", ()))

    async def _yaml(self, block: Block) -> None:
        path = self._write(block, "block.yaml")
        if block.mark == "fleet":
            fleet, source = load_fleet(str(path))
            build(fleet.devices, fleet.name, source)
            return
        if block.mark == "foreign":
            return
        raw = documents.parse(block.text, block.where)
        # A page may show only the part it speaks of.
        text = block.text
        text += "" if "backends" in raw else "\nbackends: [{kind: sim}]\n"
        text += "" if "rules" in raw else "\nrules: [{resource: example.com/gpu}]\n"
        if block.mark == "wrong":
            with pytest.raises(ConfigError):
                parse(text, block.where)
            return
        before = Path.cwd()
        os.chdir(self._root)  # a configuration may name a fleet beside it
        try:
            open_backends(parse(text, block.where), SystemClock())
        finally:
            os.chdir(before)

    async def _ini(self, block: Block) -> None:
        self._write(block, "block.ini")

    def _write(self, block: Block, name: str) -> Path:
        path = self._root / (block.word if block.mark in {"file", "fleet", "foreign", "wrong"} else name)
        beside = path.with_suffix(".new")  # a daemon may be reading it
        beside.write_text(block.text)
        return beside.replace(path)

    def _check_out(self) -> None:
        """A copy of this repository that a page may change. Its commands run there, on the copy's own source."""
        self._directory = self._root / "fairlead"
        self._directory.mkdir()
        for name in ("src", "tests"):  # with what Python compiled: copies keep their times
            shutil.copytree(ROOT / name, self._directory / name)
        for name in ("pyproject.toml", "CHANGELOG.md"):
            shutil.copy(ROOT / name, self._directory)
        (self._directory / ".venv").symlink_to(sys.prefix)
        self._env["PYTHONPATH"] = str(self._directory / "src")

    # --- Commands -------------------------------------------------------------------------------------------------

    async def _run(self, command: Command) -> None:
        process = await self._spawn(command, asyncio.subprocess.PIPE)
        try:
            async with asyncio.timeout(PATIENCE_S):
                printed, _ = await process.communicate()
        except TimeoutError:
            process.kill()
            printed, _ = await process.communicate()  # else its pipes are told of in whichever test comes next
            pytest.fail(f"{command.where}: $ {command.text}\nno end in {PATIENCE_S:.0f} s:\n{printed.decode()}")
        told = printed.decode()
        said = f"{command.where}: $ {command.text}\n{told}\n{self._log()}"
        assert process.returncode == 0, f"exit code {process.returncode}: {said}"
        lines = iter(told.splitlines())
        for shown in command.shown:
            pattern = re.compile(_as_pattern(shown))
            assert any(pattern.fullmatch(_plain(line)) for line in lines), f"not printed: {shown!r}\n{said}"

    async def _start(self, command: Command) -> None:
        """Starts what does not end, and waits until the kubelet has its list."""
        before = sum(self._kubelet.node().allocatable.values())
        with (self._root / "background.log").open("ab") as log:
            self._started.append(await self._spawn(command, log))
        died = asyncio.create_task(self._started[-1].wait())
        seen = asyncio.create_task(
            self._kubelet.wait_for(lambda: sum(self._kubelet.node().allocatable.values()) > before, PATIENCE_S)
        )
        await asyncio.wait({died, seen}, return_when=asyncio.FIRST_COMPLETED)
        died.cancel()
        assert seen.done(), f"{command.where}: {command.text} ended too early:\n{self._log()}"
        await seen

    async def _spawn(self, command: Command, output: Any) -> asyncio.subprocess.Process:
        # exec: a signal must reach the program, not the shell around it.
        text = f"exec {command.text}" if output is not asyncio.subprocess.PIPE else command.text
        return await asyncio.create_subprocess_exec(
            "bash",
            "-c",
            text,
            cwd=self._directory,
            env=self._env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=asyncio.subprocess.STDOUT,
        )

    def _log(self) -> str:
        log = self._root / "background.log"
        return f"in the background:\n{log.read_text()[-3000:]}" if log.exists() else ""


def _plain(line: str) -> str:
    return " ".join(line.split())


def _as_pattern(shown: str) -> str:
    """`...` stands for anything, also nothing; spaces only part words."""
    return ".*".join(re.escape(part.strip()) for part in _plain(shown).split("..."))
