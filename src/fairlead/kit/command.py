"""Runs a program of the host with a deadline. No shell: what is passed on is never read as a command.

Its output is read to its end and kept within bounds; with the deadline, the program and all that it started are ended.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress

KEPT_BYTES = 2_000  # the end of its output, for the reason of a failure
_CHUNK_BYTES = 65_536


async def run_command(command: Sequence[str], env: Mapping[str, str], deadline_s: float) -> str:
    """Why it failed; empty: it ended with 0."""
    name = command[0]
    try:
        child = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=dict(env),
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return f"{name}: {(isinstance(error, OSError) and error.strerror) or error}"
    said = bytearray()
    try:
        async with asyncio.timeout(deadline_s):
            assert child.stdout is not None
            while chunk := await child.stdout.read(_CHUNK_BYTES):
                said += chunk
                del said[:-KEPT_BYTES]
            await child.wait()
    except TimeoutError:
        return f"{name} has not ended in {deadline_s:g} s"
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)  # with what it left behind
        await child.wait()
    code = child.returncode or 0
    if code == 0:
        return ""
    words = " ".join(said.decode(errors="replace").split())
    ended = f"exit code {code}" if code > 0 else signal.Signals(-code).name
    return f"{name} ended with {ended}" + (f": {words}" if words else "")
