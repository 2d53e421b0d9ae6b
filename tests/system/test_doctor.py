"""`fairlead doctor` beside a running daemon: nothing on a healthy node, and the kubelet's end is found and mended."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.system.process import fairlead, program, write_config
from tests.system.rig import GPU

from fairlead.model.errors import FairleadError
from fairlead.observe.control import ask
from fairlead.testing import Kubelet


@pytest.fixture
async def socket(kubelet: Kubelet, kubelet_root: Path):
    text = "backends: [{kind: sim, fleet: h100x8}]\nrules: [{resource: nvidia.com/gpu, perContainer: 1}]\n"
    config = write_config(kubelet_root, kubelet, podResources=str(kubelet.podresources_socket), text=text)
    async with program("-m", "fairlead", "run", "--config", config):
        await kubelet.wait_for_allocatable(GPU, 8)
        yield f"{kubelet_root}/fl.sock"


async def examine(socket: str) -> tuple[int | None, dict[str, Any]]:
    code, out, err = await fairlead("doctor", "--socket", socket, "--json")
    assert not err, err
    return code, json.loads(out)


def codes(answer: dict[str, Any]) -> set[str]:
    return {one["code"] for one in answer["findings"]}


# Of the checks that look at the machine on which the test runs nothing is asked.
OF_THE_NODE = {"D01", "D02", "D23", "D24", "D28", "D30", "D32"}


async def test_beside_a_daemon_nothing_is_wrong_with_a_healthy_node(kubelet: Kubelet, socket: str):
    await kubelet.run_pod("train", {"main": {GPU: 1}})
    _, answer = await examine(socket)
    assert not codes(answer) & OF_THE_NODE
    assert not {row["code"] for row in answer["not_looked_at"]} & (OF_THE_NODE | {"D42"})


async def test_a_kubelet_that_is_gone_is_found_and_its_cure_works(kubelet: Kubelet, socket: str):
    await kubelet.stop()
    code, answer = await examine(socket)
    assert code == 1
    assert codes(answer) & {"D01", "D02"}
    await kubelet.start()
    await kubelet.wait_for_allocatable(GPU, 8)
    _, answer = await examine(socket)
    assert not codes(answer) & OF_THE_NODE


async def test_refusals_and_a_damaged_checkpoint_are_found(kubelet: Kubelet, socket: str):
    pod = await kubelet.run_pod("greedy", {"main": {GPU: 2}})
    assert pod.reason == "UnexpectedAdmissionError"
    checkpoint = kubelet.plugin_dir / "kubelet_internal_checkpoint"
    checkpoint.write_bytes(checkpoint.read_bytes()[:40])
    _, answer = await examine(socket)
    found = {one["code"]: one for one in answer["findings"]}
    assert "1 times: nvidia.com/gpu: one container may have 1 of it, not 2" in found["D23"]["seen"]
    assert "it is not what a kubelet writes" in found["D32"]["seen"]
    assert str(checkpoint) in found["D32"]["cure"]


async def test_the_status_shows_what_the_last_look_found(kubelet: Kubelet, socket: str):
    _, before, _ = await fairlead("status", "--socket", socket, "--json")
    assert json.loads(before)["doctor"] is None
    _, answer = await examine(socket)
    _, out, _ = await fairlead("status", "--socket", socket, "--json")
    shown = json.loads(out)["doctor"]
    assert shown["codes"] == [one["code"] for one in answer["findings"]]
    severities = [one["severity"] for one in answer["findings"]]
    assert (shown["errors"], shown["warnings"]) == (severities.count("error"), severities.count("warning"))
    _, out, _ = await fairlead("status", "--socket", socket)
    assert "doctor, " in out


@pytest.mark.parametrize(
    "summary",
    [
        {"errors": -1, "warnings": 0},
        {"errors": 0, "warnings": 0, "codes": ["<script>"]},
        {"errors": 0, "warnings": 0, "codes": ["D01"] * 100},
        {"errors": "none"},
    ],
)
async def test_a_summary_that_is_none_is_refused(socket: str, summary: dict[str, Any]):
    with pytest.raises(FairleadError, match="does not fit"):
        await asyncio.to_thread(ask, Path(socket), {"ask": "examined", **summary})
    _, out, _ = await fairlead("status", "--socket", socket, "--json")
    assert json.loads(out)["doctor"] is None
