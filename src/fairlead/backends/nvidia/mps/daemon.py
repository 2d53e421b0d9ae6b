"""One control daemon of MPS: started, limited, asked how it is, stopped. What it serves is in its spec."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from fairlead.backends.nvidia.mps.command import Tools, run
from fairlead.backends.nvidia.mps.daemonspec import ControlDaemonSpec
from fairlead.kit.clock import SystemClock
from fairlead.model.errors import BackendError
from fairlead.model.ports import Clock

QUESTION = "get_default_active_thread_percentage"
ALONE, SHARED = "EXCLUSIVE_PROCESS", "DEFAULT"  # who may use a GPU: only the server of MPS; everyone
READY_PAUSES_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0)
SELINUX = Path("/sys/fs/selinux")
LABEL = b"system_u:object_r:container_file_t:s0\0"  # what containers without privileges may use


class ControlDaemon:
    """The daemon puts itself into the background: it is no child of ours, and runs on until it is ordered to quit."""

    def __init__(
        self, spec: ControlDaemonSpec, tools: Tools | None = None, clock: Clock | None = None, selinux: Path = SELINUX
    ) -> None:
        self.spec = spec
        self._tools = tools or Tools()
        self._clock = clock or SystemClock()
        self._selinux = selinux

    async def start(self) -> None:
        """Starts it; or, if one is there that answers, takes it over: programs may be using it.

        BackendError says which step failed. It can be tried again.
        """
        for problem in self.spec.problems:
            raise BackendError(problem)
        await self._set_mode(ALONE, self.spec.gpus)
        if not await self.answers():
            self._make_directories()
            await run(self._tools, self._tools.control, "-d", env=self.spec.environment, detached=True)
            await self._become_ready()
        for order in self.spec.limits:
            await self._send(order)
        self._write_started_file()

    async def _become_ready(self) -> None:
        """It says that it runs before it listens."""
        for pause_s in READY_PAUSES_S:
            if await self.answers():
                return
            await self._clock.sleep(pause_s)
        await self.check()

    async def check(self) -> None:
        """BackendError if it does not answer."""
        await self._send(QUESTION)

    async def answers(self) -> bool:
        try:
            await self.check()
        except BackendError:
            return False
        return True

    async def stop(self) -> tuple[str, ...]:
        """Ends it and cleans up. All steps are tried; the answer is what went wrong."""
        problems: list[str] = []
        self._remove_started_file()
        try:
            await self._send("quit")
        except BackendError as error:
            problems.append(str(error))
        problems += await self.release(self.spec.gpus)
        shutil.rmtree(self.spec.log, ignore_errors=True)
        return tuple(problems)

    async def release(self, gpus: Iterable[str]) -> tuple[str, ...]:
        """Gives GPUs back to everyone. One that is lost does not keep the others."""
        problems = []
        for gpu in gpus:
            try:
                await self._set_mode(SHARED, (gpu,))
            except BackendError as error:
                problems.append(str(error))
        return tuple(problems)

    async def _send(self, order: str) -> str:
        return await run(self._tools, self._tools.control, env=self.spec.environment, text=order)

    async def _set_mode(self, mode: str, gpus: Iterable[str]) -> None:
        for gpu in gpus:
            await run(self._tools, self._tools.smi, "-i", gpu, "-c", mode)

    def _write_started_file(self) -> None:
        """A file that others wait for."""
        try:
            Path(self.spec.started).touch()
        except OSError as error:
            raise BackendError(f"{self.spec.started}: {error.strerror or error}") from error

    def _remove_started_file(self) -> None:
        with suppress(OSError):
            Path(self.spec.started).unlink()

    def _make_directories(self) -> None:
        try:
            Path(self.spec.pipe).mkdir(mode=0o755, parents=True, exist_ok=True)
            if self._selinux.exists():
                for path in _tree(Path(self.spec.pipe)):
                    os.setxattr(path, "security.selinux", LABEL, follow_symlinks=False)
            Path(self.spec.log).mkdir(mode=0o755, parents=True, exist_ok=True)
        except OSError as error:
            raise BackendError(
                f"MPS for {self.spec.resource}: cannot make {error.filename or self.spec.directory}: "
                f"{error.strerror or error}. Make {self.spec.root} writable"
            ) from error


def _tree(top: Path) -> Iterator[Path]:
    yield top
    yield from top.rglob("*")
