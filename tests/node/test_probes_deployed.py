"""Probes of a DaemonSet of the chart: the kubelet calls its pod not ready, or starts it again, and then all is well."""

from __future__ import annotations

import copy
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.node.charted import MERGE, SPACE, WAIT, Installed, install, values
from tests.node.cluster import Cluster
from tests.node.living import living
from tests.node.rig import door
from tests.node.rig.api import Api
from tests.node.rig.node import start_apiserver, start_kubelet, stop_apiserver, stop_kubelet
from tests.node.rig.places import NODE, PLUGINS
from tests.node.rig.steps import until
from tests.node.web import WELL, frozen

GPU = "example.com/probed"
COUNT = 4
NOTICED_S = 90.0  # three liveness probes in a row, ten seconds apart
LABEL = "fairlead/config"
CONFIG_MAPS = f"/api/v1/namespaces/{SPACE}/configmaps"
EVENTS = f"/api/v1/namespaces/{SPACE}/events"


@pytest.fixture
def plugin(cluster: Cluster, space: Api, image: str) -> Installed:
    install(values(GPU, COUNT), *WAIT)
    cluster.wait_offered(GPU, COUNT)
    made = Installed(space)
    made.web().wait_all_well()
    made.wait_ready()  # helm may have looked before there was a pod
    return made


def put_config(api: Api, text: str) -> str:
    """Into the ConfigMap of the release; what was there before."""
    (found,) = [one for one in api.get(CONFIG_MAPS)["items"] if "fairlead.yaml" in one.get("data", {})]
    before = str(found["data"]["fairlead.yaml"])
    api.call("PATCH", f"{CONFIG_MAPS}/{found['metadata']['name']}", {"data": {"fairlead.yaml": text}}, MERGE)
    return before


def test_a_pod_whose_sockets_were_wiped_is_not_ready_until_the_kubelet_starts_anew(cluster: Cluster, plugin: Installed):
    web = plugin.web()
    (PLUGINS / "kubelet.sock").unlink()  # the kubelet does not notice; the daemon must not find it
    try:
        for socket in PLUGINS.glob("*.sock"):
            socket.unlink()
        assert GPU in web.wait_failing("/readyz", "registered")
        until(lambda: not plugin.is_ready(), "the kubelet says that the pod is not ready", NOTICED_S)
        assert web.probe("/healthz") == WELL
    finally:
        stop_kubelet()
        start_kubelet()
    web.wait_all_well()
    plugin.wait_ready()
    cluster.wait_offered(GPU, COUNT)
    assert plugin.restarts() == 0


def test_a_pod_with_a_bad_configmap_stays_ready_and_takes_the_next_good_one(
    cluster: Cluster, space: Api, plugin: Installed
):
    web, since = plugin.web(), plugin.ready_since()
    good = put_config(space, "rules: nonsense")
    plugin.nudge()
    web.wait_metric(0, "fairlead_config_last_reload_successful")
    assert web.all_well()
    shared: dict[str, Any] = yaml.safe_load(good)
    shared["rules"][0]["replicas"] = 2
    put_config(space, yaml.safe_dump(shared))
    plugin.nudge()
    web.wait_metric(1, "fairlead_config_last_reload_successful")
    cluster.wait_offered(GPU, COUNT * 2)
    web.wait_all_well()
    assert (plugin.ready_since(), plugin.restarts()) == (since, 0), "it was ready all the time"


@pytest.fixture
def labelled(cluster: Cluster, space: Api, image: str) -> Iterator[Installed]:
    """A label of the node chooses the configuration: for that the daemon needs the API server."""
    given = values(GPU, COUNT)
    shared = copy.deepcopy(given["fairlead"]["config"])
    shared["rules"][0]["replicas"] = 2
    given["fairlead"]["configs"] = {"shared": shared}
    with door.to_api_server():
        try:
            label(cluster, "shared")
            install(given, *WAIT)
            cluster.wait_offered(GPU, COUNT * 2)
            yield Installed(space)
        finally:
            label(cluster, None)


def label(cluster: Cluster, value: str | None) -> None:
    cluster.api.call("PATCH", f"/api/v1/nodes/{NODE}", {"metadata": {"labels": {LABEL: value}}}, MERGE)


def test_a_daemon_that_starts_without_the_api_server_is_ready_with_its_last_configuration(
    cluster: Cluster, labelled: Installed
):
    web = labelled.web()
    web.wait_all_well()
    (process,) = [one for one in living() if one.pod == labelled.name]
    stop_apiserver()
    try:
        os.kill(process.pid, signal.SIGKILL)
        until(lambda: [one for one in living() if one.pod == labelled.name] not in ([], [process]), "it starts again")
        until(lambda: not web.is_silent("/startupz"), "its probes answer", 60.0)
        web.wait_all_well()
        cluster.wait_offered(GPU, COUNT * 2)
    finally:
        start_apiserver()
    label(cluster, None)
    cluster.wait_offered(GPU, COUNT)
    web.wait_all_well()
    until(lambda: labelled.restarts() == 1, "the kubelet has told of its restart", NOTICED_S)


def test_a_daemon_that_hangs_is_started_again_by_the_kubelet(cluster: Cluster, space: Api, plugin: Installed):
    web = plugin.web()
    (process,) = [one for one in living() if one.pod == plugin.name]

    def is_killed() -> bool:
        events = space.get(EVENTS)["items"]
        return any("failed liveness probe" in one["message"] for one in events if one["reason"] == "Killing")

    with frozen(process.pid):
        assert all(web.is_silent(path) for path in ("/healthz", "/readyz"))
        until(is_killed, "the kubelet ends a container that does not answer", NOTICED_S, 0.2)
        assert not plugin.is_ready()
    until(lambda: plugin.restarts() == 1, "it is started again", NOTICED_S)
    plugin.wait_ready()
    web.wait_all_well()
    cluster.wait_offered(GPU, COUNT)
