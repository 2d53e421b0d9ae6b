"""`fairlead conformance` where there is nothing to play with: one clear line, the right exit code, and no hang."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys

import pytest

pytestmark = pytest.mark.conformance

LIMIT_S = 50.0
NOBODY = 65534
SLEEPS = ("--timeout", "0.3", "--", "sleep", "60")
# Drops root for good, once everything is imported: another user may not be able to read this interpreter's files.
AS_NOBODY = f"""
import os, sys
import fairlead.cli.commands, fairlead.cli.conformance
if os.geteuid() == 0:
    os.setgroups([]), os.setgid({NOBODY}), os.setuid({NOBODY})
from fairlead.cli import main
main(sys.argv[1:])
"""
WITHOUT = """
import sys
sys.modules[sys.argv[1]] = None  # as if it were not installed
from fairlead.cli import main
main(sys.argv[2:])
"""
PLAIN = ("-m", "fairlead")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="takes root")


async def refused(*args: str, how: tuple[str, ...] = PLAIN, before: tuple[str, ...] = ()) -> tuple[int, str]:
    """The exit code and the one line that it said."""
    process = await asyncio.create_subprocess_exec(
        *before,
        sys.executable,
        *how,
        "conformance",
        *args,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(LIMIT_S):
        _, err = await process.communicate()
    (line,) = err.decode().splitlines()
    assert line.startswith("fairlead: ")
    assert line.isprintable()
    assert process.returncode is not None
    return process.returncode, line


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["--", "/no/such/plugin"], 2, "no such command: '/no/such/plugin'"),
        (["--", "/etc/passwd"], 2, "cannot run '/etc/passwd'"),
        (
            ["--", "sh", "-c", "echo 'must be root' >&2; exit 7"],
            1,
            "ended with exit code 7; its last words: must be root",
        ),
        (["--", "true"], 1, "never called Register: it ended with exit code 0; it printed nothing"),
        (["--", "sh", "-c", "kill -9 $$"], 1, "it ended with signal SIGKILL"),
        (
            ["--", "sh", "-c", r"printf '\033[31m\377\000bad\r\n'; exit 1"],
            1,
            "ended with exit code 1; its last words: [31m\ufffd bad",
        ),
        ([*SLEEPS], 1, "never called Register, not in 0.6 s; 0.3 were allowed; it printed nothing"),
        (["--timeout", "0.3", "--", "cat", "/dev/urandom"], 1, "never called Register, not in 0.6 s; 0.3 were allowed"),
        (["--resource", "a.example/x", *SLEEPS], 1, "never called Register"),
        (["--timeout", "0", "--", "true"], 2, "--timeout 0"),
        (["--delay", "-1", "--", "true"], 2, "--delay -1"),
        (["--repeat", "0", "--", "true"], 2, "--repeat 0"),
        (["--break", "true", "--", "true"], 2, "--break and --mend go together"),
        (["--only", "C99", "--", "true"], 2, "no scenario 'C99'"),
        ([], 2, "no command was given"),
    ],
)
async def test_what_cannot_be_played_is_one_clear_line(args: list[str], code: int, words: str):
    got, line = await refused(*args)
    assert words in line
    assert got == code


async def test_without_root_a_private_mount_is_refused():
    code, line = await refused("--private-mount", "--", "true", how=("-c", AS_NOBODY))
    assert "--private-mount needs root" in line
    assert code == 3


async def test_without_root_a_plugin_is_played_with_all_the_same():
    code, line = await refused("--", "sh", "-c", "id -u; exit 4", how=("-c", AS_NOBODY))
    who = NOBODY if os.geteuid() == 0 else os.geteuid()
    assert f"exit code 4; its last words: {who}" in line
    assert code == 1


@as_root
@pytest.mark.xdist_group("private-mount")  # it makes the mount point, and other tests look whether it is gone
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv")
async def test_a_root_that_may_not_mount_is_told_so():
    code, line = await refused("--private-mount", "--", "true", before=("setpriv", "--bounding-set=-sys_admin"))
    assert "--private-mount" in line
    assert "not permitted" in line
    assert code == 3


@pytest.mark.parametrize("missing", ["grpc", "google.protobuf", "asyncinotify"])
async def test_a_missing_extra_is_named(missing: str):
    code, line = await refused("--", "true", how=("-c", WITHOUT, missing))
    assert "conformance needs the extra 'standin'" in line
    assert code == 2


@as_root
async def test_a_refused_mount_leaves_no_directory_behind():
    """On a /var/lib and a /run of its own: other runs may be using those of the machine."""
    look = '"$@"; code=$?; [ ! -e /var/lib/kubelet ] || exit 99; exit $code'
    alone = f"mount -t tmpfs none /var/lib && mount -t tmpfs none /run && {{ {look}; }}"
    before = ("unshare", "--mount", "--propagation", "private", "sh", "-c", alone, "sh")
    code, _ = await refused("--private-mount", *SLEEPS, before=before)
    assert code == 1
