"""`fairlead status` and its like find the daemons of a node, whichever command started them."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.system.process import fairlead, program, write_config
from tests.system.rig import GPU, SIM

from fairlead.testing import Kubelet

NIC = "example.com/nic"


@pytest.fixture
def sockets(kubelet_root: Path) -> Path:
    """The place of /run/fairlead."""
    directory = kubelet_root / "run"
    directory.mkdir()
    return directory


def written(root: Path, kubelet: Kubelet, resource: str) -> str:
    root.mkdir()
    return write_config(root, kubelet, SIM.replace(GPU, resource))


@asynccontextmanager
async def daemon(kubelet: Kubelet, root: Path, place: Path, resource: str = GPU) -> AsyncIterator[None]:
    config = written(root, kubelet, resource)
    words = ("--status-socket", str(place), "--instance", place.stem)
    async with program("-m", "fairlead", "run", "--config", config, *words):
        await kubelet.wait_for_allocatable(resource, 8)
        yield


async def test_status_finds_a_daemon_under_any_name(kubelet: Kubelet, kubelet_root: Path, sockets: Path):
    """The usual directory is not asked for: the variable stands for it here, as it does in a container."""
    async with daemon(kubelet, kubelet_root / "a", sockets / "nvidia.sock"):
        env = {"FAIRLEAD_STATUS_SOCKET": str(sockets)}
        code, out, err = await fairlead("status", "--json", env=env)
        assert code == 0, err
        assert json.loads(out)["resources"][0]["name"] == GPU
        code, out, err = await fairlead("explain", GPU, env=env)
        assert code == 0, err


async def test_several_daemons_are_shown_one_after_the_other(kubelet: Kubelet, kubelet_root: Path, sockets: Path):
    async with (
        daemon(kubelet, kubelet_root / "a", sockets / "fairlead.sock"),
        daemon(kubelet, kubelet_root / "b", sockets / "volcano.sock", NIC),
    ):
        code, out, err = await fairlead("status", "--status-socket", str(sockets))
        assert (code, err) == (0, "")
        assert out.index(GPU) < out.index(NIC)
        code, out, _ = await fairlead("status", "--status-socket", str(sockets), "--json")
        assert [each["resources"][0]["name"] for each in json.loads(out)] == [GPU, NIC]
        code, _, err = await fairlead("explain", NIC, "--status-socket", str(sockets))
        assert code == 2
        assert f"{sockets}/volcano.sock. Choose one with --status-socket" in err
        code, out, _ = await fairlead("explain", NIC, "--status-socket", f"{sockets}/volcano.sock")
        assert code == 0
        assert NIC in out


async def test_a_socket_left_behind_does_not_hide_a_daemon(kubelet: Kubelet, kubelet_root: Path, sockets: Path):
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(sockets / "dead.sock"))
    (sockets / "note.sock").write_text("no socket")
    code, _, err = await fairlead("status", "--status-socket", str(sockets))
    assert code == 5
    assert f"no daemon answers on {sockets}/dead.sock" in err
    async with daemon(kubelet, kubelet_root / "a", sockets / "fairlead.sock"):
        code, out, err = await fairlead("status", "--status-socket", str(sockets))
        assert code == 0
        assert GPU in out
        assert f"no daemon answers on {sockets}/dead.sock" in err


async def test_where_no_daemon_is_the_place_is_named(sockets: Path):
    for words in (("status",), ("journal",)):
        code, _, err = await fairlead(*words, "--status-socket", str(sockets))
        assert code == 5
        assert f"no daemon has a socket in {sockets}" in err


async def test_a_kubelet_that_does_not_tell_holders_is_not_waited_for(kubelet: Kubelet, kubelet_root: Path):
    silent = kubelet_root / "pods.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(silent))
        listening.listen()
        config = write_config(kubelet_root, kubelet, podResources=str(silent))
        async with program("-m", "fairlead", "run", "--config", config):
            await kubelet.wait_for_allocatable(GPU, 8)
            code, out, _ = await fairlead("status", "--status-socket", f"{kubelet_root}/fl.sock")
            assert code == 0
            assert f"{silent} did not answer within 0.5 s" in " ".join(out.split())
