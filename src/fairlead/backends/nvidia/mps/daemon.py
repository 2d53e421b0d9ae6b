"""One control daemon of MPS: started, limited, asked how it is, stopped. What it serves is a plan."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from fairlead.backends.nvidia.mps.command import Tools, run
from fairlead.backends.nvidia.mps.plan import Plan
from fairlead.model.clock import SystemClock
from fairlead.model.errors import BackendError
from fairlead.model.ports import Clock

QUESTION = "get_default_active_thread_percentage"
ALONE, SHARED = "EXCLUSIVE_PROCESS", "DEFAULT"  # who may use a GPU: only the server of MPS; everyone
READY_PAUSES_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0)
SELINUX = Path("/sys/fs/selinux")
LABEL = b"system_u:object_r:container_file_t:s0\0"  # what containers without privileges may use


class ControlDaemon:
    """The daemon puts itself into the background: it is no child of ours, and outlives us unless it is told to quit."""

    def __init__(
        self, plan: Plan, tools: Tools | None = None, clock: Clock | None = None, selinux: Path = SELINUX
    ) -> None:
        self.plan = plan
        self._tools = tools or Tools()
        self._clock = clock or SystemClock()
        self._selinux = selinux

    async def start(self) -> None:
        """Starts it; or, if one is there that answers, takes it over: programs may be using it.

        BackendError says which step failed. It can be tried again.
        """
        for problem in self.plan.problems:
            raise BackendError(problem)
        await self._set_mode(ALONE, self.plan.gpus)
        if not await self.well():
            self._make_directories()
            await run(self._tools, self._tools.control, "-d", env=self.plan.environment, detached=True)
            await self._become_ready()
        for order in self.plan.limits:
            await self._tell(order)
        self._mark()

    async def _become_ready(self) -> None:
        """It says that it runs before it listens."""
        for pause_s in READY_PAUSES_S:
            if await self.well():
                return
            await self._clock.sleep(pause_s)
        await self.check()

    async def check(self) -> None:
        """BackendError if it does not answer."""
        await self._tell(QUESTION)

    async def well(self) -> bool:
        try:
            await self.check()
        except BackendError:
            return False
        return True

    async def stop(self) -> tuple[str, ...]:
        """Ends it and cleans up. All steps are tried; the answer is what went wrong."""
        problems: list[str] = []
        self._unmark()
        try:
            await self._tell("quit")
        except BackendError as error:
            problems.append(str(error))
        problems += await self.release(self.plan.gpus)
        shutil.rmtree(self.plan.log, ignore_errors=True)
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

    async def _tell(self, order: str) -> str:
        return await run(self._tools, self._tools.control, env=self.plan.environment, text=order)

    async def _set_mode(self, mode: str, gpus: Iterable[str]) -> None:
        for gpu in gpus:
            await run(self._tools, self._tools.smi, "-i", gpu, "-c", mode)

    def _mark(self) -> None:
        """A file that others wait for."""
        try:
            Path(self.plan.started).touch()
        except OSError as error:
            raise BackendError(f"{self.plan.started}: {error.strerror or error}") from error

    def _unmark(self) -> None:
        with suppress(OSError):
            Path(self.plan.started).unlink()

    def _make_directories(self) -> None:
        try:
            Path(self.plan.pipe).mkdir(mode=0o755, parents=True, exist_ok=True)
            if self._selinux.exists():
                for path in _tree(Path(self.plan.pipe)):
                    os.setxattr(path, "security.selinux", LABEL, follow_symlinks=False)
            Path(self.plan.log).mkdir(mode=0o755, parents=True, exist_ok=True)
        except OSError as error:
            raise BackendError(
                f"MPS for {self.plan.resource}: cannot make {error.filename or self.plan.directory}: "
                f"{error.strerror or error}. Make {self.plan.root} writable"
            ) from error


def _tree(top: Path) -> Iterator[Path]:
    yield top
    yield from top.rglob("*")
