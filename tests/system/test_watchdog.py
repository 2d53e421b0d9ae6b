"""A loop that hangs: the log says where, the process ends, a signal ends it sooner; a service manager hears of us."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
from pathlib import Path

import pytest
from tests.system.process import program, write_config
from tests.system.rig import GPU

from fairlead.testing import Kubelet

PLUGIN = """
import asyncio, ctypes, sys, time
import fairlead

class Slow(fairlead.Plugin):
    resource = "example.com/slow"
    def discover(self): return [fairlead.Device("a")]
    async def prepare(self, grant): {prepare}
    def edits(self, grant): {edits}; return fairlead.Edits()

fairlead.run(Slow())
"""
BLOCKS = "print('blocking', file=sys.stderr, flush=True); time.sleep(600)"
SLOW = {"main": {"example.com/slow": 1}}


def written(root: Path, **parts: str) -> str:
    path = root / "slow.py"
    path.write_text(PLUGIN.format(**{"prepare": "pass", "edits": "pass", **parts}))
    return str(path)


def environment(kubelet: Kubelet, **more: str) -> dict[str, str]:
    return {"FAIRLEAD_PLUGIN_DIR": str(kubelet.plugin_dir), "FAIRLEAD_POD_RESOURCES": "/none", **more}


@pytest.mark.parametrize("part", ["prepare", "edits"])
async def test_code_that_blocks_the_loop_is_named_and_the_process_ends(kubelet: Kubelet, kubelet_root: Path, part: str):
    env = environment(kubelet, FAIRLEAD_WATCHDOG_LIMIT="1s")
    async with program(written(kubelet_root, **{part: BLOCKS}), env=env) as plugin:
        await kubelet.wait_for_allocatable("example.com/slow", 1)
        pod = asyncio.create_task(kubelet.run_pod("p", SLOW))
        line = await plugin.says(f' in {part}"')  # a starved machine may block the loop elsewhere before
        assert re.search(rf'loop-blocked .*at="[^"]*slow.py:\d+ in {part}"', line)
        assert "move it to a thread" in line
        assert "watchdog-ended" in await plugin.says("watchdog-ended")
        assert await plugin.ends() == 75
        assert not [line for line in plugin.lines if "Traceback" in line]
        pod.cancel()


async def test_the_process_ends_with_a_log_for_machines_too(kubelet: Kubelet, kubelet_root: Path):
    env = environment(kubelet, FAIRLEAD_WATCHDOG_LIMIT="1s", FAIRLEAD_LOG_FORMAT="json")
    async with program(written(kubelet_root, edits=BLOCKS), env=env) as plugin:
        await kubelet.wait_for_allocatable("example.com/slow", 1)
        pod = asyncio.create_task(kubelet.run_pod("p", SLOW))
        for event in ("loop-blocked", "watchdog-ended"):
            told = json.loads(await plugin.says(event))
            assert (told["event"], told["limit"]) == (event, 1)
        assert await plugin.ends() == 75
        pod.cancel()


async def test_a_signal_ends_a_process_whose_loop_hangs(kubelet: Kubelet, kubelet_root: Path):
    """Long before the limit; five seconds are what a loop gets to take note of it."""
    async with program(written(kubelet_root, edits=BLOCKS), env=environment(kubelet)) as plugin:
        await kubelet.wait_for_allocatable("example.com/slow", 1)
        pod = asyncio.create_task(kubelet.run_pod("p", SLOW))
        await plugin.says("blocking")
        plugin.send(signal.SIGTERM)
        await plugin.says("watchdog-ended")
        assert await plugin.ends() == 128 + signal.SIGTERM
        pod.cancel()


async def test_a_library_that_holds_the_interpreter_does_not_hold_the_process(kubelet: Kubelet, kubelet_root: Path):
    """No Python runs then, the watchdog's thread no more than the loop: C code ends the process, and shows the line."""
    holds = "print('blocking', file=sys.stderr, flush=True); ctypes.PyDLL(None).sleep(600)"
    script = written(kubelet_root, edits=holds)
    net = "import fairlead.app.watchdog as w; w.REST_S = 0.5; import runpy; runpy.run_path(sys.argv[1])"
    env = environment(kubelet, FAIRLEAD_WATCHDOG_LIMIT="1s")
    async with program("-c", f"import sys; {net}", script, env=env) as plugin:
        await kubelet.wait_for_allocatable("example.com/slow", 1)
        pod = asyncio.create_task(kubelet.run_pod("p", SLOW))
        assert await plugin.ends() == 1
        assert [line for line in plugin.lines if re.search(r'slow.py", line \d+ in edits', line)]
        pod.cancel()


async def test_a_loop_that_turns_again_says_so_and_goes_on(kubelet: Kubelet, kubelet_root: Path):
    script = written(kubelet_root, edits="time.sleep(3)")
    async with program(script, env=environment(kubelet, FAIRLEAD_WATCHDOG_LIMIT="4s")) as plugin:
        await kubelet.wait_for_allocatable("example.com/slow", 1)
        pod = await kubelet.run_pod("p", SLOW)
        assert pod.phase == "Running", pod.message
        await plugin.says("loop-blocked")
        await plugin.says("loop-resumed")
        plugin.send(signal.SIGTERM)
        assert await plugin.ends() == 0


async def test_a_service_manager_hears_that_the_daemon_is_ready_alive_and_stopping(
    kubelet: Kubelet, kubelet_root: Path
):
    heard: list[str] = []
    more = asyncio.Event()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(kubelet_root / "notify"))
        manager.setblocking(False)

        def read() -> None:
            heard.append(manager.recv(1024).decode())
            more.set()

        asyncio.get_running_loop().add_reader(manager, read)
        env = {"NOTIFY_SOCKET": str(kubelet_root / "notify"), "WATCHDOG_USEC": "200000"}
        config = write_config(kubelet_root, kubelet)
        async with program("-m", "fairlead", "run", "--config", config, env=env) as daemon, asyncio.timeout(20):
            await kubelet.wait_for_allocatable(GPU, 8)
            while "READY=1" not in heard or heard.count("WATCHDOG=1") < 3:
                more.clear()
                await more.wait()
            daemon.send(signal.SIGTERM)
            assert await daemon.ends() == 0
            while "STOPPING=1" not in heard:
                more.clear()
                await more.wait()
        asyncio.get_running_loop().remove_reader(manager)
