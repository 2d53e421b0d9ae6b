"""Connections of a daemon that has ended: held open, closed as soon as they would keep the kubelet waiting."""

import asyncio
import os
import socket
from collections.abc import Iterator

import pytest

from fairlead.fronts.deviceplugin import inherited as module
from fairlead.fronts.deviceplugin.inherited import InheritedConnections
from fairlead.wire import frames


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, int]]:
    """The kubelet's end, and a descriptor of ours."""
    kubelet, ours = socket.socketpair()
    kubelet.settimeout(5.0)
    with kubelet:
        yield kubelet, ours.detach()


async def turn() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_nothing_is_read_while_the_daemon_that_had_it_is_alive(pair: tuple[socket.socket, int]):
    kubelet, descriptor = pair
    held = InheritedConnections()
    held.adopt([descriptor])
    kubelet.sendall(frames.frame(frames.PING, 0, 0, b"12345678"))
    await turn()
    with socket.socket(fileno=os.dup(descriptor)) as other:
        assert other.recv(100, socket.MSG_PEEK)
    held.watch()
    await turn()
    assert kubelet.recv(100) == frames.frame(frames.PING, frames.ACK, 0, b"12345678")
    held.close(given=False)


async def test_a_call_is_ended_and_not_left_waiting(pair: tuple[socket.socket, int]):
    kubelet, descriptor = pair
    held = InheritedConnections()
    held.watch()
    held.adopt([descriptor])
    kubelet.sendall(frames.frame(frames.HEADERS, frames.END_HEADERS, 3, b"\x82"))
    await turn()
    assert kubelet.recv(100) == b""
    assert len(held) == 0


async def test_one_that_the_kubelet_closed_is_forgotten(pair: tuple[socket.socket, int]):
    kubelet, descriptor = pair
    held = InheritedConnections()
    held.adopt([descriptor])
    held.watch()
    kubelet.close()
    await turn()
    assert held.descriptors == []


async def test_what_was_given_on_stays_open_when_this_daemon_ends(pair: tuple[socket.socket, int]):
    kubelet, descriptor = pair
    held = InheritedConnections()
    held.adopt([descriptor])
    with socket.socket(fileno=os.dup(descriptor)) as successor:
        held.close(given=True)
        kubelet.setblocking(False)
        with pytest.raises(BlockingIOError):
            kubelet.recv(1)
        successor.sendall(b"x")
        assert kubelet.recv(1) == b"x"


async def test_there_are_never_more_than_a_few(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "MOST", 2)
    pairs = [socket.socketpair() for _ in range(3)]
    held = InheritedConnections()
    held.adopt([ours.detach() for _, ours in pairs])
    assert len(held) == 2
    pairs[0][0].settimeout(5.0)
    assert pairs[0][0].recv(1) == b"", "the oldest went"
    held.close(given=False)
    for kubelet, _ in pairs:
        kubelet.close()
