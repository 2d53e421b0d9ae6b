"""A daemon that has no file descriptor left: it says so, serves those who are connected, and recovers by itself."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tests.apiserver.server import api_server
from tests.system.process import PATIENCE_S, Program, fairlead, program, write_config
from tests.system.rig import GPU, SIM

from fairlead.testing import Kubelet

FEW = 40  # descriptors; a daemon at rest has about 15
LIMITED = (
    "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, ({few}, {few})); "
    "from fairlead.cli import main; main(sys.argv[1:])"
)


def starved(config: str) -> tuple[str, ...]:
    return "-c", LIMITED.format(few=FEW), "run", "--config", config


@contextmanager
def crowd(*paths: Path) -> Iterator[None]:
    """More connections than the daemon has descriptors for. Some wait in the listener's queue."""
    held = []
    try:
        for path in paths:
            for _ in range(FEW):
                connection = socket.socket(socket.AF_UNIX)
                held.append(connection)
                connection.setblocking(False)
                connection.connect(str(path))
        yield
    finally:
        for connection in held:
            connection.close()


def plugin_socket(kubelet: Kubelet) -> Path:
    return next(kubelet.plugin_dir.glob("fairlead-*.sock"))


def quiet(daemon: Program) -> None:
    assert not [line for line in daemon.lines if "Traceback" in line or "Error:" in line], daemon.lines


async def test_with_no_descriptor_left_the_kubelet_is_served_and_newcomers_wait(kubelet: Kubelet, kubelet_root: Path):
    config = write_config(kubelet_root, kubelet)
    async with program(*starved(config)) as daemon:
        await kubelet.wait_for_allocatable(GPU, 8)
        with crowd(plugin_socket(kubelet), kubelet_root / "fl.sock"):
            line = await daemon.says("out-of-descriptors")
            assert "Too many open files" in line
            pod = await kubelet.run_pod("p", {"main": {GPU: 2}})
            assert pod.phase == "Running", pod.message
        await daemon.says("descriptors-free")
        code, out, err = await fairlead("status", "--socket", f"{kubelet_root}/fl.sock", "--json")
        assert code == 0, err
        assert json.loads(out)["resources"][0]["phase"] == "streaming"
        daemon.send(signal.SIGTERM)
        assert await daemon.ends() == 0
        quiet(daemon)


async def test_a_reload_and_a_kubelet_restart_without_descriptors_are_made_up_for(kubelet: Kubelet, kubelet_root: Path):
    config = write_config(kubelet_root, kubelet)
    async with program(*starved(config)) as daemon:
        await kubelet.wait_for_allocatable(GPU, 8)
        with crowd(plugin_socket(kubelet), kubelet_root / "fl.sock"):
            await daemon.says("out-of-descriptors")
            write_config(kubelet_root, kubelet, SIM.replace("h100x8", "no-such-fleet"))
            daemon.send(signal.SIGHUP)
            await daemon.says("problem topic=config")
            write_config(kubelet_root, kubelet)
            await kubelet.restart()
        await kubelet.wait_for_allocatable(GPU, 8)
        daemon.send(signal.SIGHUP)
        pod = await kubelet.run_pod("p", {"main": {GPU: 2}})
        assert pod.phase == "Running", pod.message
        quiet(daemon)


async def test_a_daemon_short_of_descriptors_from_the_start_says_so_and_goes_on(kubelet: Kubelet, kubelet_root: Path):
    """The socket that a daemon listens on needs one too; so does its lock. Each is tried again."""
    config = write_config(kubelet_root, kubelet)
    with closing(socket.socket(socket.AF_UNIX)) as stray:
        async with program(*starved(config)) as daemon:
            await kubelet.wait_for_allocatable(GPU, 8)
            stray.connect(str(plugin_socket(kubelet)))
            await kubelet.stop()
            with crowd(kubelet_root / "fl.sock"):
                await daemon.says("out-of-descriptors")
                plugin_socket(kubelet).unlink()
                await daemon.says("bind resource")
            await kubelet.start()
            await kubelet.wait_for_allocatable(GPU, 8)
            quiet(daemon)


async def test_the_api_server_is_reached_again_when_descriptors_are_free(
    kubelet: Kubelet, kubelet_root: Path, tmp_path: Path
):
    amount = "example.com/gpu-core"
    async with api_server() as server:
        empty: dict[str, str] = {}
        server.store.put("nodes", {"metadata": {"name": "n1"}, "status": {"capacity": empty, "allocatable": empty}})
        access = {
            "clusters": [{"name": "c", "cluster": {"server": server.url}}],
            "users": [{"name": "u", "user": {"token": "s3cret"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        kubeconfig = tmp_path / "config"
        kubeconfig.write_text(json.dumps(access))
        text = f"{SIM}amounts: [{{resource: {amount}, perDevice: 100}}]\n"
        env = {"KUBECONFIG": str(kubeconfig), "NODE_NAME": "n1"}
        config = write_config(kubelet_root, kubelet, text)
        async with program(*starved(config), env=env) as daemon:
            await kubelet.wait_for_allocatable(GPU, 8)
            await daemon.says("amounts-set")
            with crowd(plugin_socket(kubelet), kubelet_root / "fl.sock"):
                await daemon.says("out-of-descriptors")
                server.store.put("nodes", {"metadata": {"name": "n1"}, "status": {"capacity": {}, "allocatable": {}}})
                write_config(kubelet_root, kubelet, text.replace("perDevice: 100", "perDevice: 50"))
                daemon.send(signal.SIGHUP)
            async with asyncio.timeout(PATIENCE_S):
                while server.store.get("nodes", "n1")["status"]["capacity"].get(amount) != "400":
                    daemon.send(signal.SIGHUP)
                    await asyncio.sleep(0.1)
            quiet(daemon)
