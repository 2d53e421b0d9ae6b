"""Our server against peers that are stuck, silent, slow or rude."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.unit.wire.house import CROWD, House, Peer, allocate, house

from fairlead.wire import deviceplugin as dp
from fairlead.wire import frames as f
from fairlead.wire.frames import ErrorCode
from fairlead.wire.grpc import length_prefixed
from fairlead.wire.rpc import Call

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from fairlead.wire.server_protocol import ServerProtocol

__all__ = ["house"]  # a fixture


async def test_a_peer_that_reads_nothing_pauses_us_and_is_left_in_the_end(house: House) -> None:
    closed = asyncio.Event()
    sent = []

    async def stream(_request: object, _call: Call) -> AsyncIterator[bytes]:
        try:
            while True:
                sent.append(1)
                yield bytes(200_000)
        finally:
            closed.set()

    server = await house.serve({dp.LIST_AND_WATCH: stream}, stall_s=0.05)
    peer = await house.peer(hello=False)
    peer.hello({f.INITIAL_WINDOW_SIZE: f.MAX_WINDOW})
    peer.send(f.window_update(0, f.MAX_WINDOW - f.DEFAULT_WINDOW))
    peer.ask(1, length_prefixed(b""), path=b"/v1beta1.DevicePlugin/ListAndWatch")
    peer.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a socket's transport can
    await closed.wait()
    assert len(sent) < 20
    assert server.connections == 0


async def crowd(house: House, handled: list[int]) -> tuple[Peer, ServerProtocol]:
    """A peer that has sent far more calls than it reads answers for, and the server's end of its connection."""

    def count(_request: object, _call: Call) -> bytes:
        handled.append(1)
        return bytes(2000)

    server = await house.serve({dp.ALLOCATE: count}, concurrent_streams=CROWD)
    peer = await house.peer(hello=False)
    peer.hello({f.INITIAL_WINDOW_SIZE: f.MAX_WINDOW})
    peer.send(f.window_update(0, f.MAX_WINDOW - f.DEFAULT_WINDOW))
    peer.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a socket's transport can
    for stream in range(1, 2 * CROWD, 2):
        peer.ask(stream)
    for _ in range(300):  # more turns of the loop than it takes to read everything
        await asyncio.sleep(0)
    return peer, next(iter(server.protocols))


async def test_calls_are_not_read_while_answers_are_not(house: House) -> None:
    handled: list[int] = []
    peer, protocol = await crowd(house, handled)
    assert not protocol.transport.is_reading()
    assert 0 < len(handled) < CROWD / 2
    peer.writer.transport.resume_reading()  # type: ignore[attr-defined]  # as above
    for stream in range(1, 2 * CROWD, 2):
        assert (await peer.answer(stream))[0]["grpc-status"] == "0"
    assert len(handled) == CROWD


async def test_a_connection_that_is_left_reads_to_the_end(house: House) -> None:
    """Input that nobody read would turn the close into a reset, and the peer would lose what we said last."""
    handled: list[int] = []
    _, protocol = await crowd(house, handled)
    before = len(handled)
    protocol.close_gracefully()
    assert protocol.transport.is_reading()
    await asyncio.sleep(0)
    assert len(handled) == before


async def test_a_peer_that_said_hello_is_not_waited_for(house: House) -> None:
    server = await house.serve({dp.ALLOCATE: allocate})
    peer = await house.peer(hello=False)
    await peer.frame()
    timer = next(iter(server.protocols))._preface_timer
    assert timer is not None
    assert not timer.cancelled()
    peer.hello()
    peer.ask()
    await peer.answer()
    assert timer.cancelled()


async def test_a_peer_without_window_is_left_in_the_end(house: House) -> None:
    await house.serve({dp.ALLOCATE: allocate}, stall_s=0.05)
    peer = await house.peer(hello=False)
    peer.hello({f.INITIAL_WINDOW_SIZE: 0})
    peer.ask()
    assert await peer.goodbye() == ErrorCode.ENHANCE_YOUR_CALM


async def test_the_kubelet_may_be_busy_for_longer_than_others(house: House) -> None:
    """It reads the next list only when it has worked through the last one, and that can take a minute."""
    server = await house.serve({dp.ALLOCATE: allocate}, stall_s=0.02)
    peer = await house.peer(hello=False)
    peer.hello({f.INITIAL_WINDOW_SIZE: 0})
    await peer.frame()
    protocol = next(iter(server.protocols))
    protocol.peer.protected = True
    peer.ask()
    await asyncio.sleep(0.1)
    assert server.connections == 1
    peer.send(f.window_update(1, 1000))
    assert (await peer.answer())[0]["grpc-status"] == "0"


async def test_a_connection_that_the_kubelet_left_behind_has_no_more_time_than_others(house: House) -> None:
    server = await house.serve({dp.ALLOCATE: allocate}, stall_s=0.02)
    peer = await house.peer(hello=False)
    peer.hello({f.INITIAL_WINDOW_SIZE: 0})
    await peer.frame()
    protocol = next(iter(server.protocols))
    protocol.peer.protected = True
    peer.ask()
    await asyncio.sleep(0.05)
    protocol.peer.protected = False  # it registered us anew, on another connection
    assert await peer.goodbye() == ErrorCode.ENHANCE_YOUR_CALM


async def test_a_slow_peer_that_goes_on_reading_is_kept(house: House) -> None:
    server = await house.serve({dp.ALLOCATE: allocate})
    peer = await house.peer(hello=False)
    peer.hello({f.INITIAL_WINDOW_SIZE: 1})
    peer.ask()
    for turn in range(3):
        while (await peer.frame())[0] != f.DATA:
            pass
        protocol = next(iter(server.protocols))
        if turn:
            protocol._check_stall()  # as the timer would; a byte has left since it last looked
        peer.send(f.window_update(1, 1))
    peer.send(f.window_update(1, 1000))
    assert (await peer.answer())[0]["grpc-status"] == "0"
    next(iter(server.protocols))._check_stall()  # nothing waits any more: nothing to complain about
    assert server.connections == 1


async def test_a_peer_that_asks_and_does_not_read_is_cut_off(house: House) -> None:
    await house.serve({dp.ALLOCATE: lambda _request, _call: bytes(10_000)}, queue_bytes=50_000)
    peer = await house.peer(hello=False)
    peer.hello({f.INITIAL_WINDOW_SIZE: 0})
    for stream in range(1, 21, 2):
        peer.ask(stream)
    assert await peer.goodbye() == ErrorCode.ENHANCE_YOUR_CALM


@pytest.mark.parametrize("said", [b"", f.PREFACE[:10], f.PREFACE], ids=["nothing", "half a preface", "no settings"])
async def test_a_silent_peer_is_left(house: House, said: bytes) -> None:
    await house.serve({}, preface_s=0.02)
    peer = await house.peer(hello=False)
    peer.send(said)
    assert await peer.goodbye() == ErrorCode.SETTINGS_TIMEOUT


async def test_a_peer_that_breaks_the_rules_hears_why(house: House) -> None:
    ended = asyncio.Event()

    async def prepare(_request: object, _call: Call) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    await house.serve({dp.PRE_START_CONTAINER: prepare})
    peer = await house.peer()
    peer.ask(1, length_prefixed(b""), path=b"/v1beta1.DevicePlugin/PreStartContainer")
    peer.send(f.frame(f.PING, 0, 0, b"12345678"))
    while (await peer.frame())[0] != f.PING:
        pass
    await asyncio.sleep(0)
    peer.send(f.frame(f.DATA, 0, 0, b"x"), bytes(100_000))
    assert await peer.goodbye() == ErrorCode.PROTOCOL_ERROR
    await ended.wait()


async def test_a_peer_that_ignores_our_goodbye_is_closed_on(house: House) -> None:
    server = await house.serve({dp.ALLOCATE: allocate})
    peer = await house.peer()
    peer.ask()
    await peer.answer()
    assert server.connections == 1
    await server.stop(0)  # the peer neither reads nor closes
    assert server.connections == 0
    assert await peer.goodbye() == ErrorCode.NO_ERROR
    await server.stop()


async def test_stopping_leaves_the_socket_file(house: House) -> None:
    server = await house.serve({})
    await server.stop()
    assert house.path.is_socket()


async def test_a_connection_accepted_too_late_is_closed(house: House) -> None:
    server = await house.serve({})
    server.stopping = True  # as when stop began while the connection was still in the queue
    peer = await house.peer(hello=False)
    assert await peer.goodbye() == -1
    assert server.connections == 0
