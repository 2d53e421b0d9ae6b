"""The plugin under test, as a process: started, signalled, ended. Owns its process group and its output.

Knows nothing of the kubelet but the directory that the plugin is given.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from fairlead.standin.conformance.exits import Exit, OutputScan, explain_exit
from fairlead.standin.conformance.mount import HARD_CODED, MOUNT_FAILED, MountPoint, NeedsRoot, mounted

LAST_WORDS_S = 0.2
HOOK_TAIL_BYTES = 4096
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class CannotStart(Exception):
    """The command cannot be run as given."""


@dataclass(frozen=True, slots=True)
class Command:
    """What to run, and where it finds the kubelet."""

    words: tuple[str, ...]
    private_mount: bool = False
    variables: dict[str, str] = field(default_factory=dict)
    log: IO[bytes] | None = None  # gets all that the plugin prints

    def in_directory(self, directory: Path) -> list[str]:
        """`{dir}` in any word is the directory."""
        words = [word.replace("{dir}", str(directory)) for word in self.words]
        return mounted(directory, words) if self.private_mount else words

    def environment(self, directory: Path) -> dict[str, str]:
        """Ours, with every name under which plugins are known to look for the directory."""
        shown = HARD_CODED if self.private_mount else directory
        names = ("FAIRLEAD_PLUGIN_DIR", "PLUGIN_SOCK_DIR", "DP_DIR", "DEVICE_PLUGIN_DIR", "DEVICE_PLUGIN_PATH")
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("FAIRLEAD_")}
        socket = {"KUBELET_SOCKET": f"{shown}/kubelet.sock"}
        return {**inherited, **dict.fromkeys(names, str(shown)), **socket, **self.variables}


class PluginProcess:
    def __init__(self, command: Command, directory: Path, delay_s: float, ended: Callable[[Exit], None]) -> None:
        self._command = command
        self._directory = directory
        self._delay_s = delay_s
        self._ended = ended  # called for each end that was not asked for
        self._process: asyncio.subprocess.Process | None = None
        self._watcher: asyncio.Task[Exit] | None = None
        self._words = OutputScan()
        self._asked = False  # to end
        self._started_s = -delay_s
        self._mount_point = MountPoint()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def pids(self) -> tuple[int, ...]:
        """Its process, if it runs; what it started is found from there."""
        return (self.pid,) if self.alive else ()

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self) -> float:
        """Start it, some time after the last start: names of sockets may have the second in them. How long that was."""
        await self.kill()  # what its last life may have left running
        if self._command.private_mount and not self._mount_point.is_open:
            self._mount_point.open()
            await self._try_mount()
        held_s = max(0.0, self._started_s + self._delay_s - time.monotonic())
        await asyncio.sleep(held_s)
        words = self._command.in_directory(self._directory)
        try:
            self._process = await self._run(*words)
        except FileNotFoundError:
            raise CannotStart(f"no such command: {words[0]!r}. Give a path, or a name that is on PATH") from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise CannotStart(f"cannot run {words[0]!r}: {reason}") from None
        self._started_s, self._asked, self._words = time.monotonic(), False, OutputScan()
        self.note(f"started, process {self.pid}")
        self._watcher = asyncio.create_task(self._watch(self._process, self._words))
        return held_s

    async def _run(self, *words: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *words,
            env=self._command.environment(self._directory),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            process_group=0,  # Ctrl-C is for us, and whatever it starts ends with it
        )

    async def wait(self) -> Exit:
        """How it ended, once it has."""
        assert self._watcher is not None
        return await asyncio.shield(self._watcher)

    def send(self, number: signal.Signals) -> None:
        if self._process is not None and self.alive:
            self._asked = self._asked or number not in {signal.SIGSTOP, signal.SIGCONT}
            self.note(f"got {number.name}")
            self._process.send_signal(number)

    async def kill(self) -> None:
        """End it and everything it started, without a word."""
        process, watcher = self._process, self._watcher
        if process is None or watcher is None:
            return
        if process.returncode is None:
            self._asked = True
            process.send_signal(signal.SIGCONT)
        # The group has the leader's id. No other process can have that id while a member of the group lives.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await watcher
        self._process = self._watcher = None

    async def close(self) -> None:
        await self.kill()
        self._mount_point.close()

    def note(self, text: str) -> None:
        """A line of ours in the log."""
        if (log := self._command.log) is not None:
            log.write(f"--- {time.strftime('%H:%M:%S')} {text}\n".encode())
            log.flush()

    @property
    def last_words(self) -> str:
        """The last line it printed, fit for a terminal."""
        return self._words.last

    def open_files(self) -> int | None:
        """How many files it holds open; None where that cannot be seen."""
        try:
            return len(os.listdir(f"/proc/{self.pid}/fd"))  # noqa: PTH208 - a count, and /proc has no files to name
        except OSError:
            return None

    async def run_hook(self, script: str, limit_s: float) -> str:
        """Run a shell command of the user's, where the plugin's variables are set. What went wrong, in a line."""
        self.note(f"runs: {script}")
        process = await self._run("sh", "-c", script.replace("{dir}", str(self._directory)))
        assert process.stdout is not None
        words = OutputScan()
        try:
            async with asyncio.timeout(limit_s):
                while chunk := await process.stdout.read(HOOK_TAIL_BYTES):
                    words.feed(chunk)
                code = await process.wait()
        except TimeoutError:
            return f"it did not end within {limit_s:g} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        ending = words.end(code)
        return f"it ended with {explain_exit(code)}: {ending.last or 'no word'}" if code else ""

    async def _watch(self, process: asyncio.subprocess.Process, words: OutputScan) -> Exit:
        """Reads what it prints until it has ended, and tells of an end that was not asked for."""
        assert process.stdout is not None
        reader = asyncio.create_task(self._read(process.stdout, words))
        try:
            code = await process.wait()
            # What it started may live on and hold the pipe.
            await asyncio.wait({reader}, timeout=LAST_WORDS_S)
        finally:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
        ending = words.end(code)
        if self._command.private_mount and code == MOUNT_FAILED and ending.last.startswith("mount: "):
            ending = replace(ending, note=f"the private directory could not be mounted over {HARD_CODED}")
        self.note(f"ended with {ending}")
        if not self._asked:
            self._ended(ending)
        return ending

    async def _read(self, pipe: asyncio.StreamReader, words: OutputScan) -> None:
        while chunk := await pipe.read(65536):
            words.feed(chunk)
            if self._command.log is not None:
                self._command.log.write(chunk)
                self._command.log.flush()

    async def _try_mount(self) -> None:
        """Some roots may not mount, such as that of a container: better said once than taken for the plugin's words."""
        words = Command(("true",), private_mount=True).in_directory(self._directory)
        process = await asyncio.create_subprocess_exec(
            *words, stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
        )
        _, said = await process.communicate()
        if process.returncode:
            reason = said.decode(errors="replace").strip().splitlines()[-1:] or [explain_exit(process.returncode)]
            raise NeedsRoot(f"--private-mount: this root may not mount over {HARD_CODED}: {reason[0]}")
        program = self._command.words[0]
        path = os.environ.get("PATH", SYSTEM_PATH)
        if shutil.which(program.replace("{dir}", str(self._directory)), path=path) is None:
            raise CannotStart(f"no such command: {program!r}. Give a path, or a name that is on PATH")
