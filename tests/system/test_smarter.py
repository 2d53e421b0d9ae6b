"""`fairlead smarter` with as many resources as a board has files, resources that come and go, and odd ids."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.peers.nvidia.kubelet import Kubelet, kubelet
from tests.unit.backends.host import Host

from fairlead.app.daemon import Daemon
from fairlead.backends import paths
from fairlead.config.load import build
from fairlead.dialects.smarter.command import read_command_line
from fairlead.kit.clock import SystemClock
from fairlead.observe.journal import Journal

FILES = 100


@pytest.fixture
def host(kubelet_root: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    (kubelet_root / "host/dev").mkdir(parents=True)
    host = Host(kubelet_root / "host")
    monkeypatch.setattr(paths, "HostRoot", lambda _root: host)
    return host


@asynccontextmanager
async def running(root: Path, match: str, count: int, *more: str) -> AsyncIterator[tuple[Daemon, Kubelet]]:
    (root / "dp").mkdir()
    (root / "conf.yaml").write_text(f"- {{devicematch: {match}, nummaxdevices: {count}}}\n")
    places = {"config": "conf.yaml", "plugin-dir": "dp", "status-socket": "fl.sock", "pod-resources": "none.sock"}
    words = [*(f"--{flag}={root / place}" for flag, place in places.items()), *more]
    loaded = build(dict(read_command_line(words, {}).translate().config), "smarter")
    clock = SystemClock()
    async with kubelet(root / "dp") as end:
        await end.serve()
        daemon = Daemon(loaded, reload=lambda: loaded, clock=clock, journal=Journal(clock))
        task = asyncio.ensure_future(daemon.run())
        try:
            yield daemon, end
        finally:
            daemon.stop()
            await asyncio.wait_for(task, 20)


async def until(what: Callable[[], bool]) -> None:
    async with asyncio.timeout(40):
        while not what():  # noqa: ASYNC110 - lists of a hundred resources: none of them calls
            await asyncio.sleep(0.01)


def listed(end: Kubelet) -> dict[str, int]:
    return {name: len(one.lists[-1].devices) for name, one in end.followed.items() if one.lists}


async def test_a_hundred_files_are_a_hundred_resources_and_one_more_comes_without_a_restart(
    host: Host, kubelet_root: Path
):
    for number in range(FILES):
        host.put(f"/dev/gpio{number}", f"char 254:{number}")
    async with running(kubelet_root, "^gpio", 2) as (_, end):
        await until(lambda: len(listed(end)) == FILES)
        assert set(listed(end).values()) == {2}
        host.put("/dev/gpio-late", "char 254:200")
        await until(lambda: "smarter-devices/gpio-late" in listed(end))
        assert len(end.registrations) == FILES + 1
        host.drop("/dev/gpio7")
        followed = end.followed["smarter-devices/gpio7"]
        await until(lambda: {one.health for one in followed.lists[-1].devices} == {"Unhealthy"})
        assert len(end.registrations) == FILES + 1  # the others are not disturbed


async def test_ids_that_are_characters_are_listed_and_shown_escaped(host: Host, kubelet_root: Path):
    host.put("/dev/snd0", "char 116:0")
    async with running(kubelet_root, "^snd0$", 40, "--ids=characters") as (_, end):
        await until(lambda: listed(end) == {"smarter-devices/snd0": 40})
        (followed,) = end.followed.values()
        assert {one.ID for one in followed.lists[-1].devices} == {chr(number) for number in range(40)}
        words = (sys.executable, "-m", "fairlead", "status", "--socket", str(kubelet_root / "fl.sock"))
        shown = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
        text = (await shown.communicate())[0].decode()
        assert "smarter-devices/snd0" in text
        assert all(letter == "\n" or letter.isprintable() for letter in text), text
