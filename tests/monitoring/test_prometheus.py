"""A real Prometheus scrapes a real daemon: promtool blames nothing, dashboards have answers, alerts follow a fault."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fairlead.app import web
from fairlead.testing import Kubelet
from tests.monitoring.promql import queries
from tests.monitoring.provision import find_or_skip
from tests.monitoring.server import Prometheus, scraping
from tests.system.rig import GPU, running
from tests.system.webclient import HTTP, get

pytestmark = [pytest.mark.monitoring, pytest.mark.timeout(300)]

CONFIG = HTTP.replace("'127.0.0.1:0'", "'127.0.0.1:0', names: []").replace(
    "  - resource: nvidia.com/gpu",
    "  - {match: {index: 7}, resource: x/mem, memory: {unit: 10GiB}}\n  - resource: nvidia.com/gpu",
)
# Panels that have nothing to show on this node: no fault, no defect of the daemon, no use, no alert, no second start.
EMPTY_WHEN_HEALTHY = {
    "Alerts A",
    "Faults now A",
    "Faults now B",
    "Faults by cause A",
    "Use of devices A",
    "Slots held and free C",
}


@pytest.fixture(autouse=True)
def _always_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "FRESH_S", 0.0)
    monkeypatch.setattr(web, "HOLDERS_FRESH_S", 0.0)


@pytest.mark.parametrize(
    ("names", "blamed"),
    [
        ("", set()),
        ("generic, gke", {"memory_total"}),  # Google's own name for a gauge
        ("hami", {"hami_gpu_shared_count"}),  # HAMi's own name for a gauge
    ],
)
async def test_promtool_finds_nothing_to_blame_in_what_is_served(
    kubelet: Kubelet, kubelet_root: Path, names: str, blamed: set[str]
):
    async with running(kubelet, kubelet_root, CONFIG.replace("names: []", f"names: [{names}]")) as node:
        await node.ready(GPU, 7)
        assert (await kubelet.run_pod("train", {"main": {GPU: 2}})).phase == "Running"
        await node.steer(do="fail", device=node.ids()[0], xid=79)
        await node.until_fact("unhealthy")
        status, text = await get(node, "/metrics")
        assert status == 200
        assert {line.split()[0] for line in lint(text)} == blamed


def test_what_promtool_blames_is_seen():
    assert lint("bad_name 1\n") == ["bad_name no help text"]


async def answers(prometheus: Prometheus, query: str, where: str, *, empty: bool = False) -> None:
    """A scrape may fail on a busy machine, and its series are gone until the next one."""
    try:
        await prometheus.until(query, lambda found: bool(found) != empty)
    except TimeoutError:
        pytest.fail(f"{where}: {query}: {'something' if empty else 'nothing'} is found")


def lint(text: str) -> list[str]:
    command = [str(find_or_skip().promtool), "check", "metrics"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=50)
    return (done.stdout + done.stderr).splitlines()


async def test_prometheus_answers_the_dashboard_and_alerts_follow_a_fault(
    kubelet: Kubelet, kubelet_root: Path, tmp_path: Path
):
    async with running(kubelet, kubelet_root, CONFIG) as node:
        await node.ready(GPU, 7)
        await node.until_fact("http")
        assert node.daemon.web is not None
        async with scraping(node.daemon.web.port, tmp_path) as prometheus:
            await prometheus.until("fairlead_build_info")
            pod = await kubelet.run_pod("train", {"main": {GPU: 2}})
            assert pod.phase == "Running", pod.message
            await prometheus.until(f'fairlead_slots_held{{resource="{GPU}"}} == 2')
            # Rates need two scrapes, and an allocation between them.
            await prometheus.until('increase(fairlead_allocations_total{result="granted"}[5m]) > 0')
            await prometheus.until("count_over_time(fairlead_build_info[5m]) > 2")
            for where, query in queries().items():
                await answers(prometheus, query, where, empty=where in EMPTY_WHEN_HEALTHY)
            await prometheus.until_alerts(lambda firing: not firing)

            device = next(iter(pod.containers["main"].devices[GPU]))
            await node.steer(do="fail", device=device, xid=79)
            firing = await prometheus.until_alerts(lambda firing: "FairleadPodHoldsUnhealthyDevice" in firing)
            texts = [text for alert in firing.values() for text in alert["annotations"].values()]
            assert not any("no value" in text or "{{" in text for text in texts)
            held = firing["FairleadPodHoldsUnhealthyDevice"]
            assert held["annotations"]["summary"].startswith(f"default/train holds the unhealthy device {device}")
            assert held["labels"]["cause"] == "xid-79"
            for where in EMPTY_WHEN_HEALTHY - {"Use of devices A", "Faults by cause A"}:
                await answers(prometheus, queries()[where], where)
            await node.steer(do="clear", device=device)
            await node.until_fact("healthy", device=device)
            await prometheus.until('ALERTS{alertname=~"Fairlead.*Device.*"}', lambda found: not found)
