"""The daemon on a node: devices reach pods, faults reach the kubelet, and nothing is lost on the way."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.system.rig import GPU, SIM, Node, running

from fairlead.fronts.deviceplugin.lifecycle import Phase
from fairlead.testing import Kubelet


@pytest.fixture
async def node(kubelet: Kubelet, kubelet_root: Path) -> AsyncIterator[Node]:
    async with running(kubelet, kubelet_root) as node:
        await node.ready()
        yield node


async def test_a_pod_gets_its_devices_and_their_environment(node: Node):
    pod = await node.kubelet.run_pod("train", {"main": {GPU: 2}})
    assert pod.phase == "Running", pod.message
    container = pod.containers["main"]
    assert len(container.devices[GPU]) == 2
    assert set(container.env["FAIRLEAD_SIM_DEVICES_NVIDIA_COM_GPU"].split(",")) == set(container.devices[GPU])


async def test_a_container_with_two_resources_learns_the_devices_of_both(kubelet: Kubelet, kubelet_root: Path):
    rules = "rules: [{match: {index: 0}, resource: a.example/one}, {resource: b.example/rest}]\n"
    async with running(kubelet, kubelet_root, f"backends: [{{kind: sim, fleet: h100x8}}]\n{rules}"):
        await kubelet.wait_for_allocatable("a.example/one", 1)
        await kubelet.wait_for_allocatable("b.example/rest", 7)
        pod = await kubelet.run_pod("two", {"main": {"a.example/one": 1, "b.example/rest": 2}})
    main = pod.containers["main"]
    named = {"a.example/one": "A_EXAMPLE_ONE", "b.example/rest": "B_EXAMPLE_REST"}
    told = {name: set(main.env[f"FAIRLEAD_SIM_DEVICES_{word}"].split(",")) for name, word in named.items()}
    assert told == {name: set(ids) for name, ids in main.devices.items()}


async def test_the_preferred_devices_are_the_ones_that_are_given(node: Node):
    """With no device in use the answer is deterministic, whatever order the kubelet asks in."""
    pod = await node.kubelet.run_pod("train", {"main": {GPU: 3}})
    assert list(pod.containers["main"].devices[GPU]) == sorted(node.ids()[:3])


async def test_a_fault_withdraws_one_device_and_recovery_returns_it(node: Node):
    await node.steer(do="fail", device="3", xid=79)
    await node.kubelet.wait_for_allocatable(GPU, 7)
    assert node.kubelet.node().capacity[GPU] == 8
    assert node.kubelet.devices(GPU)[node.ids()[3]] == "Unhealthy"
    await node.steer(do="clear", device="3")
    await node.kubelet.wait_for_allocatable(GPU, 8)


async def test_a_device_in_use_that_fails_keeps_its_pod(node: Node):
    pod = await node.kubelet.run_pod("train", {"main": {GPU: 8}})
    await node.steer(do="fail", device="0", xid=48)
    await node.kubelet.wait_for_allocatable(GPU, 7)
    assert pod.phase == "Running"
    assert node.kubelet.allocated_status(pod)["main"][GPU][node.ids()[0]] == "Unhealthy"


async def test_a_new_device_is_offered_and_a_pulled_one_stays_listed(node: Node):
    pulled = node.ids()[5]
    pod = await node.kubelet.run_pod("train", {"main": {GPU: 8}})
    await node.steer(do="unplug", device="5")
    await node.kubelet.wait_for(lambda: node.kubelet.devices(GPU).get(pulled) == "Unhealthy")
    assert pod.phase == "Running"
    assert len(node.kubelet.devices(GPU)) == 8
    await node.steer(do="plug", device="5")
    await node.kubelet.wait_for_allocatable(GPU, 8)


async def test_a_kubelet_restart_is_survived_and_pods_keep_their_devices(node: Node):
    pod = await node.kubelet.run_pod("train", {"main": {GPU: 2}})
    before = pod.containers["main"].devices
    await node.kubelet.restart()
    await node.ready()
    assert pod.phase == "Running", pod.message
    assert pod.containers["main"].devices == before
    other = await node.kubelet.run_pod("other", {"main": {GPU: 6}})
    assert other.phase == "Running", other.message


async def test_a_closed_stream_is_noticed_and_registered_again(node: Node):
    registrations = _count(node, "Register")
    node.kubelet.close_stream(GPU)
    await node.kubelet.wait_for(lambda: _count(node, "Register") > registrations)
    await node.ready()


async def test_a_deleted_socket_is_made_again(node: Node):
    registrations = _count(node, "Register")
    node.kubelet.delete_sockets()
    await node.kubelet.wait_for(lambda: _count(node, "Register") > registrations)
    await node.ready()
    assert (await node.kubelet.run_pod("train", {"main": {GPU: 1}})).phase == "Running"


async def test_a_kubelet_that_comes_late_is_waited_for(kubelet: Kubelet, kubelet_root: Path):
    await kubelet.stop()
    async with running(kubelet, kubelet_root) as node:
        fact = await node.until_fact("backoff", resource=GPU)
        assert "waiting for the kubelet" in fact.keys["reason"]
        await kubelet.start()
        await node.ready()


async def test_registration_refused_is_tried_again_with_the_kubelets_words(kubelet: Kubelet, kubelet_root: Path):
    kubelet.faults.refuse_register = "not today"
    async with running(kubelet, kubelet_root) as node:
        fact = await node.until_fact("backoff", resource=GPU)
        assert "not today" in fact.keys["reason"]
        kubelet.faults.refuse_register = ""
        await node.ready()


async def test_stopping_removes_sockets_and_ends_streams(node: Node):
    sockets = list(node.kubelet.plugin_dir.glob("fairlead-*.sock"))
    assert sockets
    await node.stop()
    assert not list(node.kubelet.plugin_dir.glob("fairlead-*.sock"))
    assert not (node.kubelet.plugin_dir.parent / "fl.sock").exists()
    await node.kubelet.wait_for_allocatable(GPU, 0)


async def test_sockets_are_for_their_owner_only(node: Node):
    for path in [*node.kubelet.plugin_dir.glob("fairlead-*.sock"), node.kubelet.plugin_dir.parent / "fl.sock"]:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


async def test_a_restarted_daemon_offers_the_same_ids_and_pods_go_on(node: Node):
    pod = await node.kubelet.run_pod("train", {"main": {GPU: 2}})
    ids = set(node.kubelet.devices(GPU))
    await node.stop()
    await node.kubelet.wait_for_allocatable(GPU, 0)
    node.start()
    await node.ready()
    assert set(node.kubelet.devices(GPU)) == ids
    assert pod.phase == "Running"
    await node.kubelet.restart_container(pod, "main")
    assert pod.containers["main"].state == "running"


async def test_replicas_share_a_device_and_a_fault_reaches_all_of_them(kubelet: Kubelet, kubelet_root: Path):
    async with running(
        kubelet, kubelet_root, SIM.replace("resource: nvidia.com/gpu", "{resource: nvidia.com/gpu, replicas: 4}")
    ) as node:
        await node.ready(count=32)
        await node.steer(do="fail", device="0", xid=48)
        await kubelet.wait_for_allocatable(GPU, 28)


async def test_the_plugin_watcher_finds_us_too(kubelet: Kubelet, kubelet_root: Path):
    places = (
        f"\nkubelet: {{registration: watcher, watcherDirectory: {kubelet.registry_dir}, "
        f"podResources: {kubelet.podresources_socket}}}\nstatus: {{socket: {kubelet_root}/fl.sock}}\n"
    )
    async with running(kubelet, kubelet_root, SIM + places) as node:
        await node.ready()
        assert (await kubelet.run_pod("train", {"main": {GPU: 1}})).phase == "Running"
        await kubelet.restart()
        await node.ready()
        kubelet.close_stream(GPU)
        await node.until(lambda: node.phase() is not Phase.STREAMING)
        await node.ready()


async def test_two_resources_live_and_fail_apart(kubelet: Kubelet, kubelet_root: Path):
    text = SIM.replace(
        "  - resource: nvidia.com/gpu",
        "  - {match: {index: [0, 1]}, resource: example.com/first}\n  - resource: nvidia.com/gpu",
    )
    async with running(kubelet, kubelet_root, text) as node:
        await node.ready(GPU, 6)
        await node.ready("example.com/first", 2)
        before, again = _count(node, "Register", GPU), _count(node, "Register", "example.com/first")
        kubelet.close_stream("example.com/first")
        # The daemon may see the end of the stream before the kubelet does: its devices are gone for a moment then.
        await kubelet.wait_for(lambda: _count(node, "Register", "example.com/first") > again)
        await node.ready("example.com/first", 2)
        assert _count(node, "Register", GPU) == before
        pod = await kubelet.run_pod("both", {"main": {GPU: 1, "example.com/first": 1}})
        assert pod.phase == "Running", pod.message
        assert set(pod.containers["main"].devices) == {GPU, "example.com/first"}


async def test_nothing_is_left_running(kubelet: Kubelet, kubelet_root: Path):
    before = set(asyncio.all_tasks())
    async with running(kubelet, kubelet_root) as node:
        await node.ready()
    leftover = {task for task in asyncio.all_tasks() - before if not task.done() and "grpc" not in repr(task)}
    assert not [
        task for task in leftover if task.get_name().startswith(("unit", "source", "scan", "timer", "register"))
    ]


def _count(node: Node, method: str, resource: str | None = None) -> int:
    return sum(call.method == method and resource in {None, call.resource} for call in node.kubelet.calls)
