"""A program of the host: what it ended with in words, within its deadline, and nothing of it left behind."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path

import pytest

from fairlead.kit.command import KEPT_BYTES, run_command

ENV = {"PATH": "/usr/bin:/bin", "GREETING": "hello"}


async def shell(text: str, deadline_s: float = 30.0) -> str:
    return await run_command(["/bin/sh", "-c", text], ENV, deadline_s)


async def test_one_that_ends_with_0_has_nothing_to_say():
    assert await shell("echo all is well") == ""


async def test_one_that_fails_is_quoted_in_one_line():
    assert await shell("echo first; echo second >&2; exit 7") == "/bin/sh ended with exit code 7: first second"


async def test_one_that_is_killed_names_the_signal():
    assert await shell("kill -9 $$") == "/bin/sh ended with SIGKILL"


async def test_one_that_is_not_there_is_named():
    assert await run_command(["/no/such/program"], ENV, 1.0) == "/no/such/program: No such file or directory"


async def test_a_word_that_no_program_can_be_given_is_a_failure_too():
    assert (await run_command(["/bin/echo", "a\0b"], ENV, 1.0)).startswith("/bin/echo: ")


async def test_it_has_this_environment_and_no_other():
    os.environ["FAIRLEAD_TEST_SECRET"] = "x"
    try:
        said = await shell("env; exit 1")
    finally:
        del os.environ["FAIRLEAD_TEST_SECRET"]
    assert "GREETING=hello" in said
    assert "FAIRLEAD_TEST_SECRET" not in said


async def test_output_without_end_is_read_and_only_its_end_is_kept():
    said = await shell("head -c 3000000 /dev/zero | tr '\\0' x; echo; echo the end; exit 1")
    assert said.endswith("the end")
    assert len(said) < KEPT_BYTES + 100


@pytest.mark.parametrize("text", ["sleep 1000", "sleep 1000 & wait", "trap '' TERM; sleep 1000"])
async def test_one_that_hangs_is_ended_with_all_that_it_started(text: str, tmp_path: Path):
    assert await shell(f"echo $$ > {tmp_path}/pid; {text}", 0.3) == "/bin/sh has not ended in 0.3 s"
    group = int((tmp_path / "pid").read_text())
    async with asyncio.timeout(20):
        while living(group):  # noqa: ASYNC110 - of the kernel there is no event
            await asyncio.sleep(0.01)


def living(group: int) -> list[str]:
    """Processes of a group. One that was killed is there until its parent has looked at it."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _parent, own = stat.read_text().rpartition(")")[2].split()[:3]
            if int(own) == group and state not in "ZX":
                found.append(stat.parent.name)
    return found
