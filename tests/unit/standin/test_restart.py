"""What a restart of the kubelet keeps, and what it takes away."""

import errno
import os
import socket
from pathlib import Path

import pytest
from tests.unit.standin.sample import RESOURCE, SamplePlugin, device, devices

from fairlead.standin import checkpoint
from fairlead.standin.servers import Socket
from fairlead.testing import FakeClock, Kubelet, Node, Pod

ONE = {"main": {RESOURCE: 1}}


def held(pod: Pod) -> tuple[str, ...]:
    return pod.containers["main"].devices[RESOURCE]


async def come_back(kubelet: Kubelet, plugin: SamplePlugin) -> None:
    await plugin.serve()
    await plugin.register()
    await kubelet.wait_for(lambda: kubelet.devices(RESOURCE) == {"Dev-1": "Healthy", "Dev-2": "Healthy"})


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


async def test_starting_removes_sockets_and_nothing_else(kubelet_root: Path) -> None:
    kubelet = Kubelet(kubelet_root)
    directory = kubelet.plugin_dir
    (directory / "sub").mkdir(parents=True)
    make_socket(directory / "live.sock")
    make_socket(directory / "sub" / "kept.sock")
    make_socket(kubelet_root / "elsewhere.sock")
    (directory / "link.sock").symlink_to(kubelet_root / "elsewhere.sock")
    (directory / "dangling").symlink_to("nowhere")
    (directory / "file").write_text("kept")
    async with kubelet:
        assert sorted(entry.name for entry in directory.iterdir()) == ["dangling", "file", "kubelet.sock", "sub"]
        assert (directory / "sub" / "kept.sock").is_socket()
        assert (kubelet_root / "elsewhere.sock").is_socket()


async def test_a_restart_makes_a_new_socket_file(kubelet: Kubelet, plugin: SamplePlugin) -> None:
    before = (kubelet.plugin_dir / "kubelet.sock").stat().st_ctime_ns
    await kubelet.restart()
    assert (kubelet.plugin_dir / "kubelet.sock").stat().st_ctime_ns != before
    assert not plugin.path.exists()


async def test_the_socket_file_is_the_same_from_the_moment_it_is_seen_until_the_next_start(
    kubelet_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plugin may look at it at any moment, and takes a changed file for another kubelet."""
    seen: list[tuple[int, int]] = []
    link = os.link

    def look(path: Path) -> None:
        found = path.stat()
        seen.append((found.st_ino, found.st_ctime_ns))

    def link_and_look(source: Path, target: Path) -> None:
        link(source, target)
        look(target)

    monkeypatch.setattr(os, "link", link_and_look)
    async with Kubelet(kubelet_root) as kubelet:
        look(kubelet.plugin_dir / "kubelet.sock")
    look(kubelet.plugin_dir / "kubelet.sock")
    plugins = [each for each in seen if each[0] == seen[-1][0]]
    assert len(plugins) == 3
    assert len(set(plugins)) == 1


async def test_a_stopped_kubelet_leaves_its_socket_behind(kubelet_root: Path) -> None:
    async with Kubelet(kubelet_root) as kubelet:
        pass
    assert (kubelet.plugin_dir / "kubelet.sock").is_socket()


async def test_a_stopping_kubelet_takes_no_call_once_streams_break(
    kubelet: Kubelet, plugin: SamplePlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a process that dies. A plugin registers as soon as its stream breaks, and must not wait for a dead server."""
    streams = [call for call in kubelet.calls if call.method == "ListAndWatch"]
    refused: list[int] = []
    stop = Socket.stop

    async def stop_and_look(self: Socket) -> None:
        await stop(self)
        with socket.socket(socket.AF_UNIX) as client:
            refused.append(client.connect_ex(str(kubelet.plugin_dir / "kubelet.sock")))
        assert [call.seconds for call in streams] == [None], "the stream broke first"

    monkeypatch.setattr(Socket, "stop", stop_and_look)
    await kubelet.stop()
    assert refused[0] == errno.ECONNREFUSED


async def test_a_running_pod_is_admitted_again_without_its_plugin(kubelet: Kubelet, plugin: SamplePlugin) -> None:
    pod = await kubelet.run_pod("p", ONE)
    before = held(pod)
    await kubelet.restart()
    assert (pod.phase, held(pod), pod.containers["main"].starts) == ("Running", before, 1)
    assert kubelet.node() == Node({RESOURCE: 0}, {RESOURCE: 0})
    await come_back(kubelet, plugin)
    assert (pod.phase, held(pod)) == ("Running", before)
    assert len(plugin.made("Allocate")) == 1
    assert held(await kubelet.run_pod("q", ONE)) != before


async def test_a_restarted_container_survives_a_restarted_kubelet(kubelet: Kubelet, plugin: SamplePlugin) -> None:
    pod = await kubelet.run_pod("p", ONE)
    before = held(pod)
    await kubelet.restart_container(pod, "main")
    await kubelet.restart()
    await come_back(kubelet, plugin)
    await kubelet.restart_container(pod, "main")
    assert held(pod) == before
    assert pod.containers["main"].env == {"IDS": before[0]}


async def test_after_a_reboot_without_the_plugin_the_pod_fails(kubelet: Kubelet, plugin: SamplePlugin) -> None:
    pod = await kubelet.run_pod("p", ONE)
    await kubelet.restart(reboot=True)
    assert (pod.phase, pod.reason) == ("Failed", "UnexpectedAdmissionError")
    assert pod.message == (
        "Pod was rejected: Allocate failed due to no healthy devices present; "
        f"cannot allocate unhealthy devices {RESOURCE}, which is unexpected"
    )
    assert kubelet.node() == Node({RESOURCE: 0}, {RESOURCE: 0})


async def test_after_a_reboot_with_the_plugin_back_first_the_pod_runs_on_the_same_devices(
    kubelet: Kubelet, plugin: SamplePlugin
) -> None:
    pod = await kubelet.run_pod("p", ONE)
    before = held(pod)
    await kubelet.restart(reboot=True, readmit=False)
    await come_back(kubelet, plugin)
    await kubelet.readmit()
    assert (pod.phase, held(pod), pod.containers["main"].starts) == ("Running", before, 2)
    assert len(plugin.made("Allocate")) == 1


async def test_once_all_sources_are_known_a_running_container_is_no_excuse(
    kubelet: Kubelet, plugin: SamplePlugin
) -> None:
    pod = await kubelet.run_pod("p", ONE)
    await kubelet.restart(sources_ready=True)
    assert "no healthy devices present" in pod.message


async def test_a_stored_device_that_did_not_come_back_healthy_fails_the_pod(
    kubelet: Kubelet, plugin: SamplePlugin
) -> None:
    pod = await kubelet.run_pod("p", ONE)
    (lost,) = held(pod)
    await kubelet.restart(reboot=True, readmit=False)
    await plugin.serve()
    plugin.publish(device(lost, "Unhealthy"), device("spare"))
    await plugin.register()
    await kubelet.wait_for_allocatable(RESOURCE, 1)
    await kubelet.readmit()
    assert (
        "previously allocated devices are no longer healthy; "
        f"cannot allocate unhealthy devices {RESOURCE}" in pod.message
    )


async def test_a_changed_request_is_refused(kubelet: Kubelet, plugin: SamplePlugin) -> None:
    pod = await kubelet.run_pod("p", ONE)
    pod.containers["main"].limits[RESOURCE] = 2
    await kubelet.restart()
    assert f'pod "{pod.uid}" container "main" changed request for resource "{RESOURCE}" from 1 to 2' in pod.message


async def test_a_finished_pod_is_not_admitted_again(kubelet: Kubelet, plugin: SamplePlugin) -> None:
    pod = await kubelet.run_pod("p", ONE)
    kubelet.finish_pod(pod)
    await plugin.stop()
    await kubelet.restart(reboot=True)
    assert pod.phase == "Succeeded"


async def test_the_plugin_may_restart_without_disturbing_pods(kubelet: Kubelet, plugin: SamplePlugin) -> None:
    pod = await kubelet.run_pod("p", ONE)
    before = held(pod)
    await kubelet.restart()
    await come_back(kubelet, plugin)
    await plugin.stop()
    await kubelet.wait_for_allocatable(RESOURCE, 0)
    assert "no healthy devices present" in (await kubelet.run_pod("q", ONE)).message
    async with SamplePlugin(kubelet.plugin_dir, devices("Dev-1", "Dev-2"), name="again.sock") as again:
        await again.register()
        await kubelet.wait_for_allocatable(RESOURCE, 2)
        assert (pod.phase, held(pod)) == ("Running", before)


async def test_a_pod_deleted_while_the_kubelet_was_down_gives_its_devices_back(
    kubelet: Kubelet, plugin: SamplePlugin
) -> None:
    pod = await kubelet.run_pod("p", {"main": {RESOURCE: 2}})
    await kubelet.stop()
    await kubelet.delete_pod(pod)
    await kubelet.start()
    await come_back(kubelet, plugin)
    assert len(kubelet.allocated(RESOURCE)) == 2
    assert (await kubelet.run_pod("q", {"main": {RESOURCE: 2}})).phase == "Running"


async def test_a_resource_whose_plugin_never_returns_is_zero_and_then_forgotten(
    kubelet: Kubelet, plugin: SamplePlugin, fake_clock: FakeClock
) -> None:
    await plugin.stop()
    await kubelet.restart()
    assert kubelet.node() == Node({RESOURCE: 0}, {RESOURCE: 0})
    assert "no healthy devices present" in (await kubelet.run_pod("p", ONE)).message
    fake_clock.advance(301)
    assert kubelet.node() == Node({RESOURCE: 0}, {RESOURCE: 0})
    assert (await kubelet.run_pod("q", ONE)).reason == f"OutOf{RESOURCE}"


async def test_a_damaged_checkpoint_is_noted_and_old_allocations_are_forgotten(
    kubelet: Kubelet, plugin: SamplePlugin
) -> None:
    await kubelet.run_pod("p", {"main": {RESOURCE: 2}})
    await kubelet.stop()
    file = kubelet.plugin_dir / checkpoint.NAME
    file.write_text(file.read_text().replace("Dev-1", "Dev-9"))
    await kubelet.start()
    assert "checksum" in kubelet.notes()[0]
    assert kubelet.allocated(RESOURCE) == frozenset()
    await come_back(kubelet, plugin)
    assert checkpoint.read(kubelet.plugin_dir) is not None


async def test_the_checkpoint_carries_grants_with_their_answers_and_nodes(
    kubelet: Kubelet, plugin: SamplePlugin
) -> None:
    plugin.publish(device("a", "Healthy", 0, 1), device("b"), device("c", "Unhealthy"))
    await kubelet.wait_for(lambda: kubelet.node().capacity == {RESOURCE: 3})
    pod = await kubelet.run_pod("p", {"main": {RESOURCE: 2}})
    data = checkpoint.read(kubelet.plugin_dir)
    assert data is not None
    assert data.registered == {RESOURCE: ["a", "b"]}
    (entry,) = data.entries or ()
    assert entry.by_node == {0: ("a",), 1: ("a",), -1: ("b",)}
    await kubelet.restart()
    await kubelet.restart_container(pod, "main")
    assert pod.containers["main"].env == {"IDS": "a,b"}


async def test_extended_resources_are_zeroed_only_when_the_directory_is_empty(
    kubelet: Kubelet, plugin: SamplePlugin
) -> None:
    await plugin.stop()
    await kubelet.wait_for_allocatable(RESOURCE, 0)
    assert kubelet.node().capacity == {RESOURCE: 2}
    await kubelet.stop()
    (kubelet.plugin_dir / checkpoint.NAME).unlink()
    await kubelet.start()
    assert kubelet.node().capacity == {RESOURCE: 2}  # kubelet.sock was still there
    await kubelet.stop()
    for entry in kubelet.plugin_dir.iterdir():
        entry.unlink()
    await kubelet.start()
    assert kubelet.node().capacity == {RESOURCE: 0}
