"""A daemon with a long list, and clients that ask much and read nothing: it stays small, and serves the kubelet."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.system.process import Program, memory_bytes, program, write_config
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
CROWD = 60  # the status socket takes 64 connections
ALLOCATE_MAX_S = 5.0  # of the daemon's own work: what other processes take of the machine does not count
MIB = 1024 * 1024


class Wait(NamedTuple):
    """One Allocate: which answers to the crowd came while it waited, and how long the daemon worked meanwhile."""

    first: int
    beyond: int
    busy_s: float


def cpu_s(daemon: Program) -> float:
    """The processor time of all its threads so far."""
    fields = Path(f"/proc/{daemon.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


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
    """An Allocate once waited until 130 questions were answered: 22.7 s."""
    async with program("-m", "fairlead", "run", "--config", config) as daemon:
        await kubelet.wait_for_allocatable(SLICE, COUNT, 60)
        slot = min(kubelet.devices(SLICE))
        channel = await Channel.connect(str(next(kubelet.plugin_dir.glob("fairlead-*.sock"))), timeout_s=5)
        answers: list[bytes] = []  # in their order
        crowd = [await asyncio.open_unix_connection(kubelet_root / "fl.sock", limit=64 * MIB) for _ in range(CROWD)]
        for _, writer in crowd:
            writer.write(json.dumps({"ask": "explain", "resource": SLICE, "count": 1000}).encode() + b"\n")

        async def listen(reader: asyncio.StreamReader) -> None:
            answers.append(await reader.read())

        listening = [asyncio.create_task(listen(reader)) for reader, _ in crowd]
        waits: list[Wait] = []
        while len(answers) < CROWD:
            first, busy_s = len(answers), cpu_s(daemon)
            await channel.unary(dp.ALLOCATE, dp.AllocateRequest((dp.ContainerAllocateRequest((slot,)),)))
            waits.append(Wait(first, len(answers), cpu_s(daemon) - busy_s))
        await asyncio.gather(*listening)
        await channel.close()
        for _, writer in crowd:
            writer.close()

    # One at a time is worked on, some more wait, the others are told so at once.
    served = ["ok" in answer for answer in map(json.loads, answers)]
    refused = [str(json.loads(answer)["error"]) for answer, well in zip(answers, served, strict=True) if not well]
    assert 8 < sum(served) <= 20
    assert all("Ask again later" in words for words in refused), set(refused)
    # The kubelet comes in between. An order, and not a time: a slow machine is slow for both.
    assert len(waits) > sum(served)
    assert max(sum(served[wait.first : wait.beyond]) for wait in waits) < sum(served) / 2
    assert max(wait.busy_s for wait in waits) < ALLOCATE_MAX_S
