"""Where both differ beside their answers: files, the end of a stream, odd calls, odd machines. Both sides are shown.

Each test names the difference that the guide lists; one that is over fails here and goes from the list.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import grpc.aio
import pytest

from fairlead.standin._gen import deviceplugin_v1beta1_pb2 as dp
from tests.nvml import from_recording
from tests.peers.nvidia.kubelet import Followed, Kubelet, NothingHappenedError, kubelet
from tests.peers.nvidia.place import Place, needs_root, placed
from tests.peers.nvidia.programs import Program, nvidia_plugin, our_plugin
from tests.recorded.differences import DIFFERENCES
from tests.vectors import drivers, nvidia

MACHINE = "377-cdi-full-driver-drm"
SETTLED_S = 20.0
SPOILT_S = 5.0  # NVIDIA's withdraws at once, if it does

pytestmark = [
    pytest.mark.go,
    pytest.mark.peers,
    pytest.mark.timeout(600),  # the first of them may have to build the plugin
    pytest.mark.skipif(needs_root() is not None, reason=str(needs_root())),
]


@asynccontextmanager
async def started(program: Program, spoil: Callable[[Place], None] = lambda _place: None) -> AsyncIterator[Kubelet]:
    """Until it serves or has ended."""
    with placed(from_recording(drivers()[nvidia()[MACHINE].driver]), program.files) as place:
        spoil(place)
        async with kubelet(place.plugins) as end:
            await end.serve()
            await end.start(place.command(program.words), {"PATH": "/usr/bin", "HOME": "/", **program.env})
            await end.until(
                lambda: end.exit_code is not None or any(one.lists for one in end.followed.values()), SETTLED_S
            )
            yield end


async def both(spoil: Callable[[Place], None] = lambda _place: None) -> AsyncIterator[tuple[str, Kubelet]]:
    for name, program in (("theirs", await asyncio.to_thread(nvidia_plugin)), ("ours", our_plugin())):
        async with started(program, spoil) as end:
            yield name, end


def stream(end: Kubelet) -> Followed:
    (followed,) = end.followed.values()
    return followed


async def code_of(end: Kubelet, method: str, request: Any, reply: type[Any]) -> str:
    try:
        await stream(end).ask(method, request, reply)
    except grpc.aio.AioRpcError as error:
        return error.code().name
    return "OK"


def listed(end: Kubelet) -> set[tuple[str, tuple[int, ...]]]:
    """Health and NUMA nodes of all devices."""
    last = stream(end).lists[-1]
    return {(device.health, tuple(node.ID for node in device.topology.nodes)) for device in last.devices}


async def test_files_in_the_directory() -> None:
    assert "lock-files" in DIFFERENCES
    found = {}
    async for name, end in both():
        await end.stop()
        found[name] = {path.name for path in end.plugins.iterdir()} - {"kubelet.sock", ".registration"}
    ours = {".fairlead-nvidia.lock", ".nvidia-gpu.sock.lock", ".fairlead-nvidia.inventory"}
    assert found == {"theirs": set(), "ours": ours}


async def test_the_end_of_a_stream() -> None:
    assert "stream-end" in DIFFERENCES
    ended = {}
    async for name, end in both():
        await end.stop()
        await end.until(lambda end=end: stream(end).ended is not None)  # type: ignore[misc]  # as above
        ended[name] = stream(end).ended
    assert ended == {"theirs": "UNAVAILABLE", "ours": "OK"}


async def test_ids_that_are_not_known() -> None:
    assert {"pre-start", "error-texts"} <= DIFFERENCES.keys()
    codes = {}
    async for name, end in both():
        start = dp.PreStartContainerRequest(devices_ids=["bogus"])
        asked = dp.AllocateRequest(container_requests=[dp.ContainerAllocateRequest(devices_ids=["bogus"])])
        codes[name] = (
            await code_of(end, "PreStartContainer", start, dp.PreStartContainerResponse),
            await code_of(end, "Allocate", asked, dp.AllocateResponse),
        )
    assert codes == {"theirs": ("OK", "UNKNOWN"), "ours": ("INVALID_ARGUMENT", "INVALID_ARGUMENT")}


def numa(text: str) -> Callable[[Place], None]:
    def spoil(place: Place) -> None:
        for device in (place.node.root / "sys/bus/pci/devices").iterdir():
            (device / "numa_node").unlink(missing_ok=True)
            (device / "numa_node").write_text(text)

    return spoil


@pytest.mark.parametrize("text", ["", "garbage\n", "0x1\n", "99999999999\n"])
async def test_a_numa_node_that_is_none(text: str) -> None:
    assert "numa-file" in DIFFERENCES
    async for name, end in both(numa(text)):
        if name == "ours":
            assert listed(end) == {("Healthy", ())}
        elif end.exit_code is None:
            assert listed(end) == {("Healthy", (int(text),))}
        else:
            assert end.exit_code == 1


@pytest.mark.parametrize("text", ["-1\n", "-5\n", " 1 \n", "0\n"])
async def test_a_numa_node_that_both_read_alike(text: str) -> None:
    found = {name: listed(end) async for name, end in both(numa(text))}
    assert found["theirs"] == found["ours"]


@pytest.mark.parametrize("function", ["nvmlDeviceRegisterEvents", "nvmlDeviceGetSupportedEventTypes"])
async def test_events_that_cannot_be_asked_for(function: str) -> None:
    assert "no-events" in DIFFERENCES
    health = {}
    async for name, end in both(lambda place: place.node.fault(function, 999)):
        with suppress(NothingHappenedError):
            await end.until(lambda end=end: listed(end) == {("Unhealthy", ())}, SPOILT_S)  # type: ignore[misc]  # as above
        health[name] = listed(end)
    assert health == {"theirs": {("Unhealthy", ())}, "ours": {("Healthy", ())}}
