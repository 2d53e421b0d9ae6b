"""How long a kubelet remembers a plugin that is gone: five minutes. One wait for all that can be seen of it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from tests.node.broken import Plugin
from tests.node.cluster import Cluster, Pod
from tests.node.daemon import Fairlead, sim
from tests.node.rig.node import start_kubelet, stop_kubelet
from tests.node.rig.steps import until

pytestmark = pytest.mark.skipif(not os.environ.get("NODE_TEST_FULL"), reason="five minutes: make node-test-full")
GRACE_S = 300.0
PATIENCE_S = GRACE_S + 90.0


@dataclass(frozen=True, slots=True)
class Gone:
    cluster: Cluster
    restarted: str  # removed, and the kubelet restarted since
    stopped: Fairlead
    stopped_resource: str
    failed: Plugin  # its list has failed, it still serves
    pod: Pod  # holds a device of the one that was stopped
    at: float  # when the last one went


@pytest.fixture(scope="module")
def gone(node: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gone]:
    cluster = Cluster()
    names = {word: f"example.com/gone-{word}-{os.getpid()}" for word in ("restarted", "stopped")}
    with ExitStack() as stack:
        stack.callback(cluster.remove_pods)
        daemons = {}
        for word, resource in names.items():
            daemons[word] = Fairlead(tmp_path_factory.mktemp(word), sim(resource, 2))
            stack.callback(daemons[word].end)
        daemons["restarted"].start()
        cluster.wait_numbers(names["restarted"], 2, 2)
        daemons["restarted"].end()
        stop_kubelet()
        began = time.time()
        start_kubelet()
        # It has wiped the directory by now, so what is bound from here on stays.
        cluster.wait_numbers(names["restarted"], 0, 0, after=began)
        failed = stack.enter_context(Plugin())
        failed.register()
        daemons["stopped"].start()
        cluster.wait_numbers(names["stopped"], 2, 2)
        cluster.wait_numbers(failed.resource, 2, 2)
        pod = cluster.run_pod("stays", {names["stopped"]: 1})
        daemons["stopped"].end()
        failed.break_stream("no more lists")
        yield Gone(cluster, names["restarted"], daemons["stopped"], names["stopped"], failed, pod, time.time())


def forgotten(gone: Gone, resource: str) -> float:
    """Until the kubelet no longer counts it; answers how long that took."""
    return gone.cluster.wait_numbers(resource, 0, 0, patience_s=PATIENCE_S) - gone.at


def test_a_stopped_daemon_is_remembered_for_five_minutes(gone: Gone):
    gone.cluster.wait_numbers(gone.stopped_resource, 0, 2)
    assert forgotten(gone, gone.stopped_resource) > GRACE_S - 5


def test_a_list_that_failed_is_remembered_for_five_minutes_and_never_asked_for_again(gone: Gone):
    assert forgotten(gone, gone.failed.resource) > GRACE_S - 5
    assert gone.failed.calls == ["GetDevicePluginOptions", "ListAndWatch"]


def test_a_daemon_removed_before_a_kubelet_restart_stays_at_nothing(gone: Gone):
    forgotten(gone, gone.restarted)
    until(lambda: time.time() > gone.at + GRACE_S, "five minutes have passed", PATIENCE_S, look_s=1.0)
    assert gone.cluster.numbers(gone.restarted) == (0, 0)


def test_a_daemon_that_comes_back_too_late_finds_its_pod_as_it_was(gone: Gone):
    forgotten(gone, gone.stopped_resource)
    held, instance = gone.cluster.ids(gone.pod), gone.pod.container()["containerID"]
    gone.stopped.start()
    gone.cluster.wait_numbers(gone.stopped_resource, 2, 2)
    assert gone.pod.is_ready()
    assert gone.cluster.ids(gone.pod) == held
    assert gone.pod.container()["containerID"] == instance
