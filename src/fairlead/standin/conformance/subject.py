"""The plugin under test, as a process: started, signalled, ended. Owns its process group and its output.

Knows nothing of the kubelet but the directory that the plugin is given.
"""

import asyncio
import contextlib
import os
import signal
from dataclasses import dataclass, field
from pathlib import Path

HARD_CODED = Path("/var/lib/kubelet/device-plugins")
# Runs in a mount namespace of its own: nothing of this is seen outside, and it ends with the process.
_MOUNT = 'mount --bind "$0" "$1" || exit 125; shift; exec "$@"'
TAIL_BYTES = 4096
LAST_WORDS_S = 0.2


class CannotStart(Exception):
    """The command cannot be run as given."""


class NeedsRoot(Exception):
    """What was asked for takes root."""


@dataclass(frozen=True, slots=True)
class Command:
    """What to run, and where it finds the kubelet."""

    words: tuple[str, ...]
    private_mount: bool = False
    variables: dict[str, str] = field(default_factory=dict)

    def in_directory(self, directory: Path) -> list[str]:
        """`{dir}` in any word is the directory."""
        words = [word.replace("{dir}", str(directory)) for word in self.words]
        if not self.private_mount:
            return words
        mount = ["sh", "-c", _MOUNT, str(directory), str(HARD_CODED)]
        return ["unshare", "--mount", "--propagation", "private", *mount, *words]

    def environment(self, directory: Path) -> dict[str, str]:
        """Ours, with every name under which plugins are known to look for the directory."""
        shown = HARD_CODED if self.private_mount else directory
        names = ("FAIRLEAD_PLUGIN_DIR", "PLUGIN_SOCK_DIR", "DP_DIR", "DEVICE_PLUGIN_DIR", "DEVICE_PLUGIN_PATH")
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("FAIRLEAD_")}
        socket = {"KUBELET_SOCKET": f"{shown}/kubelet.sock"}
        return {**inherited, **dict.fromkeys(names, str(shown)), **socket, **self.variables}


class Subject:
    def __init__(self, command: Command, directory: Path) -> None:
        self._command = command
        self._directory = directory
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._printed = b""  # the end of it: a plugin may print without end
        self._made: list[Path] = []
        self._may_mount = False

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def pids(self) -> tuple[int, ...]:
        """Its process, if it runs; what it started is found from there."""
        return (self._process.pid,) if self._process is not None and self._process.returncode is None else ()

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        await self.kill()  # what its last life may have left running
        if self._command.private_mount and not self._may_mount:
            self._make_mount_point()
            await self._try_mount()
        words = self._command.in_directory(self._directory)
        try:
            self._process = await asyncio.create_subprocess_exec(
                *words,
                env=self._command.environment(self._directory),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                process_group=0,  # Ctrl-C is for us, and whatever it starts ends with it
            )
        except FileNotFoundError:
            raise CannotStart(f"no such command: {words[0]!r}. Give a path, or a name that is on PATH") from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise CannotStart(f"cannot run {words[0]!r}: {reason}") from None
        assert self._process.stdout is not None
        self._reader = asyncio.create_task(self._read(self._process.stdout))

    async def wait(self) -> int:
        """Its exit code, once it has ended and its last words are read."""
        assert self._process is not None
        code = await self._process.wait()
        if self._reader is not None:
            # What it started may live on and hold the pipe.
            await asyncio.wait({self._reader}, timeout=LAST_WORDS_S)
        return code

    def send(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)

    async def kill(self) -> None:
        """End it and everything it started, without a word."""
        process = self._process
        if process is None:
            return
        if process.returncode is None:
            process.send_signal(signal.SIGCONT)
        # The group has the leader's id. Nobody else can have that id while a member of the group lives.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        if self._reader is not None:
            await self._reader  # the whole group is dead, so the pipe has an end
        self._process = self._reader = None

    async def close(self) -> None:
        await self.kill()
        for path in reversed(self._made):
            try:
                path.rmdir()
            except OSError:
                break  # somebody put something into it: it is theirs now
        self._made.clear()

    def last_words(self) -> str:
        """The last line it printed, fit for a terminal."""
        text = self._printed.decode(errors="replace")
        lines = ["".join(char if char.isprintable() else " " for char in line).strip() for line in text.splitlines()]
        return next((line[:200] for line in reversed(lines) if line), "")

    async def _read(self, pipe: asyncio.StreamReader) -> None:
        while chunk := await pipe.read(65536):
            self._printed = (self._printed + chunk)[-TAIL_BYTES:]

    def open_files(self) -> int | None:
        """How many files it holds open; None where that cannot be seen."""
        try:
            return len(os.listdir(f"/proc/{self.pid}/fd"))  # noqa: PTH208 - a count, and /proc has no files to name
        except OSError:
            return None

    def _make_mount_point(self) -> None:
        if os.geteuid() != 0:
            raise NeedsRoot("--private-mount needs root: it mounts a directory over " + str(HARD_CODED))
        missing = [path for path in (HARD_CODED, *HARD_CODED.parents) if not path.exists()]
        for path in reversed(missing):
            path.mkdir(mode=0o755)
            self._made.append(path)

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
        self._may_mount = True


def explain_exit(code: int) -> str:
    """How it ended, in words."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
