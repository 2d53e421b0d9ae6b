"""What a true kubelet does with a plugin that breaks on purpose. None of it may ever happen to Fairlead's."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

from tests.node.broken import Plugin
from tests.node.cluster import Cluster
from tests.node.daemon import Fairlead, sim
from tests.node.rig import sweep
from tests.node.rig.node import start_kubelet, stop_kubelet
from tests.node.rig.places import BIN, PLUGINS

Make = Callable[[dict[str, Any]], Fairlead]
ASKED = ["GetDevicePluginOptions", "ListAndWatch"]
# The kubelet is watched for this long: does it call again?
WATCH_S = 65.0 if os.environ.get("NODE_TEST_FULL") else 3.0


@pytest.fixture
def plugin(cluster: Cluster) -> Iterator[Plugin]:
    with Plugin() as plugin:
        yield plugin


def watch(cluster: Cluster, condition: Callable[[], bool]) -> None:
    """Holds all the while, and the kubelet has told of its node since."""
    began = time.time()
    while time.time() < began + WATCH_S or cluster.heard() < began + 1:
        assert condition()
        time.sleep(0.1)  # between two looks


def test_a_plugin_that_does_not_tell_its_options_is_refused(cluster: Cluster, plugin: Plugin):
    plugin.fails["GetDevicePluginOptions"] = "no options today"
    with pytest.raises(grpc.RpcError) as refused:
        plugin.register()
    said = str(refused.value)
    assert "failed to get device plugin options" in said
    assert "no options today" in said
    watch(cluster, lambda: plugin.calls == ASKED[:1] and cluster.numbers(plugin.resource) is None)


def test_a_list_that_fails_at_once_is_not_asked_for_again(cluster: Cluster, plugin: Plugin):
    plugin.fails["ListAndWatch"] = "no list today"
    plugin.register()
    cluster.wait_numbers(plugin.resource, 0, 0)
    watch(cluster, lambda: plugin.calls == ASKED and cluster.numbers(plugin.resource) == (0, 0))


def test_a_list_that_fails_later_is_not_asked_for_again(cluster: Cluster, plugin: Plugin):
    plugin.register()
    cluster.wait_numbers(plugin.resource, 2, 2)
    plugin.break_stream("no more lists")
    cluster.wait_numbers(plugin.resource, 0, 2)
    watch(cluster, lambda: plugin.calls == ASKED and cluster.numbers(plugin.resource) == (0, 2))


def test_a_plugin_that_runs_but_does_not_register_again_has_lost_its_devices_and_its_pod(
    cluster: Cluster, plugin: Plugin
):
    plugin.register()
    cluster.wait_numbers(plugin.resource, 2, 2)
    pod = cluster.run_pod("rebooted", {plugin.resource: 1})
    stop_kubelet()
    sweep.remove_sandboxes(BIN / "ctr")  # what a reboot does to containers
    began = time.time()
    start_kubelet()
    cluster.wait_numbers(plugin.resource, 0, 0, after=began)
    status = pod.wait_phase("Failed").look()["status"]
    assert status["reason"] == "UnexpectedAdmissionError"
    assert "no healthy devices present; cannot allocate unhealthy devices" in status["message"]
    assert not cluster.held(pod)
    assert plugin.calls.count("Allocate") == 1


def test_after_the_daemon_is_removed_a_restarted_kubelet_counts_nothing(
    cluster: Cluster, fairlead: Make, resource: str
):
    daemon = fairlead(sim(resource, 2))
    daemon.start()
    cluster.wait_numbers(resource, 2, 2)
    daemon.end()
    stop_kubelet()
    began = time.time()
    start_kubelet()
    cluster.wait_numbers(resource, 0, 0, after=began)


@pytest.fixture
def corner() -> Iterator[socket.socket]:
    """A directory of a plugin's own among the sockets, with a file and a socket in it."""
    directory = PLUGINS / "corner"
    directory.mkdir()
    (directory / "control").write_text("mine\n")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(directory / "own.sock"))
        listener.listen()
        try:
            yield listener
        finally:
            for name in ("control", "own.sock"):
                (directory / name).unlink(missing_ok=True)
            directory.rmdir()


def test_a_plugins_own_directory_among_the_sockets_survives_kubelet_restarts(
    cluster: Cluster, corner: socket.socket, fairlead: Make, resource: str
):
    fairlead(sim(resource, 1)).start()
    for _ in range(2):
        cluster.wait_offered(resource, 1)
        stop_kubelet()
        start_kubelet()
    cluster.wait_offered(resource, 1)
    assert (PLUGINS / "corner" / "control").read_text() == "mine\n"
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(str(PLUGINS / "corner" / "own.sock"))
