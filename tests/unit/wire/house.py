"""A server and the peers that talk to it in raw frames. For the tests of our server."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from fairlead.wire import deviceplugin as dp
from fairlead.wire import frames as f
from fairlead.wire.grpc import length_prefixed
from fairlead.wire.headers import HeaderDecoder, encode_fields
from fairlead.wire.proto import encode
from fairlead.wire.rpc import Call, Limits, Server
from fairlead.wire.unix import listen

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path


HEAD = [
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/v1beta1.DevicePlugin/Allocate"),
    (b":authority", b"%2Frun%2Fp.sock"),
    (b"content-type", b"application/grpc"),
    (b"te", b"trailers"),
]
ASK = encode(dp.AllocateRequest((dp.ContainerAllocateRequest(("a",)),)))
ANSWER = dp.AllocateResponse((dp.ContainerAllocateResponse(envs={"A": "a"}),))


# Calls that fill many reads, and whose answers are more than any socket buffer holds.
CROWD = 6000


class Peer:
    """A client that sends what it is told and reads frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.headers = HeaderDecoder(1 << 20)

    def send(self, *frames: bytes) -> None:
        self.writer.write(b"".join(frames))

    def hello(self, settings: dict[int, int] | None = None) -> None:
        self.send(f.PREFACE, f.settings(settings or {}))

    def ask(self, stream: int = 1, body: bytes | None = None, *extra: tuple[bytes, bytes], path: bytes = b"") -> None:
        head = [(name, path if path and name == b":path" else value) for name, value in HEAD]
        self.send(f.frame(f.HEADERS, f.END_HEADERS, stream, encode_fields([*head, *extra])))
        self.send(f.frame(f.DATA, f.END_STREAM, stream, length_prefixed(ASK) if body is None else body))

    async def frame(self) -> tuple[int, int, int, bytes]:
        high, low, kind, flags, stream = f.FRAME_HEADER.unpack(await self.reader.readexactly(f.HEADER_BYTES))
        return kind, flags, stream, await self.reader.readexactly(high << 8 | low)

    async def answer(self, stream: int = 1) -> tuple[dict[str, str], bytes]:
        """All header fields of the response, trailers included, and its body."""
        fields: dict[str, str] = {}
        body = b""
        while True:
            kind, flags, where, payload = await self.frame()
            if where != stream:
                continue
            if kind == f.HEADERS:
                fields |= {name.decode(): value.decode() for name, value in self.headers.read(payload).fields}
            elif kind == f.DATA:
                body += payload
            if kind in {f.HEADERS, f.DATA} and flags & f.END_STREAM:
                return fields, body

    async def goodbye(self) -> int:
        """The code of the GOAWAY with which the connection ends."""
        code = -1
        try:
            while True:
                kind, _, _, payload = await self.frame()
                if kind == f.GOAWAY:
                    code = f.TWO_UINT32.unpack_from(payload)[1]
        except asyncio.IncompleteReadError:
            return code


class House:
    """A server whose handlers are the test's."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.errors: list[BaseException] = []
        self.peers: list[Peer] = []
        self.server: Server | None = None

    async def serve(self, handlers: dict[Any, Callable[[Any, Call], Any]], **limits: float) -> Server:
        made = Limits(**limits)  # type: ignore[arg-type]  # floats and ints alike, by name
        self.server = Server(handlers, limits=made, on_error=lambda _, error: self.errors.append(error))
        await self.server.start(listen(self.path))
        return self.server

    async def peer(self, *, hello: bool = True) -> Peer:
        reader, writer = await asyncio.open_unix_connection(self.path, limit=1 << 16)
        peer = Peer(reader, writer)
        self.peers.append(peer)
        if hello:
            peer.hello()
        return peer


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[House]:
    house = House(path)
    yield house
    for peer in house.peers:
        peer.writer.close()
    if house.server is not None:
        await house.server.stop(0)
        assert house.server.connections == 0
        assert not house.server.tasks


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with opened(tmp_path / "p.sock") as made:
        yield made


def allocate(_request: dp.AllocateRequest, _call: Call) -> dp.AllocateResponse:
    return ANSWER
