"""Probes and metrics of a running daemon: what a kubelet and a Prometheus would be told."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.system.rig import GPU, Node, running
from tests.system.webclient import HTTP, get

from fairlead.app import web
from fairlead.testing import Kubelet


async def sample(node: Node, name: str, **labels: str) -> float | None:
    status, text = await get(node, "/metrics")
    assert status == 200, node.find("http-failed")
    for family in text_string_to_metric_families(text):
        for found in family.samples:
            if found.name == name and labels.items() <= found.labels.items():
                return float(found.value)
    return None


@pytest.fixture(autouse=True)
def _always_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "FRESH_S", 0.0)
    monkeypatch.setattr(web, "HOLDERS_FRESH_S", 0.0)


async def test_metrics_say_what_the_kubelet_knows(kubelet: Kubelet, kubelet_root: Path):
    async with running(kubelet, kubelet_root, HTTP) as node:
        await node.ready()
        pod = await kubelet.run_pod("train", {"main": {GPU: 3}})
        assert pod.phase == "Running", pod.message
        assert await sample(node, "fairlead_slots", resource=GPU, state="healthy") == 8
        assert await sample(node, "fairlead_slots_held", resource=GPU) == 3
        for slot in pod.containers["main"].devices[GPU]:
            assert await sample(node, "fairlead_slot_holder", slot=slot, pod="train", container="main") == 1
        assert await sample(node, "fairlead_allocations_total", resource=GPU, result="granted") == 1
        assert await sample(node, "fairlead_call_duration_seconds_count", method="Allocate") == 1
        assert await sample(node, "fairlead_registrations_total", resource=GPU, signal="started") == 1
        await kubelet.restart()
        await node.ready()
        assert await sample(node, "fairlead_registrations_total", resource=GPU) in {1, 2}
        await kubelet.wait_for(lambda: sum(call.method == "Register" for call in kubelet.calls) >= 2)
        assert (await sample(node, "fairlead_first_list_seconds") or 0) > 0


async def test_a_fault_is_a_series_until_it_is_over(kubelet: Kubelet, kubelet_root: Path):
    async with running(kubelet, kubelet_root, HTTP) as node:
        await node.ready()
        device = node.ids()[0]
        await node.steer(do="fail", device=device, xid=79)
        await node.until_fact("unhealthy", device=device)
        assert await sample(node, "fairlead_device_fault", device=device, cause="xid-79") == 1
        assert await sample(node, "fairlead_devices", health="unhealthy") == 1
        assert await sample(node, "fairlead_faults_total", cause="xid-79") == 1


async def test_readiness_follows_the_kubelet_and_liveness_does_not(kubelet: Kubelet, kubelet_root: Path):
    async with running(kubelet, kubelet_root, HTTP) as node:
        await node.ready()
        assert await get(node, "/readyz") == (200, "[+]scanned ok\n[+]registered ok\n[+]handover ok\n[+]stopping ok\n")
        assert (await get(node, "/startupz"))[0] == 200
        await kubelet.stop()
        await node.until_fact("backoff", resource=GPU)
        status, text = await get(node, "/readyz")
        assert status == 503
        assert "[-]registered failed: nvidia.com/gpu: " in text
        assert await get(node, "/healthz") == (200, "[+]loop ok\n[+]tasks ok\n")
        await kubelet.start()
        await node.ready()
        assert (await get(node, "/readyz"))[0] == 200


async def test_liveness_fails_for_what_only_a_restart_cures(kubelet: Kubelet, kubelet_root: Path):
    async with running(kubelet, kubelet_root, HTTP) as node:
        await node.ready()
        task = next(each for each in asyncio.all_tasks() if each.get_name() == "sockets")
        task.cancel()
        await node.until_fact("task-crashed", task="sockets")
        status, text = await get(node, "/healthz")
        assert status == 503
        assert "[-]tasks failed: sockets" in text


async def test_an_address_that_is_taken_is_a_problem_and_devices_are_served(kubelet: Kubelet, kubelet_root: Path):
    """The daemon before this one may hold it: tried again until it is free."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = HTTP.replace(":0'", f":{port}'")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(web, "RETRY_S", 0.01)
            async with running(kubelet, kubelet_root, config) as node:
                await node.ready()
                problem = node.daemon.problems["http"]
                assert problem == f"http.listen: 127.0.0.1:{port}: Address already in use. Choose another with --http"
                taken.close()
                assert (await get(node, "/readyz"))[0] == 200
                assert "http" not in node.daemon.problems
                assert node.find("http", page=f"http://127.0.0.1:{port}/")


async def test_without_the_setting_nothing_listens(kubelet: Kubelet, kubelet_root: Path):
    async with running(kubelet, kubelet_root) as node:
        await node.ready()
        assert node.daemon.web is None
        assert node.daemon.journal.on_fact is None
