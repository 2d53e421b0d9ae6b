"""What two daemons say to each other when one takes over from the other, and the descriptors that go along.

Owns the socket in the plugin directory, its messages and their bounds. Knows neither endpoints nor resources.

    successor                     the daemon that serves
    hello               ────▶
                        ◀────     hello
    (scans its devices)           (serves)
    release             ────▶
                        ◀────     released     its locks are free; its connections stay open, without news;
                                               which devices are not well
    (registers)
    give [resources]    ────▶
                        ◀────     connections, with descriptors, as many times as it takes; then given
    (holds them open)             (ends when it is told to; serves again if the successor ends first)
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from fairlead.model.errors import HostError
from fairlead.model.names import DeviceId
from fairlead.policy.health import Track
from fairlead.wire.unix import SocketPathError, check_path, listen, peer_of

VERSION = 1
PACKET_BYTES = 64 * 1024
PACKET_DESCRIPTORS = 32
ANSWER_S = 10.0  # a daemon that serves answers at once; a slow machine gets this
# Below the directory: a kubelet that starts removes every socket that stands in the directory itself.
FOLDER = ".fairlead"

Kind = Literal["hello", "release", "released", "give", "connections", "given", "refused"]


class Message(Struct, frozen=True, omit_defaults=True):
    kind: Kind
    version: int = VERSION
    resources: tuple[str, ...] = ()
    resource: str = ""
    text: str = ""  # who is there; why something is refused
    backends: tuple[str, ...] = ()  # with the answer to `hello`: those that have found devices
    tracks: dict[DeviceId, Track] = {}  # with `released`: devices that are not well, and what is known of them


class Ended(Exception):
    """The other daemon is gone, or does not say what it should."""


class Line:
    """A connection to the other daemon. One packet is one message; descriptors that come belong to the caller."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._loop = asyncio.get_running_loop()

    async def send(self, message: Message, descriptors: Sequence[int] = ()) -> None:
        try:
            socket.send_fds(self._socket, [msgspec.json.encode(message)], list(descriptors))
        except OSError as error:  # a packet that does not fit its queue is as good as a peer that does not read
            raise Ended(error.strerror or str(error)) from error

    async def receive(self, timeout_s: float | None = ANSWER_S) -> tuple[Message, list[int]]:
        try:
            async with asyncio.timeout(timeout_s):
                await self._readable()
        except TimeoutError as late:
            raise Ended(f"no answer in {timeout_s:g} s") from late
        try:
            data, descriptors, flags, _ = socket.recv_fds(
                self._socket, PACKET_BYTES, PACKET_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC
            )
        except OSError as error:
            raise Ended(error.strerror or str(error)) from error
        if not data:
            raise Ended("it ended")
        try:
            if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
                data = b""  # cut off: no JSON
            return msgspec.json.decode(data, type=Message), descriptors
        except msgspec.DecodeError as error:
            close_all(descriptors)
            raise Ended(f"a message cannot be read: {error}") from error

    async def ended(self) -> None:
        """Returns when the other daemon is gone. What it says meanwhile is dropped."""
        with contextlib.suppress(Ended):
            while True:
                close_all((await self.receive(None))[1])

    async def _readable(self) -> None:
        ready: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_reader(self._socket, _set, ready)
        try:
            await ready
        finally:
            self._loop.remove_reader(self._socket)

    def close(self) -> None:
        self._socket.close()


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def close_all(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptor)


def batches(descriptors: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(descriptors), PACKET_DESCRIPTORS):
        yield descriptors[start : start + PACKET_DESCRIPTORS]


def with_tracks(message: Message, tracks: Mapping[DeviceId, Track]) -> Message:
    """As many as a packet takes."""
    fitting: dict[DeviceId, Track] = {}
    left = PACKET_BYTES // 2
    for device, track in tracks.items():
        try:
            left -= len(msgspec.json.encode({device: track}))
        except TypeError:  # a cause of a foreign backend may hold anything
            continue
        if left < 0:
            break
        fitting[device] = track
    return replace(message, tracks=fitting)


def path_in(directory: Path, instance: str) -> Path:
    return directory / FOLDER / f"{instance}.sock"


def connect(path: Path) -> Line | None:
    """A line to the daemon that serves there. None: there is none that could hand over."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.connect(check_path(path))
    except (OSError, SocketPathError):
        connection.close()
        return None
    return Line(connection)


class Door:
    """Where a successor knocks. One process of ours, or of root, at a time."""

    def __init__(self, path: Path) -> None:
        """Raises HostError where there is no place for it."""
        try:
            self._listening = _listen(path)
        except SocketPathError as error:
            raise HostError(str(error)) from error
        except OSError as error:
            raise HostError(f"{path}: {error.strerror or error}") from error
        self._path = path
        self._inode = path.stat().st_ino

    async def next(self) -> Line:
        loop = asyncio.get_running_loop()
        while True:
            connection, _ = await loop.sock_accept(self._listening)
            if peer_of(connection).uid in {0, os.getuid()}:
                return Line(connection)
            connection.close()

    def close(self) -> None:
        if self._listening.fileno() < 0:
            return
        with contextlib.suppress(OSError):
            if self._path.stat().st_ino == self._inode:  # a successor may have made its own already
                self._path.unlink()
            self._path.parent.rmdir()  # stays where another daemon has its socket in it
        self._listening.close()


def _listen(path: Path) -> socket.socket:
    _make_folder(path.parent)
    try:
        return listen(path, kind=socket.SOCK_SEQPACKET, backlog=4)
    except FileNotFoundError:  # a daemon that ended has just removed the folder
        _make_folder(path.parent)
        return listen(path, kind=socket.SOCK_SEQPACKET, backlog=4)


def _make_folder(folder: Path) -> None:
    """Ours alone: what stands there may be asked for our connections to the kubelet."""
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise HostError(f"{folder} is not a directory of this user. Find out who made it, and remove it")
    if stat.S_IMODE(found.st_mode) & 0o077:
        folder.chmod(0o700)
