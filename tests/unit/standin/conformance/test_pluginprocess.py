"""The process of a plugin: when it is started, how its end is told, and what it leaves."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from fairlead.standin.conformance import mount, pluginprocess
from fairlead.standin.conformance.exits import Exit
from fairlead.standin.conformance.pluginprocess import Command, PluginProcess


def started(script: str, directory: Path, delay_s: float = 0.0, **how: object) -> tuple[PluginProcess, list[Exit]]:
    told: list[Exit] = []
    command = Command(("sh", "-c", script), **how)  # type: ignore[arg-type]  # of many kinds
    return PluginProcess(command, directory, delay_s, told.append), told


async def test_an_end_that_was_not_asked_for_is_told_and_one_that_was_is_not(tmp_path: Path):
    plugin, told = started("exit 7", tmp_path)
    await plugin.start()
    await plugin.wait()
    assert [str(one) for one in told] == ["exit code 7"]
    plugin, told = started("sleep 60", tmp_path)
    await plugin.start()
    await plugin.close()
    assert told == []


async def test_two_starts_are_never_closer_than_the_delay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    plugin, _ = started("exit 0", tmp_path, delay_s=1000.0)
    await plugin.start()
    await plugin.wait()
    monkeypatch.setattr("fairlead.standin.conformance.pluginprocess.asyncio.sleep", sleep)
    held_s = await plugin.start()
    await plugin.close()
    assert 900 < held_s <= 1000
    assert held_s in slept


async def test_the_log_has_what_it_printed_and_what_was_done_to_it(tmp_path: Path):
    log = io.BytesIO()
    plugin, _ = started("echo hello; exit 3", tmp_path, log=log)
    await plugin.start()
    await plugin.wait()
    lines = log.getvalue().decode().splitlines()
    assert "started, process" in lines[0]
    assert lines[1] == "hello"
    assert lines[2].endswith("ended with exit code 3")


async def test_a_mount_that_fails_is_not_taken_for_the_plugins_own_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async def may_mount(_: PluginProcess) -> None:
        pass

    def failing(_directory: Path, words: list[str]) -> list[str]:
        return words

    monkeypatch.setattr(mount.MountPoint, "open", lambda _: None)
    monkeypatch.setattr(PluginProcess, "_try_mount", may_mount)
    monkeypatch.setattr(pluginprocess, "mounted", failing)
    for words, note in (("mount: permission denied", "could not be mounted over"), ("I give up", "")):
        plugin, told = started(f"echo '{words}' >&2; exit 125", tmp_path, private_mount=True)
        await plugin.start()
        await plugin.wait()
        assert note in str(told[0])
        assert ("mounted" in str(told[0])) == bool(note)


async def test_a_hook_that_goes_wrong_says_so_in_a_line(tmp_path: Path):
    plugin, _ = started("exit 0", tmp_path)
    assert await plugin.run_hook("touch {dir}/made", 10.0) == ""
    assert (tmp_path / "made").exists()
    assert await plugin.run_hook("echo no such card; exit 4", 10.0) == "it ended with exit code 4: no such card"
    assert await plugin.run_hook("sleep 600", 0.05) == "it did not end within 0.05 s"
