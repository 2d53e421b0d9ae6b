"""Hostile files for a daemon that serves: it keeps its configuration and answers the kubelet. And as real processes."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from tests.fuzz.good import NVIDIA, VOLCANO
from tests.fuzz.hostile import FILES, TEXTS, dump
from tests.system.process import fairlead, program
from tests.system.rig import GPU, SIM, running

from fairlead.dialects.gke.command import read_command_line as read_gke
from fairlead.dialects.nvidia.command import read_command_line as read_nvidia
from fairlead.dialects.volcano.command import read_command_line as read_volcano
from fairlead.model.errors import FairleadError
from fairlead.testing import Kubelet

WORST = ["laughs 9 9", "merges 9 9", "60 KB of [", "60 KB of {", "nesting of 500 in JSON", "10^400", "NUL", "no UTF-8"]


async def test_no_hostile_file_disturbs_a_daemon_that_serves(kubelet: Kubelet, kubelet_root: Path):
    """Every file and text that no reader takes, one after the other, with pods that come and go meanwhile."""
    async with running(kubelet, kubelet_root) as node:
        await node.ready()
        assert len([*FILES, *TEXTS]) > 100
        for number, name in enumerate([*FILES, *TEXTS]):
            _put(name, node.config)
            node.daemon.problems.pop("config", None)
            node.daemon.reload()
            pod = await kubelet.run_pod(f"pod-{number}", {"main": {GPU: 8}})  # while it is being read
            assert pod.phase == "Running", (name, pod.message)
            await kubelet.delete_pod(pod)
            while (task := node.daemon._reloads.task) is not None:
                await task
            assert str(node.config) in node.daemon.problems["config"], name
            assert node.daemon.loaded.config.rules[0].resource == GPU, name
        _remove(node.config)
        node.write(SIM.replace("  - resource: nvidia.com/gpu", "  - {resource: nvidia.com/gpu, replicas: 2}"))
        await node.reload()
        await kubelet.wait_for_allocatable(GPU, 16)


@pytest.mark.parametrize("kind", [*FILES, *WORST])
@pytest.mark.parametrize(("read", "good"), [(read_nvidia, NVIDIA), (read_volcano, VOLCANO)], ids=["nvidia", "volcano"])
def test_no_hostile_file_of_theirs_is_read_again(read, good, kind: str, tmp_path: Path):
    """What a dialect's daemon does at each reload: it reads their file again."""
    path = tmp_path / "theirs.yaml"
    path.write_bytes(dump(good))
    order = read([f"--config-file={path}"], {"NODE_NAME": "n"})
    assert order.translate().config
    _put(kind, path)
    with pytest.raises(FairleadError, match="theirs"):
        order.translate()


@pytest.mark.parametrize("kind", sorted({*FILES, *WORST} - {"nesting of 500 in JSON"}))  # which is a key like any other
def test_no_hostile_config_file_of_gkes_is_read_again(kind: str, tmp_path: Path):
    """At its start the file would be left out, as with theirs. While it runs, it changes nothing."""
    path = tmp_path / "theirs.json"
    path.write_text('{"MaxTimeSharedClientsPerGPU": 2}')
    order = read_gke([f"-gpu-config={path}"], {})
    assert order.translate().config["rules"][0]["replicas"] == 2
    _put(kind, path)
    with pytest.raises(FairleadError, match="theirs"):
        order.translate()
    assert read_gke([f"-gpu-config={path}"], {}).translate().config["rules"][0].get("replicas") is None


@pytest.mark.parametrize("kind", ["fifo", "zero", "large", "laughs 9 9", "60 KB of ["])
@pytest.mark.parametrize("command", ["validate", "plan", "run", "nvidia", "volcano"])
async def test_a_process_ends_with_its_code_and_a_message(command: str, kind: str, tmp_path: Path):
    path = tmp_path / "hostile.yaml"
    _put(kind, path)
    ours = command not in {"nvidia", "volcano"}
    args = [command, f"--config={path}"] if ours else [command, f"--config-file={path}"]
    code, _, printed = await fairlead(*args, env={"NODE_NAME": "n"})
    assert code == (2 if ours else 1), printed
    assert str(path) in printed
    assert "Traceback" not in printed


async def test_a_process_survives_a_file_that_takes_all_memory(kubelet: Kubelet, kubelet_root: Path):
    config = kubelet_root / "fairlead.yaml"
    good = f"{SIM}kubelet: {{directory: {kubelet.plugin_dir}, podResources: ''}}\nstatus: {{socket: ''}}\n"
    config.write_text(good)
    async with program("-m", "fairlead", "run", "--config", str(config)) as daemon:
        await kubelet.wait_for_allocatable(GPU, 8)
        for number, (kind, said) in enumerate(
            (("laughs 9 9", "more than 50,000 values"), ("60 KB of [", "nested too deeply"), ("no UTF-8", "byte 0xff"))
        ):
            config.write_bytes(TEXTS[kind])
            daemon.send(signal.SIGHUP)
            await daemon.says(said)
            pod = await kubelet.run_pod(f"pod-{number}", {"main": {GPU: 8}})
            assert pod.phase == "Running", pod.message
            await kubelet.delete_pod(pod)


def _put(name: str, path: Path) -> None:
    _remove(path)
    if name in FILES:
        FILES[name](path)
    else:
        path.write_bytes(TEXTS[name])


def _remove(path: Path) -> None:
    path.with_name("other").unlink(missing_ok=True)  # see the loop of two
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    else:
        path.unlink(missing_ok=True)
