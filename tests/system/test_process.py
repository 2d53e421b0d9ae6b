"""The daemon as a process: signals, exit codes, and a clear line for everything that can be wrong around it."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pwd
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.system.process import fairlead, program, write_config
from tests.system.rig import GPU, SIM

from fairlead.testing import Kubelet


async def test_it_registers_and_a_signal_stops_it_cleanly(kubelet: Kubelet, kubelet_root: Path):
    async with program("-m", "fairlead", "run", "--config", write_config(kubelet_root, kubelet)) as daemon:
        await kubelet.wait_for_allocatable(GPU, 8)
        daemon.send(signal.SIGTERM)
        assert await daemon.ends() == 0
        assert not list(kubelet.plugin_dir.glob("fairlead-*.sock"))
        await kubelet.wait_for_allocatable(GPU, 0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT])
async def test_interrupt_and_quit_stop_it_too(kubelet: Kubelet, kubelet_root: Path, number: signal.Signals):
    async with program("-m", "fairlead", "run", "--config", write_config(kubelet_root, kubelet)) as daemon:
        await daemon.says("streaming")
        daemon.send(number)
        assert await daemon.ends() == 0
        assert not list(kubelet.plugin_dir.glob("fairlead-*.sock"))


async def test_hangup_reads_the_file_again(kubelet: Kubelet, kubelet_root: Path):
    config = write_config(kubelet_root, kubelet)
    async with program("-m", "fairlead", "run", "--config", config) as daemon:
        await kubelet.wait_for_allocatable(GPU, 8)
        write_config(
            kubelet_root, kubelet, SIM.replace("resource: nvidia.com/gpu", "{resource: nvidia.com/gpu, replicas: 2}")
        )
        daemon.send(signal.SIGHUP)
        await kubelet.wait_for_allocatable(GPU, 16)


async def test_a_second_signal_forces(kubelet: Kubelet, kubelet_root: Path):
    """While an Allocate or PreStart hangs, stopping takes its grace; a second signal does not wait for it."""
    example = kubelet_root / "slow.py"
    example.write_text(
        "import asyncio, fairlead, sys\n"
        "class Slow(fairlead.Plugin):\n"
        "    resource = 'example.com/slow'\n"
        "    def discover(self): return [fairlead.Device('a')]\n"
        "    async def prepare(self, grant):\n"
        "        print('preparing', file=sys.stderr, flush=True)\n"
        "        try: await asyncio.sleep(60)\n"
        "        finally: await asyncio.sleep(60)\n"  # will not be hurried
        "fairlead.run(Slow())\n"
    )
    env = {"FAIRLEAD_PLUGIN_DIR": str(kubelet.plugin_dir), "FAIRLEAD_POD_RESOURCES": "/none"}
    async with program(str(example), env=env) as plugin:
        await kubelet.wait_for_allocatable("example.com/slow", 1)
        pod = asyncio.create_task(kubelet.run_pod("p", {"main": {"example.com/slow": 1}}))
        await plugin.says("preparing")
        plugin.send(signal.SIGTERM)
        await plugin.says("stopping")
        plugin.send(signal.SIGTERM)
        await plugin.says("second signal")
        assert await plugin.ends() == 128 + signal.SIGTERM
        await pod


async def test_a_killed_daemon_comes_back_to_the_same_devices(kubelet: Kubelet, kubelet_root: Path):
    config = write_config(kubelet_root, kubelet)
    async with program("-m", "fairlead", "run", "--config", config) as daemon:
        await kubelet.wait_for_allocatable(GPU, 8)
        pod = await kubelet.run_pod("train", {"main": {GPU: 2}})
        devices = kubelet.devices(GPU)
        daemon.send(signal.SIGKILL)
        await daemon.ends()
    await kubelet.wait_for_allocatable(GPU, 0)
    async with program("-m", "fairlead", "run", "--config", config):
        await kubelet.wait_for_allocatable(GPU, 8)
        assert kubelet.devices(GPU) == devices
        assert pod.phase == "Running"


async def test_two_daemons_in_one_directory_the_second_says_who_holds_it(kubelet: Kubelet, kubelet_root: Path):
    config = write_config(kubelet_root, kubelet)
    async with program("-m", "fairlead", "run", "--config", config) as first:
        await kubelet.wait_for_allocatable(GPU, 8)
        code, _, err = await fairlead("run", "--config", config, "--status-socket", f"{kubelet_root}/2.sock")
        assert code == 3
        assert f"already served by pid {first.pid}" in err
        assert kubelet.node().allocatable[GPU] == 8


async def test_the_kubelet_may_be_absent_and_it_says_so(kubelet_root: Path):
    async with program("-m", "fairlead", "run", "--config", write_config(kubelet_root)) as daemon:
        await daemon.says("waiting for the kubelet")
        daemon.send(signal.SIGTERM)
        assert await daemon.ends() == 0


async def test_a_daemon_needs_no_root_in_a_directory_it_may_write(kubelet: Kubelet, kubelet_root: Path):
    if os.geteuid() != 0:
        pytest.skip("already an ordinary user: every other test shows it")
    nobody = pwd.getpwnam("nobody")
    for path in (kubelet_root, kubelet.plugin_dir):
        os.chown(path, nobody.pw_uid, nobody.pw_gid)
    kubelet.plugin_dir.parent.chmod(0o755)
    for path in kubelet.plugin_dir.iterdir():
        os.chown(path, nobody.pw_uid, nobody.pw_gid)
    config = write_config(kubelet_root, kubelet)
    # Loaded before: the interpreter itself may live where only root can read.
    script = (
        "import os, yaml, fairlead.cli.run, fairlead.app.daemon, fairlead.backends.sim.backend\n"
        "import difflib, fairlead.backends.sim.library, fairlead.config.load\n"
        "from fairlead.backends import registry; registry.kinds()\n"
        "from fairlead.app.start import load_rest; load_rest()\n"
        f"from fairlead.backends.sim import open_backend; open_backend({{'fleet': 'h100x8'}}, None)\n"
        f"os.setgid({nobody.pw_gid}); os.setuid({nobody.pw_uid})\n"
        f"from fairlead.cli import main; main(['run', '--config', {config!r}])"
    )
    async with program("-c", script) as daemon:
        await kubelet.wait_for_allocatable(GPU, 8)
        daemon.send(signal.SIGTERM)
        assert await daemon.ends() == 0


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        pytest.param({"directory": "/proc/nowhere"}, 3, "/proc/nowhere", id="directory that cannot be made"),
        pytest.param({"directory": "relative"}, 2, "must be an absolute path", id="relative directory"),
        pytest.param({"directry": "/x"}, 2, "did you mean 'directory'", id="unknown key"),
        pytest.param({"registration": "sockets"}, 2, "did you mean 'socket'", id="unknown value"),
    ],
)
async def test_a_wrong_setting_is_one_clear_line_and_an_exit_code(kubelet_root: Path, change, code, words):
    got, _, err = await fairlead("run", "--config", write_config(kubelet_root, **change))
    assert got == code
    assert words in err
    assert "Traceback" not in err


async def test_an_unreadable_directory_is_named(kubelet_root: Path):
    (kubelet_root / "file").write_text("")
    got, _, err = await fairlead("run", "--config", write_config(kubelet_root, directory=f"{kubelet_root}/file"))
    assert got == 3
    assert f"{kubelet_root}/file" in err
    assert "Traceback" not in err


async def test_a_socket_path_over_107_bytes_is_told_with_its_length(kubelet_root: Path):
    deep = kubelet_root / ("d" * 90)
    code, _, err = await fairlead("run", "--config", write_config(kubelet_root, directory=str(deep)))
    assert code == 2
    assert "107 is the limit" in err
    assert "rules[0].resource" in err


async def test_a_log_that_nobody_reads_does_not_stop_the_daemon(kubelet: Kubelet, kubelet_root: Path):
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    config = write_config(kubelet_root, kubelet)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "fairlead", "run", "--config", config, stderr=writing, stdin=asyncio.subprocess.DEVNULL
    )
    try:
        await kubelet.wait_for_allocatable(GPU, 8)
        for number in range(60):  # some hundred bytes of log each
            pod = await kubelet.run_pod(f"p{number}", {"main": {GPU: 4}})
            assert pod.phase == "Running", pod.message
            await kubelet.delete_pod(pod)
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 20) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        os.close(reading)
        os.close(writing)


async def test_two_daemons_on_one_status_socket_the_second_says_so(kubelet: Kubelet, kubelet_root: Path):
    config = write_config(kubelet_root, kubelet)
    async with program("-m", "fairlead", "run", "--config", config):
        await kubelet.wait_for_allocatable(GPU, 8)
        code, _, err = await fairlead("run", "--config", config, "--plugin-dir", f"{kubelet_root}/other")
        assert code == 3
        assert "another daemon answers" in err


async def test_an_oversize_list_is_refused_with_the_arithmetic_and_others_go_on(kubelet: Kubelet, kubelet_root: Path):
    text = SIM.replace(
        "  - resource: nvidia.com/gpu",
        "  - {match: {index: 0}, resource: example.com/many, replicas: 65536}\n  - resource: nvidia.com/gpu",
    )
    async with program("-m", "fairlead", "run", "--config", write_config(kubelet_root, kubelet, text)) as daemon:
        line = await daemon.says("list-refused")
        assert "4,194,304" in line
        assert "65536" in line
        await kubelet.wait_for_allocatable(GPU, 7)
        assert "example.com/many" not in kubelet.node().capacity


async def test_who_gave_an_order_is_in_the_log(kubelet: Kubelet, kubelet_root: Path):
    socket = f"{kubelet_root}/fl.sock"
    async with program("-m", "fairlead", "run", "--config", write_config(kubelet_root, kubelet)) as daemon:
        await kubelet.wait_for_allocatable(GPU, 8)
        for words in (("sim", "fail", "3", "xid=79"), ("clear", "3")):
            code, _, err = await fairlead(*words, "--socket", socket)
            assert code == 0, err
        assert f"uid={os.getuid()} pid=" in await daemon.says('ordered order="fail 3"')
        assert f"uid={os.getuid()} pid=" in await daemon.says("ordered order=clear")
        code, out, _ = await fairlead("journal", "--socket", socket)
        assert "ordered order=clear" in out


@pytest.mark.parametrize("place", ["/proc/fairlead/fl.sock", "{root}/file/fl.sock"])
async def test_a_host_without_a_place_for_the_status_socket_is_served_all_the_same(
    kubelet: Kubelet, kubelet_root: Path, place: str
):
    (kubelet_root / "file").write_text("")
    config = write_config(kubelet_root, kubelet)
    words = ("run", "--config", config, "--status-socket", place.format(root=kubelet_root))
    async with program("-m", "fairlead", *words) as daemon:
        line = await daemon.says("problem topic=status")
        assert place.format(root=kubelet_root) in line
        await kubelet.wait_for_allocatable(GPU, 8)
        daemon.send(signal.SIGTERM)
        assert await daemon.ends() == 0


@pytest.fixture
def read_only(kubelet_root: Path) -> Iterator[Path]:
    place = kubelet_root / "fixed"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "ro,size=64k", "none", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("only root can mount a read-only file system, and not everywhere")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


async def test_a_status_socket_on_a_read_only_file_system_is_no_obstacle(
    kubelet: Kubelet, kubelet_root: Path, read_only: Path
):
    words = ("run", "--config", write_config(kubelet_root, kubelet), "--status-socket", f"{read_only}/fl.sock")
    async with program("-m", "fairlead", *words) as daemon:
        assert "Read-only file system" in await daemon.says("problem topic=status")
        await kubelet.wait_for_allocatable(GPU, 8)
