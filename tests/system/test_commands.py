"""The commands that ask a running daemon, and the demo, run as a user would."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.system.process import fairlead, program, write_config
from tests.system.rig import GPU

from fairlead.testing import Kubelet


@pytest.fixture
async def socket(kubelet: Kubelet, kubelet_root: Path):
    config = write_config(kubelet_root, kubelet, podResources=str(kubelet.podresources_socket))
    async with program("-m", "fairlead", "run", "--config", config):
        await kubelet.wait_for_allocatable(GPU, 8)
        yield f"{kubelet_root}/fl.sock"


async def test_status_shows_devices_holders_and_registration(kubelet: Kubelet, socket: str):
    await kubelet.run_pod("train", {"main": {GPU: 2}})
    code, out, _ = await fairlead("status", "--socket", socket, "--json")
    status = json.loads(out)
    assert code == 0
    (resource,) = status["resources"]
    assert (resource["name"], resource["slots"], resource["held"], resource["phase"]) == (GPU, 8, 2, "streaming")
    assert [row["holders"] for row in status["devices"] if row["held"]] == [["default/train/main"]] * 2
    code, out, _ = await fairlead("status", "--socket", socket)
    assert code == 0
    for words in ("streaming", "healthy", "default/train/main", "H100"):
        assert words in out


async def test_a_fault_is_shown_with_its_cause_and_cleared_by_hand(kubelet: Kubelet, socket: str):
    code, out, _ = await fairlead("sim", "fail", "3", "xid=79", "--socket", socket)
    assert code == 0, out
    await kubelet.wait_for_allocatable(GPU, 7)
    code, out, _ = await fairlead("status", "--check", "--socket", socket)
    assert code == 1
    assert "xid-79" in out
    code, out, _ = await fairlead("explain", GPU, "-n", "8", "--socket", socket)
    assert code == 1
    code, out, _ = await fairlead("explain", GPU, "-n", "2", "--socket", socket)
    assert code == 0
    assert "xid-79" in out  # among those not offered
    code, out, _ = await fairlead("sim", "clear", "3", "--socket", socket)
    assert code == 0
    await kubelet.wait_for_allocatable(GPU, 8)
    code, out, _ = await fairlead("clear", "3", "--socket", socket)
    assert "healthy" in out
    code, _, err = await fairlead("clear", "77", "--socket", socket)
    assert code == 2
    assert "no device '77'" in err


async def test_the_journal_tells_what_happened(kubelet: Kubelet, socket: str):
    await kubelet.run_pod("train", {"main": {GPU: 1}})
    code, out, _ = await fairlead("journal", "--socket", socket, "-n", "5")
    assert code == 0
    assert "allocated resource=nvidia.com/gpu" in out


async def test_wrong_orders_are_explained(socket: str):
    for args, words in (
        (("fial", "3"), "fail"),
        (("fail", "33"), "33"),
        (("fail", "3", "xid=79", "colour=red"), "colour"),
    ):
        code, _, err = await fairlead("sim", *args, "--socket", socket)
        assert code == 2, err
        assert words in err


@pytest.mark.parametrize("fleet", ["h100x8", "pcie16", "mi210x4", "small", "mixed"])
async def test_the_demo_plays_its_story_and_checks_it(fleet: str):
    code, out, err = await fairlead("demo", "--once", "--fleet", fleet)
    assert code == 0, out + err
    assert "every step ended as it must" in out


async def test_the_demo_of_an_unknown_fleet_ends_with_the_reason():
    code, out, _ = await fairlead("demo", "--once", "--fleet", "h100x9")
    assert code != 0
    assert "did you mean" in out
