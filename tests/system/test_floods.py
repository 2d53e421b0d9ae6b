"""A daemon with a long list, and clients that ask much and read nothing: it stays small, and serves the kubelet."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.system.process import memory_bytes, program, write_config
from tests.system.rig import SIM

from fairlead.testing import Kubelet
from fairlead.wire import deviceplugin as dp
from fairlead.wire import frames as f
from fairlead.wire.grpc import length_prefixed
from fairlead.wire.headers import encode_fields
from fairlead.wire.rpc import Channel

SLICE = "example.com/slice"
COUNT = 52_000
LONG = SIM.replace("resource: nvidia.com/gpu", f"{{match: {{index: 0}}, resource: {SLICE}, replicas: {COUNT}}}")
WATCH = [
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/v1beta1.DevicePlugin/ListAndWatch"),
    (b":authority", b"localhost"),
    (b"content-type", b"application/grpc"),
    (b"te", b"trailers"),
]
CONNECTIONS, STREAMS = 50, 8
MIB = 1024 * 1024


@contextmanager
def deaf(path: Path) -> Iterator[None]:
    """Clients with every window open, which ask for the list again and again and read nothing."""
    block = encode_fields(WATCH)
    hello = f.PREFACE + f.settings({f.INITIAL_WINDOW_SIZE: f.MAX_WINDOW, f.MAX_FRAME_SIZE: f.LARGEST_FRAME_BYTES})
    hello += f.window_update(0, f.MAX_WINDOW - f.DEFAULT_WINDOW)
    for number in range(STREAMS):
        hello += f.frame(f.HEADERS, f.END_HEADERS, 2 * number + 1, block)
        hello += f.frame(f.DATA, f.END_STREAM, 2 * number + 1, length_prefixed(b""))
    held = []
    try:
        for _ in range(CONNECTIONS):
            connection = socket.socket(socket.AF_UNIX)
            held.append(connection)
            connection.connect(str(path))
            connection.sendall(hello)
        yield
    finally:
        for connection in held:
            connection.close()


@pytest.fixture
def config(kubelet: Kubelet, kubelet_root: Path) -> str:
    return write_config(kubelet_root, kubelet, LONG)


async def test_lists_that_are_not_read_do_not_grow_the_daemon(kubelet: Kubelet, config: str):
    async with program("-m", "fairlead", "run", "--config", config) as daemon:
        await kubelet.wait_for_allocatable(SLICE, COUNT, 60)
        before = memory_bytes(daemon, "VmHWM")
        await _flood(kubelet, "p", pods=3)
        assert memory_bytes(daemon, "VmHWM") - before < 100 * MIB


async def _flood(kubelet: Kubelet, name: str, pods: int) -> None:
    """The kubelet is served meanwhile."""
    with deaf(next(kubelet.plugin_dir.glob("fairlead-*.sock"))):
        for number in range(pods):
            pod = await kubelet.run_pod(f"{name}-{number}", {"main": {SLICE: 1}})
            assert pod.phase == "Running", pod.message


async def test_a_crowd_on_the_status_socket_is_served_or_refused_and_allocate_does_not_wait_for_it(
    kubelet: Kubelet, kubelet_root: Path, config: str
):
    async with program("-m", "fairlead", "run", "--config", config):
        await kubelet.wait_for_allocatable(SLICE, COUNT, 60)
        slot = min(kubelet.devices(SLICE))
        channel = await Channel.connect(str(next(kubelet.plugin_dir.glob("fairlead-*.sock"))), timeout_s=5)
        request = json.dumps({"ask": "explain", "resource": SLICE, "count": 1000}).encode() + b"\n"

        async def explain() -> str:
            reader, writer = await asyncio.open_unix_connection(kubelet_root / "fl.sock", limit=64 * MIB)
            writer.write(request)
            answer = json.loads(await reader.read())
            writer.close()
            return "done" if "ok" in answer else str(answer["error"])

        crowd = [asyncio.create_task(explain()) for _ in range(60)]
        allocated = 0
        while not all(task.done() for task in crowd):
            await channel.unary(dp.ALLOCATE, dp.AllocateRequest((dp.ContainerAllocateRequest((slot,)),)))
            allocated += 1
        told = await asyncio.gather(*crowd)
        await channel.close()
        # One at a time is worked on, some more wait, the others are told so at once.
        assert 0 < told.count("done") <= 20
        assert all(words == "done" or "Ask again later" in words for words in told), set(told)
        assert allocated > told.count("done")
