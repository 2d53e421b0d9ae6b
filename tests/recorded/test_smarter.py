"""The differences from smarter-device-manager are those of the guide, and ours is as they say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc.aio
import pytest

from fairlead.app.daemon import Daemon
from fairlead.backends import paths
from fairlead.config.load import build
from fairlead.dialects.smarter.command import read_command_line
from fairlead.kit.clock import SystemClock
from fairlead.observe.journal import Journal
from fairlead.standin._gen import deviceplugin_v1beta1_pb2 as dp
from tests.peers.nvidia.kubelet import Followed, Kubelet, kubelet
from tests.recorded.differences_smarter import DIFFERENCES
from tests.recorded.ends import run
from tests.recorded.held import check_page
from tests.recorded.stage import eventually
from tests.unit.backends.host import Host

VIDEO = "smarter-devices/video0"


def test_the_guide_has_every_difference_and_no_other():
    check_page("smarter", "<!-- differences: smarter -->", [], DIFFERENCES)


@pytest.fixture
def host(kubelet_root: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    host = Host(kubelet_root / "host")
    host.put("/dev/video0", "char 81:0")
    monkeypatch.setattr(paths, "HostRoot", lambda _root: host)
    return host


def words(root: Path, text: str) -> list[str]:
    (root / "dp").mkdir()
    (root / "conf.yaml").write_text(text)
    places = {"config": "conf.yaml", "plugin-dir": "dp", "status-socket": "fl.sock", "pod-resources": "none.sock"}
    return [f"--{flag}={root / place}" for flag, place in places.items()]


@asynccontextmanager
async def serving(root: Path, match: str) -> AsyncIterator[Kubelet]:
    said = words(root, f"- {{devicematch: '{match}', nummaxdevices: 2}}\n")
    loaded = build(dict(read_command_line(said, {}).translate().config), "smarter")
    clock = SystemClock()
    async with kubelet(root / "dp") as end:
        await end.serve()
        daemon = Daemon(loaded, reload=lambda: loaded, clock=clock, journal=Journal(clock))
        task = asyncio.ensure_future(daemon.run())
        try:
            assert await eventually(lambda: VIDEO in end.followed and bool(end.followed[VIDEO].lists))
            yield end
        finally:
            daemon.stop()
            await asyncio.wait_for(task, 20)


async def allocate(followed: Followed, *ids: str) -> dp.ContainerAllocateResponse:
    wanted = dp.AllocateRequest(container_requests=[dp.ContainerAllocateRequest(devices_ids=ids)])
    (answer,) = (await followed.ask("Allocate", wanted, dp.AllocateResponse)).container_responses
    found: dp.ContainerAllocateResponse = answer
    return found


async def test_two_slots_of_a_device_bring_its_node_once_and_a_request_for_nothing_is_an_error(
    host: Host, kubelet_root: Path
):
    async with serving(kubelet_root, "^video0$") as end:
        given = await allocate(end.followed[VIDEO], "0", "1")
        assert [node.host_path for node in given.devices] == ["/dev/video0"]
        with pytest.raises(grpc.aio.AioRpcError, match="names no device"):
            await allocate(end.followed[VIDEO])


async def test_directories_that_every_container_has_of_its_own_are_left_out(host: Host, kubelet_root: Path):
    for name in ("fd", "hugepages", "mqueue", "pts", "shm"):
        host.put(f"/dev/{name}/0", "char 5:0")
    host.put("/dev/snd/seq", "char 116:1")
    async with serving(kubelet_root, ".*") as end:
        wanted = {VIDEO, "smarter-devices/snd", "smarter-devices/snd_seq"}
        assert await eventually(lambda: end.followed.keys() >= wanted)
        assert end.followed.keys() == wanted


async def test_each_resource_has_a_socket_of_its_name_and_offers_a_preference(host: Host, kubelet_root: Path):
    async with serving(kubelet_root, "^video0$") as end:
        assert [one.endpoint for one in end.registrations] == ["fairlead-smarter-devices_video0.sock"]
        assert end.followed[VIDEO].options == dp.DevicePluginOptions(get_preferred_allocation_available=True)


async def test_the_numa_node_of_a_pci_parent_is_listed(host: Host, kubelet_root: Path):
    host.put("/sys/devices/pci0000:00/0000:00:14.0/numa_node", "1")
    host.put("/sys/devices/pci0000:00/0000:00:14.0/video0/dev", "81:0")
    host.link("/sys/dev/char/81:0/device", "/sys/devices/pci0000:00/0000:00:14.0/video0")
    async with serving(kubelet_root, "^video0$") as end:
        (listed, *_) = end.followed[VIDEO].lists
        assert {node.ID for one in listed.devices for node in one.topology.nodes} == {1}


@pytest.mark.parametrize("text", ["- {devicematch: (, nummaxdevices: 1}\n", "devicematch: x\n", "- {\n"])
async def test_a_file_that_cannot_be_served_ends_with_1(text: str, kubelet_root: Path):
    said = words(kubelet_root, text)
    async with kubelet(kubelet_root / "dp") as end:
        ended = await run(end, kubelet_root, ["smarter", *said], {})
    assert ended.outcome == {"runs on": False, "exit": 1}
    (line,) = ended.errors.splitlines()
    assert line.startswith("fairlead smarter: ")
    assert str(kubelet_root / "conf.yaml") in line
