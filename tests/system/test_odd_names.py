"""Names of files that are not UTF-8, or that hold what a terminal obeys: shown, logged and sent without harm."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from tests.system.process import program
from tests.system.rig import PATIENCE_S, running

from fairlead.model.health import Health
from fairlead.testing import Kubelet

NIC = "example.com/nic"
ODD = (b"nic\xff", b"nic\x1b[31mred", "nic\u202eabc".encode(), b"nic good")


async def _run(*args: str) -> tuple[int, str]:
    """A command's exit code, and all it printed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "fairlead", *args, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    printed, _ = await asyncio.wait_for(process.communicate(), 2 * PATIENCE_S)
    assert process.returncode is not None
    return process.returncode, printed.decode()  # strictly: what is printed is UTF-8


def _is_harmless(text: str) -> bool:
    return all(one == "\n" or one.isprintable() for one in text)


async def test_odd_file_names_harm_nobody(kubelet: Kubelet, kubelet_root: Path):
    files = kubelet_root / "files"
    files.mkdir()
    for name in ODD:
        (files / os.fsdecode(name)).touch()
    text = f"backends: [{{kind: paths, devices: [{{paths: ['{files}/nic*'], allow: [file]}}]}}]\n"
    text += f"rules: [{{resource: {NIC}}}]\nhealth: {{probeInterval: 20ms}}\n"
    async with running(kubelet, kubelet_root, text) as node:
        await kubelet.wait_for(lambda: kubelet.node().capacity.get(NIC) == len(ODD))
        await kubelet.wait_for_allocatable(NIC, len(ODD) - 1)  # all but the one that cannot be told
        socket = node.daemon.loaded.config.status.socket
        for args in (
            ("status", "--socket", socket),
            ("journal", "--socket", socket),
            ("devices", "--config", str(node.config)),
            ("plan", "--config", str(node.config)),
        ):
            code, printed = await _run(*args)
            assert code == 0, printed
            assert _is_harmless(printed), printed
            code, printed = await _run(*args, "--json")
            assert code == 0, printed
            assert _is_harmless(printed), printed
            assert json.loads(printed)
        (odd,) = [one for one in node.daemon.engine.inventory.devices if one.index == r"nic\xff"]
        assert node.daemon.engine.conditions.by_device[odd.id].health is not Health.HEALTHY
        pod = await kubelet.run_pod("train", {"main": {NIC: len(ODD) - 1}})
        assert pod.phase == "Running", pod.message


async def test_the_log_of_a_process_loses_no_line(kubelet: Kubelet, kubelet_root: Path):
    files = kubelet_root / "files"
    files.mkdir()
    for name in ODD:
        (files / os.fsdecode(name)).touch()
    config = kubelet_root / os.fsdecode(b"c\xff.yaml")
    config.write_text(
        f"backends: [{{kind: paths, devices: [{{paths: ['{files}/nic*'], allow: [file]}}]}}]\n"
        f"rules: [{{resource: {NIC}}}]\nlog: {{format: json}}\nstatus: {{socket: {kubelet_root}/s.sock}}\n"
        f"kubelet: {{directory: {kubelet.plugin_dir}, podResources: ''}}\n"
    )
    async with program("-m", "fairlead", "run", "--config", str(config)) as daemon:
        assert r"c\\xff.yaml" in await daemon.says("started")
        await daemon.says(r"nic\\xff is not UTF-8")
        await kubelet.wait_for(lambda: kubelet.node().capacity.get(NIC) == len(ODD))
        assert all(json.loads(line) and _is_harmless(line) for line in daemon.lines)


async def test_an_odd_word_on_the_command_line_is_no_defect(kubelet_root: Path):
    for args in (("explain", "a\udcff"), ("clear", "\x1b[2J"), ("validate", "--config", "\udcff"), ("\udcff",)):
        code, printed = await _run(*args)
        assert code in {2, 5}, printed
        assert _is_harmless(printed), printed
