"""Runs NVIDIA's programs as children, each with a deadline. No shell: what is passed on is never read as a command."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping
from contextlib import suppress

from msgspec import Struct

from fairlead.model.errors import BackendError

LONGEST = 500  # characters of a program's output in an error


class Tools(Struct, frozen=True):
    """The programs, and how long one may take."""

    control: str = "nvidia-cuda-mps-control"
    smi: str = "nvidia-smi"
    path: str | None = None  # where programs are looked for; None: as the environment says
    deadline_s: float = 30.0

    def find(self, name: str) -> str:
        found = shutil.which(name, path=self.path)
        if found is None:
            origin = (
                "It comes with the driver: run this with NVIDIA's container runtime and "
                "NVIDIA_DRIVER_CAPABILITIES=compute,utility, or put it on the PATH"
            )
            raise BackendError(f"{name} was not found. {origin if name.startswith('nvidia') else 'Put it on the PATH'}")
        return found


async def run(
    tools: Tools,
    name: str,
    *args: str,
    env: Mapping[str, str] | None = None,
    text: str | None = None,
    detached: bool = False,
) -> str:
    """What the program says. BackendError if it is missing, fails, or takes too long; it is then ended.

    `detached`: it leaves another one in the background, which keeps what it inherits. That must not be a pipe of ours.
    """
    command = " ".join((name, *args)) + (f" ({text})" if text else "")
    pipe = asyncio.subprocess.PIPE
    try:
        child = await asyncio.create_subprocess_exec(
            tools.find(name),
            *args,
            stdin=asyncio.subprocess.DEVNULL if text is None else pipe,
            stdout=asyncio.subprocess.DEVNULL if detached else pipe,
            stderr=asyncio.subprocess.DEVNULL if detached else asyncio.subprocess.STDOUT,
            env=None if env is None else dict(env),
        )
    except OSError as error:
        raise BackendError(f"{command}: {error.strerror or error}") from error
    try:
        async with asyncio.timeout(tools.deadline_s):
            output, _ = await child.communicate(None if text is None else text.encode())
    except TimeoutError:
        raise BackendError(f"{command} has not answered for {tools.deadline_s:g} s, and was ended") from None
    finally:
        if child.returncode is None:
            with suppress(ProcessLookupError):
                child.kill()
            await child.wait()
    answer = (output or b"").decode(errors="replace").strip()
    if child.returncode:
        raise BackendError(f"{command} failed with {child.returncode}" + (f": {answer[:LONGEST]}" if answer else ""))
    return answer
