"""Two ends of an HTTP/2 connection that have said hello, and what their output says. For the tests of the rules."""

from __future__ import annotations

from fairlead.wire import frames as f
from fairlead.wire.events import (
    ConnectionFailed,
    Event,
    SettingsReceived,
    StreamReset,
)
from fairlead.wire.headers import encode_fields
from fairlead.wire.http2 import Connection
from fairlead.wire.limits import Limits

REQUEST = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/"), (b":authority", b"x")]
ASK = encode_fields(REQUEST)
ANSWER = encode_fields([(b":status", b"200")])
TAIL = encode_fields([(b"grpc-status", b"0")])
CALM = Limits(resets=3, idle_frames=5, continuation_frames=3, header_block_bytes=20_000, header_list_bytes=2000)


def serving(limits: Limits | None = None, peer: dict[int, int] | None = None) -> Connection:
    """A server whose client has said hello."""
    conn = Connection(server=True, limits=limits)
    conn.start()
    events = conn.receive(f.PREFACE + f.settings(peer or {}))
    assert [type(event) for event in events] == [SettingsReceived]
    conn.take()
    return conn


def calling(limits: Limits | None = None, peer: dict[int, int] | None = None) -> Connection:
    """A client whose server has said hello."""
    conn = Connection(server=False, limits=limits)
    conn.start()
    conn.receive(f.settings(peer or {}))
    conn.take()
    return conn


def asked(stream: int = 1, *, end: bool = True, block: bytes = ASK) -> bytes:
    return f.header_frames(stream, block, end_stream=end, frame_bytes=f.DEFAULT_FRAME_BYTES)


def split(data: bytes) -> list[tuple[int, int, int, bytes]]:
    """Output as (kind, flags, stream, payload)."""
    found, at = [], 0
    while at < len(data):
        high, low, kind, flags, stream = f.FRAME_HEADER.unpack_from(data, at)
        start = at + f.HEADER_BYTES
        at = start + (high << 8 | low)
        found.append((kind, flags, stream, data[start:at]))
    return found


def failure(conn: Connection, events: list[Event]) -> int:
    """The code of a connection error, checked to be on the wire too."""
    last = events[-1]
    assert isinstance(last, ConnectionFailed)
    kind, _, stream, payload = split(conn.take())[-1]
    assert (kind, stream) == (f.GOAWAY, 0)
    assert f.TWO_UINT32.unpack_from(payload)[1] == last.code
    assert conn.receive(f.frame(f.PING, 0, 0, b"12345678")) == []
    assert conn.take() == b""
    return last.code


def stream_failure(conn: Connection, events: list[Event], stream: int = 1) -> int:
    """The code of a stream error; the connection goes on."""
    assert not conn.failed
    resets = [s for s in split(conn.take()) if s[0] == f.RST_STREAM]
    assert [s[2] for s in resets] == [stream]
    code: int = f.UINT32.unpack(resets[0][3])[0]
    for event in events:
        if isinstance(event, StreamReset):
            assert (event.stream_id, event.code, event.ours) == (stream, code, True)
    assert conn.receive(f.frame(f.PING, 0, 0, b"12345678")) == []
    assert conn.take() == f.frame(f.PING, f.ACK, 0, b"12345678")
    return code
