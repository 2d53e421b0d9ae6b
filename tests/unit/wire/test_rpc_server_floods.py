"""Our server against more peers, more questions and less reading than it can bear: what it holds stays bounded."""

from __future__ import annotations

import asyncio
import gc
import sys
from typing import TYPE_CHECKING

import pytest
from tests.unit.wire.house import HEAD, House, Peer, allocate, house

from fairlead.wire import deviceplugin as dp
from fairlead.wire import frames as f
from fairlead.wire.frames import ErrorCode
from fairlead.wire.grpc import length_prefixed
from fairlead.wire.headers import encode_fields
from fairlead.wire.proto import DecodeError, decode
from fairlead.wire.rpc import Call, Server, Status

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from fairlead.wire.server_protocol import ServerProtocol

__all__ = ["house"]  # a fixture

LIST = bytes(3_300_000)
WATCH = b"/v1beta1.DevicePlugin/ListAndWatch"


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - a server has no event for what it holds
            await asyncio.sleep(0.001)


async def watch(_request: object, _call: Call) -> AsyncIterator[bytes]:
    yield LIST
    await asyncio.Event().wait()


async def short(_request: object, _call: Call) -> AsyncIterator[bytes]:
    yield b"a list"
    await asyncio.Event().wait()


async def deaf(house: House, streams: int = 1) -> Peer:
    """Opens every window, asks for lists and reads none of them."""
    peer = await house.peer(hello=False)
    peer.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a socket's transport can
    peer.hello({f.INITIAL_WINDOW_SIZE: f.MAX_WINDOW, f.MAX_FRAME_SIZE: f.LARGEST_FRAME_BYTES})
    peer.send(f.window_update(0, f.MAX_WINDOW - f.DEFAULT_WINDOW))
    for number in range(streams):
        peer.ask(2 * number + 1, length_prefixed(b""), path=WATCH)
    return peer


def queued(protocol: ServerProtocol) -> list[memoryview]:
    return [piece for stream in protocol.http.streams.values() for piece in stream.queue or ()]


async def test_a_list_that_nobody_reads_is_there_once_whoever_asked_for_it(house: House) -> None:
    server = await house.serve({dp.LIST_AND_WATCH: watch})
    for _ in range(12):
        await deaf(house)
    await until(lambda: server.connections == 12 and all(protocol.paused for protocol in server.protocols))
    for protocol in server.protocols:
        # What one connection has of its own: what the transport was given last, and what was below its high-water mark.
        assert protocol.transport.get_write_buffer_size() <= protocol.limits.burst_bytes + 2**16 + 100
        assert all(piece.obj is LIST for piece in queued(protocol) if len(piece) > 5)


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
async def test_a_list_that_was_not_read_is_freed_with_its_connection(house: House) -> None:
    """At once: the parts of a connection refer to each other, and the collector may come much later."""
    server = await house.serve({dp.LIST_AND_WATCH: watch})
    before = sys.getrefcount(LIST)
    peers = [await deaf(house, streams=2) for _ in range(8)]
    await until(lambda: server.connections == 8 and all(protocol.paused for protocol in server.protocols))
    assert sys.getrefcount(LIST) > before
    for peer in peers:
        peer.writer.transport.abort()
    await until(lambda: not server.protocols and not server.tasks)
    assert sys.getrefcount(LIST) == before


async def test_streams_of_one_connection_that_are_not_read_end_it(house: House) -> None:
    asked = []

    async def count(request: object, call: Call) -> AsyncIterator[bytes]:
        asked.append(1)
        async for item in watch(request, call):
            yield item

    server = await house.serve({dp.LIST_AND_WATCH: count}, queue_bytes=8_000_000)
    await deaf(house, streams=10)
    await until(lambda: asked and not server.protocols)


async def test_all_connections_together_have_a_bound_and_the_wanted_one_is_kept(house: House) -> None:
    server = await house.serve({dp.LIST_AND_WATCH: watch}, server_queue_bytes=10_000_000)
    await deaf(house)
    await until(lambda: len(server.protocols) == 1 and next(iter(server.protocols)).paused)
    kubelet = next(iter(server.protocols))
    kubelet.peer.protected = True
    for _ in range(8):
        await deaf(house)
    # The sockets' own buffers hold some of it.
    await until(lambda: len(server.protocols) <= 4 and all(protocol.paused for protocol in server.protocols))
    assert kubelet in server.protocols
    assert sum(protocol.waiting_bytes for protocol in server.protocols) <= 10_000_000


async def ask(peer: Peer) -> str:
    peer.ask()
    return (await peer.answer())[0]["grpc-status"]


async def test_one_connection_too_many_closes_the_idlest(house: House) -> None:
    server = await house.serve({dp.ALLOCATE: allocate, dp.LIST_AND_WATCH: short}, connections=4)
    kubelet = await house.peer()
    kubelet.ask(1, length_prefixed(b""), path=WATCH)
    await until(lambda: any(protocol.calls for protocol in server.protocols))
    idle = [await house.peer() for _ in range(6)]
    newest = await house.peer()
    assert await ask(newest) == "0"
    assert server.connections == 4
    assert await idle[0].goodbye() == ErrorCode.ENHANCE_YOUR_CALM
    kubelet.ask(3)
    assert (await kubelet.answer(3))[0]["grpc-status"] == "0"


async def test_a_connection_without_a_call_is_closed_after_a_while(house: House) -> None:
    server = await house.serve({dp.ALLOCATE: allocate}, idle_s=0.02)
    peer = await house.peer()
    assert await ask(peer) == "0"
    assert await peer.goodbye() == ErrorCode.NO_ERROR
    await until(lambda: not server.protocols)


async def test_a_connection_with_a_call_stays(house: House) -> None:
    server = await house.serve({dp.LIST_AND_WATCH: short, dp.ALLOCATE: allocate}, idle_s=0.02)
    peer = await house.peer()
    peer.ask(1, length_prefixed(b""), path=WATCH)
    await until(lambda: any(protocol.calls for protocol in server.protocols))
    other = await house.peer()
    assert await other.goodbye() == ErrorCode.NO_ERROR  # its time has come and gone
    peer.ask(3)
    assert (await peer.answer(3))[0]["grpc-status"] == "0"


@pytest.mark.parametrize(
    ("message", "item", "name"),
    [
        (dp.AllocateRequest, b"\x0a\x00", "container_requests"),
        (dp.PreferredAllocationRequest, b"\x0a\x00", "container_requests"),
        (dp.ContainerAllocateRequest, b"\x0a\x00", "device_ids"),
        (dp.ContainerPreferredAllocationRequest, b"\x12\x00", "must_include_ids"),
        (dp.PreStartContainerRequest, b"\x0a\x00", "device_ids"),
    ],
)
def test_a_message_of_two_million_empty_items_is_refused_by_name(message: type, item: bytes, name: str) -> None:
    with pytest.raises(DecodeError, match=rf"{message.__name__}.{name} has more than [0-9]+ items"):
        decode(message, item * 2_000_000)


async def test_two_million_empty_containers_are_refused_and_the_next_call_is_served(house: House) -> None:
    await house.serve({dp.ALLOCATE: allocate})
    peer = await house.peer()
    body = length_prefixed(b"\x0a\x00" * 2_000_000)
    peer.ask(1, b"")
    fields, _ = await peer.answer(1)
    assert fields["grpc-status"] == str(int(Status.INTERNAL))
    sender = asyncio.create_task(send_all(peer, 3, body))
    fields, _ = await peer.answer(3)
    assert "container_requests has more than 1024 items" in fields["grpc-message"]
    await sender
    peer.ask(5)
    assert (await peer.answer(5))[0]["grpc-status"] == "0"


async def send_all(peer: Peer, stream: int, body: bytes) -> None:
    """As a kubelet's library would, but for the windows, which are large enough: whole frames, one after the other."""
    peer.send(f.frame(f.HEADERS, f.END_HEADERS, stream, encode_fields(HEAD)))
    size = f.DEFAULT_FRAME_BYTES
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    for number, piece in enumerate(pieces):
        peer.send(f.frame(f.DATA, f.END_STREAM if number == len(pieces) - 1 else 0, stream, piece))
        await peer.writer.drain()
        await asyncio.sleep(0)


def test_the_servers_bounds_are_those_of_a_kubelets_socket() -> None:
    limits = Server({}).limits
    assert limits.connections * limits.burst_bytes <= limits.server_queue_bytes
