"""The audit on a real node: nothing on a healthy one; each planted contradiction is named once, and cleared once."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from fairlead.standin import checkpoint
from fairlead.standin._gen import deviceplugin_v1beta1_pb2 as dp
from tests.node.cluster import Cluster, shape
from tests.node.daemon import Fairlead, sim
from tests.node.rig.node import start_kubelet, stop_kubelet
from tests.node.rig.places import PLUGINS

Make = Callable[[dict[str, Any]], Fairlead]
Entries = list[checkpoint.Entry]
USES = "exec 3<{path}; echo -- end; exec sleep 1000000"
HOLDS = "import sys; file = open(sys.argv[1]); print('open', flush=True); sys.stdin.read()"


@pytest.fixture
def audited(cluster: Cluster, fairlead: Make, resource: str, tmp_path: Path) -> Fairlead:
    """Two devices, which are /dev/null by another name, and a daemon that looks every second."""
    for number in range(2):
        os.mknod(tmp_path / f"null{number}", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    nodes = {"nodes": [f"{tmp_path}/null{{i}}"]}
    daemon = fairlead({**sim(resource, 2, fleet=nodes, env={"GIVEN": "{indexes}"}), "audit": {"interval": "1s"}})
    daemon.start()
    cluster.wait_numbers(resource, 2, 2)
    return daemon


def told(daemon: Fairlead) -> tuple[int, str]:
    command = [sys.executable, "-m", "fairlead", "audit", "--socket", str(daemon.socket)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@contextmanager
def named_once(daemon: Fairlead, kind: str) -> Iterator[None]:
    """What is planted before is reported; what the body does clears it."""
    daemon.wait_fact("audit-difference", difference=kind)
    code, text = told(daemon)
    assert (code, f"\n{kind}\n" in text) == (1, True), text
    yield
    daemon.wait_fact("audit-cleared", difference=kind)
    counts = [len(daemon.facts(event, difference=kind)) for event in ("audit-difference", "audit-cleared")]
    assert counts == [1, 1]
    code, text = told(daemon)
    assert code == 0, text


def rewrite(change: Callable[[Entries], Entries]) -> None:
    """Changes the kubelet's own checkpoint, with a checksum that it accepts."""
    kept = checkpoint.read(PLUGINS)
    assert kept is not None
    checkpoint.write(PLUGINS, checkpoint.Checkpoint(change(list(kept.entries or ())), kept.registered))


def test_pods_that_use_what_they_hold_are_no_difference(
    cluster: Cluster, audited: Fairlead, resource: str, tmp_path: Path
):
    pod = cluster.run_pod("uses", {resource: 2}, script=USES.format(path=f"{tmp_path}/null0"))
    code, text = told(audited)
    assert code == 0, text
    assert text.startswith("5 of 5 comparisons: nothing differs")
    pod.delete()
    assert not audited.facts("audit-difference")


def test_a_process_of_the_host_is_a_ghost(audited: Fairlead, tmp_path: Path):
    command = [sys.executable, "-I", "-S", "-c", HOLDS, f"{tmp_path}/null1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as miner:
        assert miner.stdout is not None
        assert miner.stdout.readline() == b"open\n"
        with named_once(audited, "ghost-use"):
            miner.communicate(b"")


def test_a_pod_that_uses_another_ones_device_is_a_ghost(
    cluster: Cluster, audited: Fairlead, resource: str, tmp_path: Path
):
    """Privileged, with the host's directory: the way around every device plugin."""
    cluster.run_pod("owner", {resource: 2})
    mount = {"name": "all", "mountPath": str(tmp_path)}
    around = {"securityContext": {"privileged": True}, "volumeMounts": [mount]}
    thief = cluster.run_pod(
        "thief",
        {},
        containers=[shape("main", {}, USES.format(path=f"{tmp_path}/null0"), **around)],
        volumes=[{"name": "all", "hostPath": {"path": str(tmp_path)}}],
    )
    with named_once(audited, "ghost-use"):
        thief.delete()


def test_a_call_of_allocate_that_is_not_the_kubelets_is_an_orphan(cluster: Cluster, audited: Fairlead, resource: str):
    (socket,) = (path for path in PLUGINS.glob("fairlead-*.sock") if resource.partition("/")[2] in path.name)
    ids = [f"{resource.partition('/')[2]}-0"]
    request = dp.AllocateRequest(container_requests=[dp.ContainerAllocateRequest(devices_ids=ids)])
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        method = "/v1beta1.DevicePlugin/Allocate"
        channel.unary_unary(method, dp.AllocateRequest.SerializeToString, dp.AllocateResponse.FromString)(request)
    with named_once(audited, "orphan-grant"):
        cluster.run_pod("takes", {resource: 2})


def test_an_answer_with_other_devices_is_a_wrong_environment(cluster: Cluster, audited: Fairlead, resource: str):
    cluster.run_pod("told", {resource: 1})
    right = (PLUGINS / checkpoint.NAME).read_bytes()

    def change(entries: Entries) -> Entries:
        return [
            checkpoint.Entry(one.uid, one.container, one.resource, one.by_node, _given(one.answer, "7"))
            if one.resource == resource
            else one
            for one in entries
        ]

    rewrite(change)
    with named_once(audited, "wrong-environment"):
        (PLUGINS / checkpoint.NAME).write_bytes(right)


def test_a_pod_without_a_process_is_a_stale_entry(cluster: Cluster, audited: Fairlead, resource: str):
    cluster.run_pod("gone", {resource: 1})
    right = (PLUGINS / checkpoint.NAME).read_bytes()
    unknown = "00000000-0000-4000-8000-000000000000"

    def change(entries: Entries) -> Entries:
        return [
            checkpoint.Entry(unknown, one.container, one.resource, one.by_node, one.answer)
            if one.resource == resource
            else one
            for one in entries
        ]

    rewrite(change)
    with named_once(audited, "stale-entry"):
        (PLUGINS / checkpoint.NAME).write_bytes(right)


def test_a_device_that_two_pods_hold_is_a_double_grant(cluster: Cluster, audited: Fairlead, resource: str):
    """A kubelet that starts believes its checkpoint."""
    first, second = (cluster.run_pod(name, {resource: 1}) for name in ("first", "second"))
    stop_kubelet()

    def change(entries: Entries) -> Entries:
        (held,) = [one for one in entries if one.uid == first.uid]
        return [
            checkpoint.Entry(second.uid, held.container, resource, held.by_node, held.answer)
            if one.uid == second.uid
            else one
            for one in entries
        ]

    rewrite(change)
    start_kubelet()
    cluster.wait_numbers(resource, 2, 2)
    with named_once(audited, "double-grant"):
        second.delete()


def _given(answer: bytes, value: str) -> bytes:
    changed = dp.ContainerAllocateResponse.FromString(answer)
    changed.envs["GIVEN"] = value
    return bytes(changed.SerializeToString())
