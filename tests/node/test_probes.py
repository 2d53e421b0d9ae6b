"""Probes under a true kubelet: each fault makes the one check fail that names it, and its cure makes it succeed again.

What is no reason to restart the daemon, or to call it not ready, changes a metric instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlead.app.watchdog import EXIT_CODE
from fairlead.cluster.rbac import FEATURES
from tests.node.account import Account
from tests.node.cluster import Cluster
from tests.node.daemon import Fairlead, run_node, sim
from tests.node.rig import process
from tests.node.rig.node import start_apiserver, start_kubelet, stop_apiserver, stop_kubelet
from tests.node.rig.places import HOST, KUBECONFIG, NODE, PLUGINS
from tests.node.rig.steps import until
from tests.node.web import HTTP, WELL, Web, frozen, web_of
from tests.nvml import Driver, gpus
from tests.nvml.library import compiled_or_skip

Make = Callable[[dict[str, Any]], Fairlead]
AMOUNTS = FEATURES["the daemon with `amounts`"]
NOT_LOADED = 9  # NVML's word for a kernel module that is not there
LIMIT_S = 8  # of the watchdog: longer than a probe is waited for
# Its code blocks the event loop while a file is there.
BLOCKS = """
import pathlib, time
import fairlead


class Blocks(fairlead.Plugin):
    resource = "{resource}"

    async def discover(self):
        while pathlib.Path("{mark}").exists():
            time.sleep(0.05)
        return [fairlead.Device("blocks-0")]


fairlead.run(Blocks())
"""


def served(cluster: Cluster, daemon: Fairlead, resource: str, count: int) -> Web:
    """A daemon whose probes all succeed."""
    daemon.start()
    web = web_of(daemon)
    cluster.wait_offered(resource, count)
    web.wait_all_well()
    assert web.metrics().value("fairlead_registered", resource=resource) == 1
    return web


def alive(web: Web) -> bool:
    """Nothing that a restart would cure, and the start is over."""
    return web.probe("/healthz") == WELL and web.probe("/startupz") == WELL


def test_a_kubelet_that_is_away_makes_it_not_ready_and_never_not_alive(cluster: Cluster, fairlead: Make, resource: str):
    web = served(cluster, fairlead({**sim(resource, 2), **HTTP}), resource, 2)
    stop_kubelet()
    try:
        assert resource in web.wait_failing("/readyz", "registered")
        assert alive(web)
        web.wait_metric(0, "fairlead_registered", resource=resource)
    finally:
        start_kubelet()
    web.wait_all_well()
    web.wait_metric(1, "fairlead_registered", resource=resource)
    cluster.wait_offered(resource, 2)


def test_a_socket_that_was_removed_makes_it_not_ready_until_the_kubelet_has_the_next_one(
    cluster: Cluster, fairlead: Make, resource: str
):
    web = served(cluster, fairlead({**sim(resource, 2), **HTTP}), resource, 2)
    kubelet = process.running("kubelet")
    assert kubelet is not None
    (socket,) = PLUGINS.glob(f"fairlead-{resource.replace('/', '_')}*.sock")
    with frozen(kubelet):  # it would take the next socket within milliseconds
        socket.unlink()
        assert resource in web.wait_failing("/readyz", "registered")
        assert alive(web)
    web.wait_all_well()
    cluster.wait_offered(resource, 2)
    web.wait_metric(1, "fairlead_registrations_total", resource=resource, signal="socket-removed")


def test_a_driver_that_hangs_at_the_start_keeps_it_from_being_started(
    cluster: Cluster, fairlead: Make, resource: str, tmp_path: Path
):
    compiled_or_skip()
    daemon = fairlead({"backends": [{"kind": "nvidia"}], "rules": [{"resource": resource}], **HTTP})
    with Driver(gpus=gpus("A100", 2)).installed(tmp_path / "gpus") as machine:
        machine.hang("nvmlInit")
        daemon.run("-m", "fairlead", "run", "--config", str(daemon.file), env=machine.env)
        web = web_of(daemon)
        for path in ("/startupz", "/readyz"):
            assert web.wait_failing(path, "scanned") == "not yet scanned: nvidia"
        assert web.probe("/healthz") == WELL
        machine.mend()
        web.wait_all_well()
        cluster.wait_offered(resource, 2)
        daemon.end()


def test_a_driver_that_is_not_loaded_is_a_metric_and_no_probe(
    cluster: Cluster, fairlead: Make, resource: str, tmp_path: Path
):
    """The backend has answered. A node without devices is ready: there is nothing to wait for."""
    compiled_or_skip()
    daemon = fairlead({"backends": [{"kind": "nvidia"}], "rules": [{"resource": resource}], **HTTP})
    with Driver(gpus=gpus("A100", 2)).installed(tmp_path / "gpus") as machine:
        machine.fault("nvmlInit", NOT_LOADED)
        daemon.run("-m", "fairlead", "run", "--config", str(daemon.file), env=machine.env)
        web = web_of(daemon)
        web.wait_metric(1, "fairlead_backend_problem", backend="nvidia")
        web.wait_all_well()
        assert cluster.offered(resource) == []
        machine.mend()
        cluster.wait_offered(resource, 2)
        web.wait_metric(0, "fairlead_backend_problem", backend="nvidia")
        assert web.all_well()
        daemon.end()


def test_a_scan_that_fails_later_is_a_metric_and_no_probe(cluster: Cluster, fairlead: Make, resource: str):
    """What was found before stays offered."""
    daemon = fairlead({**sim(resource, 2), **HTTP})
    web = served(cluster, daemon, resource, 2)
    web.wait_metric(0, "fairlead_backend_problem", backend="sim")
    daemon.order("scan-error")
    web.wait_metric(1, "fairlead_backend_problem", backend="sim")
    assert web.all_well()
    assert len(cluster.offered(resource)) == 2
    daemon.order("recover")
    web.wait_metric(0, "fairlead_backend_problem", backend="sim")
    assert web.all_well()


def test_a_bad_configuration_is_a_metric_and_the_one_before_stays_in_force(
    cluster: Cluster, fairlead: Make, resource: str
):
    daemon = fairlead({**sim(resource, 2), **HTTP})
    web = served(cluster, daemon, resource, 2)
    web.wait_metric(1, "fairlead_config_last_reload_successful")
    daemon.configure({**sim(resource, 2, replicas="many"), **HTTP})
    web.wait_metric(0, "fairlead_config_last_reload_successful")
    assert web.all_well()
    assert len(cluster.offered(resource)) == 2
    daemon.configure({**sim(resource, 2, replicas=3), **HTTP})
    web.wait_metric(1, "fairlead_config_last_reload_successful")
    cluster.wait_offered(resource, 6)
    web.wait_all_well()


@pytest.fixture
def amount(cluster: Cluster, resource: str) -> Iterator[str]:
    """A name for an amount, that is not left on the node."""
    name = f"{resource}-amount"
    yield name
    run_node(KUBECONFIG, "unset", "--force", name)


def test_an_api_server_that_is_away_is_a_metric_and_no_probe(
    cluster: Cluster, fairlead: Make, resource: str, amount: str, tmp_path: Path
):
    account = Account(tmp_path, AMOUNTS)
    where = {"node": NODE, "kubeconfig": str(account.file)}
    amounts = [{"resource": amount, "perDevice": 100}]
    daemon = fairlead({**sim(resource, 2), "amounts": amounts, "cluster": where, **HTTP})
    try:
        web = served(cluster, daemon, resource, 2)
        web.wait_metric(1, "fairlead_api_server_answers")
        stop_apiserver()
        try:
            web.wait_metric(0, "fairlead_api_server_answers")
            assert web.all_well()
            assert len(cluster.offered(resource)) == 2, "devices need no API server"
        finally:
            start_apiserver()
        web.wait_metric(1, "fairlead_api_server_answers")
        assert web.all_well()
    finally:
        daemon.end()
        account.remove()


def test_a_loop_that_hangs_answers_no_probe_and_is_ended_by_the_watchdog(
    cluster: Cluster, fairlead: Make, resource: str, tmp_path: Path
):
    mark, script = tmp_path / "hang", tmp_path / "blocks.py"
    script.write_text(BLOCKS.format(resource=resource, mark=mark))
    settings = {"HTTP": f"{HOST}:0", "LOG_FORMAT": "json", "SCAN_INTERVAL": "200ms", "WATCHDOG_LIMIT": f"{LIMIT_S}s"}
    env = {f"FAIRLEAD_{name}": value for name, value in settings.items()}
    daemon = fairlead({})
    daemon.run(str(script), env=env)
    web = web_of(daemon)
    web.wait_all_well()

    mark.touch()
    until(lambda: web.is_silent("/healthz"), "liveness has no answer")
    mark.unlink()
    until(lambda: not web.is_silent("/healthz"), "liveness has an answer again", look_s=0.2)
    web.wait_all_well()

    mark.touch()
    assert daemon.wait_end() == EXIT_CODE
    assert daemon.facts("watchdog-ended")
    mark.unlink()
    daemon.run(str(script), env=env)  # as its supervisor does
    web_of(daemon).wait_all_well()
    cluster.wait_offered(resource, 1)
