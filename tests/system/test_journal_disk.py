"""The journal on disk outlasts its daemon, whatever ended it, and is read with and without one."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.system.process import PATIENCE_S, fairlead, program, write_config
from tests.system.rig import GPU, running

from fairlead.cli.commands import cli
from fairlead.observe.journalfile import JournalFile
from fairlead.testing import Kubelet


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = tmp_path / "state"
    made.mkdir()
    return made


async def test_facts_outlast_a_daemon_that_was_killed(kubelet: Kubelet, kubelet_root: Path, directory: Path):
    config = write_config(kubelet_root, kubelet)
    run = ("-m", "fairlead", "run", "--config", config, "--journal-dir", str(directory))
    file = directory / "fl.journal"
    async with program(*run) as first:
        await kubelet.wait_for_allocatable(GPU, 8, PATIENCE_S)
        await kubelet.run_pod("train", {"main": {GPU: 1}})
        await first.says("allocated")
        while "allocated" not in await asyncio.to_thread(file.read_text):  # noqa: ASYNC110 - no event of ours tells it
            await asyncio.sleep(0)
        first.send(signal.SIGKILL)
        await first.ends()
    await asyncio.to_thread(cut, file)

    read = ("journal", "--journal-dir", str(directory))
    code, out, err = await fairlead(*read, "--since", "1h", "--json")
    assert code == 0, err
    rows = json.loads(out)
    assert "started" in [row["event"] for row in rows]
    assert "torn" in err
    assert "Traceback" not in err

    async with program(*run) as second:
        await second.says("streaming")
        await kubelet.wait_for_allocatable(GPU, 8, PATIENCE_S)
        second.send(signal.SIGTERM)
        assert await second.ends() == 0
    code, out, _ = await fairlead(*read, "--since", "1h", "--json")
    events = [row["event"] for row in json.loads(out)]
    assert events.count("started") == 2
    assert events[-1] == "stopped"
    device = next(row["device"] for row in json.loads(out) if row["event"] == "device-found")
    code, out, _ = await fairlead(*read, "--device", device)
    assert code == 0
    assert all(device in line for line in out.splitlines())


async def test_a_fact_in_memory_and_on_disk_is_shown_once(kubelet: Kubelet, tmp_path: Path, directory: Path):
    env = {"FAIRLEAD_JOURNAL_DIR": str(directory), "FAIRLEAD_STATUS_SOCKET": f"{kubelet.plugin_dir.parent}/fl.sock"}
    async with running(kubelet, tmp_path) as node:
        await node.ready()
        disk = JournalFile(directory / "fl.journal")
        disk.put(node.daemon.journal.tail()[:10])
        disk.close()
        shown = await asyncio.to_thread(CliRunner().invoke, cli, ["journal", "-n", "1000", "--json"], env=env)
        assert (shown.exit_code, shown.stderr) == (0, "")
        events = [row["event"] for row in json.loads(shown.stdout)]
        assert (events.count("started"), events.count("device-found")) == (1, 8)
        assert "streaming" in events


def cut(file: Path) -> None:
    """As a kill in the middle of a write leaves it."""
    with file.open("ab") as end:
        end.write(b'{"seq":99,"at_s":1700000000.0,"eve')
