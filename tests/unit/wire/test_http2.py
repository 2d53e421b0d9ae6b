"""RFC 9113, rule by rule: what a peer may do is handled, what it may not do ends its stream or its connection."""

from __future__ import annotations

import pytest
from hpack import Encoder
from tests.unit.wire.conversation import (
    ASK,
    REQUEST,
    TAIL,
    asked,
    failure,
    serving,
    split,
    stream_failure,
)

from fairlead.wire import frames as f
from fairlead.wire.events import (
    DataReceived,
    HeadersReceived,
    SettingsReceived,
    StreamReset,
)
from fairlead.wire.frames import ErrorCode as E
from fairlead.wire.headers import encode_fields
from fairlead.wire.http2 import Connection

CONNECTION_ERRORS = {
    "frame over the size limit": (f.frame_header(16_385, f.DATA, 0, 1), E.FRAME_SIZE_ERROR),
    "DATA on stream 0": (f.frame(f.DATA, 0, 0, b"x"), E.PROTOCOL_ERROR),
    "DATA on an idle stream": (f.frame(f.DATA, 0, 1, b"x"), E.PROTOCOL_ERROR),
    "DATA after the end": (asked() + f.frame(f.DATA, 0, 1, b"x"), None),
    "DATA with too much padding": (asked(end=False) + f.frame(f.DATA, f.PADDED, 1, b"\x05abc"), E.PROTOCOL_ERROR),
    "DATA padded and empty": (asked(end=False) + f.frame(f.DATA, f.PADDED, 1), E.PROTOCOL_ERROR),
    "HEADERS on stream 0": (asked(0), E.PROTOCOL_ERROR),
    "HEADERS on an even stream": (asked(2), E.PROTOCOL_ERROR),
    "HEADERS on a skipped stream": (asked(5, end=False) + asked(9, end=False) + asked(7), E.PROTOCOL_ERROR),
    "HEADERS too short for priority": (f.frame(f.HEADERS, f.END_HEADERS | 0x20, 1, b"ab"), E.FRAME_SIZE_ERROR),
    "header block broken": (f.frame(f.HEADERS, f.END_HEADERS, 1, b"\xff\xff\xff\xff"), E.COMPRESSION_ERROR),
    "header block interrupted": (f.frame(f.HEADERS, 0, 1, ASK) + f.frame(f.PING, 0, 0, b"12345678"), E.PROTOCOL_ERROR),
    "header block on two streams": (
        f.frame(f.HEADERS, 0, 1, ASK) + f.frame(f.CONTINUATION, f.END_HEADERS, 3),
        E.PROTOCOL_ERROR,
    ),
    "CONTINUATION alone": (f.frame(f.CONTINUATION, f.END_HEADERS, 1, ASK), E.PROTOCOL_ERROR),
    "PRIORITY on stream 0": (f.frame(f.PRIORITY, 0, 0, bytes(5)), E.PROTOCOL_ERROR),
    "PRIORITY of a wrong size on an idle stream": (f.frame(f.PRIORITY, 0, 1, bytes(4)), E.FRAME_SIZE_ERROR),
    "RST_STREAM on stream 0": (f.rst_stream(0, 0), E.PROTOCOL_ERROR),
    "RST_STREAM on an idle stream": (f.rst_stream(1, 0), E.PROTOCOL_ERROR),
    "RST_STREAM of a wrong size": (asked() + f.frame(f.RST_STREAM, 0, 1, bytes(3)), E.FRAME_SIZE_ERROR),
    "SETTINGS on a stream": (f.frame(f.SETTINGS, 0, 1), E.PROTOCOL_ERROR),
    "SETTINGS of a wrong size": (f.frame(f.SETTINGS, 0, 0, bytes(5)), E.FRAME_SIZE_ERROR),
    "SETTINGS ack with values": (f.frame(f.SETTINGS, f.ACK, 0, bytes(6)), E.FRAME_SIZE_ERROR),
    "ENABLE_PUSH of 2": (f.settings({f.ENABLE_PUSH: 2}), E.PROTOCOL_ERROR),
    "MAX_FRAME_SIZE too small": (f.settings({f.MAX_FRAME_SIZE: 16_383}), E.PROTOCOL_ERROR),
    "MAX_FRAME_SIZE too large": (f.settings({f.MAX_FRAME_SIZE: 1 << 24}), E.PROTOCOL_ERROR),
    "INITIAL_WINDOW_SIZE too large": (f.settings({f.INITIAL_WINDOW_SIZE: 1 << 31}), E.FLOW_CONTROL_ERROR),
    "INITIAL_WINDOW_SIZE overflows a stream": (
        asked(end=False) + f.window_update(1, 70_000) + f.settings({f.INITIAL_WINDOW_SIZE: f.MAX_WINDOW}),
        E.FLOW_CONTROL_ERROR,
    ),
    "PUSH_PROMISE": (f.frame(f.PUSH_PROMISE, f.END_HEADERS, 1, bytes(4)), E.PROTOCOL_ERROR),
    "PING on a stream": (f.frame(f.PING, 0, 1, bytes(8)), E.PROTOCOL_ERROR),
    "PING of a wrong size": (f.frame(f.PING, 0, 0, bytes(7)), E.FRAME_SIZE_ERROR),
    "GOAWAY on a stream": (f.frame(f.GOAWAY, 0, 1, bytes(8)), E.PROTOCOL_ERROR),
    "GOAWAY too short": (f.frame(f.GOAWAY, 0, 0, bytes(7)), E.FRAME_SIZE_ERROR),
    "WINDOW_UPDATE of a wrong size": (f.frame(f.WINDOW_UPDATE, 0, 0, bytes(3)), E.FRAME_SIZE_ERROR),
    "WINDOW_UPDATE by zero": (f.window_update(0, 0), E.PROTOCOL_ERROR),
    "WINDOW_UPDATE on an idle stream": (f.window_update(1, 1), E.PROTOCOL_ERROR),
    "WINDOW_UPDATE overflows": (f.window_update(0, f.MAX_WINDOW), E.FLOW_CONTROL_ERROR),
}


@pytest.mark.parametrize(("data", "code"), CONNECTION_ERRORS.values(), ids=CONNECTION_ERRORS)
def test_ends_the_connection(data: bytes, code: E | None) -> None:
    conn = serving()
    events = conn.receive(data)
    if code is None:  # a stream error here: the stream is still open on our side
        assert stream_failure(conn, events) == E.STREAM_CLOSED
    else:
        assert failure(conn, events) == code


def bad(*fields: tuple[bytes, bytes], end: bool = True) -> bytes:
    return asked(block=encode_fields(fields), end=end)


STREAM_ERRORS = {
    "upper case": (bad(*REQUEST, (b"Upper", b"x")), E.PROTOCOL_ERROR),
    "empty name": (bad(*REQUEST, (b"", b"x")), E.PROTOCOL_ERROR),
    "colon inside": (bad(*REQUEST, (b"a:b", b"x")), E.PROTOCOL_ERROR),
    "NUL in a value": (bad(*REQUEST, (b"a", b"x\0y")), E.PROTOCOL_ERROR),
    "line break in a value": (bad(*REQUEST, (b"a", b"x\ny")), E.PROTOCOL_ERROR),
    "connection header": (bad(*REQUEST, (b"connection", b"close")), E.PROTOCOL_ERROR),
    "te other than trailers": (bad(*REQUEST, (b"te", b"gzip")), E.PROTOCOL_ERROR),
    "unknown pseudo header": (bad(*REQUEST, (b":x", b"y")), E.PROTOCOL_ERROR),
    "response pseudo header": (bad(*REQUEST, (b":status", b"200")), E.PROTOCOL_ERROR),
    "pseudo header late": (bad((b"a", b"b"), *REQUEST), E.PROTOCOL_ERROR),
    "pseudo header twice": (bad(*REQUEST, (b":path", b"/")), E.PROTOCOL_ERROR),
    "no method": (bad(*REQUEST[1:]), E.PROTOCOL_ERROR),
    "empty path": (bad(*REQUEST[:2], (b":path", b"")), E.PROTOCOL_ERROR),
    "CONNECT with a path": (bad((b":method", b"CONNECT"), *REQUEST[1:]), E.PROTOCOL_ERROR),
    "content-length not a number": (bad(*REQUEST, (b"content-length", b"-1")), E.PROTOCOL_ERROR),
    "content-length twice": (
        bad(*REQUEST, (b"content-length", b"1"), (b"content-length", b"2"), end=False),
        E.PROTOCOL_ERROR,
    ),
    "content-length without DATA": (bad(*REQUEST, (b"content-length", b"1")), E.PROTOCOL_ERROR),
    "content-length too small": (
        bad(*REQUEST, (b"content-length", b"1"), end=False) + f.frame(f.DATA, 0, 1, b"xy"),
        E.PROTOCOL_ERROR,
    ),
    "content-length too large": (
        bad(*REQUEST, (b"content-length", b"3"), end=False) + f.frame(f.DATA, f.END_STREAM, 1, b"xy"),
        E.PROTOCOL_ERROR,
    ),
    "trailers without an end": (asked(end=False) + asked(end=False, block=TAIL), E.PROTOCOL_ERROR),
    "pseudo header in trailers": (asked(end=False) + asked(), E.PROTOCOL_ERROR),
    "depends on itself": (
        f.frame(f.HEADERS, f.END_HEADERS | f.WITH_PRIORITY, 1, f.UINT32.pack(1) + b"\x10" + ASK),
        E.PROTOCOL_ERROR,
    ),
    "PRIORITY on itself": (asked(end=False) + f.frame(f.PRIORITY, 0, 1, f.UINT32.pack(1) + b"\0"), E.PROTOCOL_ERROR),
    "PRIORITY of a wrong size": (asked(end=False) + f.frame(f.PRIORITY, 0, 1, bytes(4)), E.FRAME_SIZE_ERROR),
    "HEADERS after the end": (asked() + asked(), E.STREAM_CLOSED),
    "DATA after a reset": (asked(end=False) + f.rst_stream(1, 8) + f.frame(f.DATA, 0, 1, b"x"), E.STREAM_CLOSED),
    "WINDOW_UPDATE by zero": (asked(end=False) + f.window_update(1, 0), E.PROTOCOL_ERROR),
    "WINDOW_UPDATE overflows": (asked(end=False) + f.window_update(1, f.MAX_WINDOW), E.FLOW_CONTROL_ERROR),
}


@pytest.mark.parametrize(("data", "code"), STREAM_ERRORS.values(), ids=STREAM_ERRORS)
def test_ends_the_stream_alone(data: bytes, code: E) -> None:
    conn = serving()
    events = [event for event in conn.receive(data) if not (isinstance(event, StreamReset) and not event.ours)]
    assert stream_failure(conn, events) == code
    assert 1 not in conn.streams


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="HTTP/1"),
        pytest.param(f.PREFACE + f.frame(f.PING, 0, 0, bytes(8)), id="PING first"),
        pytest.param(f.PREFACE + f.frame(f.SETTINGS, f.ACK, 0), id="ack first"),
    ],
)
def test_a_bad_beginning_ends_the_connection(data: bytes) -> None:
    conn = Connection(server=True)
    assert failure(conn, conn.receive(data)) == E.PROTOCOL_ERROR


def test_a_request_arrives_in_single_bytes() -> None:
    conn = Connection(server=True)
    data = f.PREFACE + f.settings({}) + asked(end=False) + f.frame(f.DATA, f.END_STREAM, 1, b"hello")
    events = [event for i in range(len(data)) for event in conn.receive(data[i : i + 1])]
    assert [type(event) for event in events] == [SettingsReceived, HeadersReceived, DataReceived]
    assert isinstance(events[2], DataReceived)
    assert (events[2].data, events[2].end_stream) == (b"hello", True)


def test_padding_is_taken_off_and_counted() -> None:
    conn = serving()
    padded = f.frame(f.HEADERS, f.END_HEADERS | f.PADDED, 1, b"\x03" + ASK + bytes(3))
    events = conn.receive(padded + f.frame(f.DATA, f.PADDED, 1, b"\x02ab" + bytes(2)))
    assert isinstance(events[1], DataReceived)
    assert (events[1].data, events[1].window_bytes) == (b"ab", 5)


def test_a_header_block_may_come_in_pieces() -> None:
    conn = serving()
    pieces = f.frame(f.HEADERS, f.END_STREAM, 1, ASK[:3]) + f.frame(f.CONTINUATION, 0, 1, ASK[3:5])
    events = conn.receive(pieces + f.frame(f.CONTINUATION, f.END_HEADERS, 1, ASK[5:]))
    assert isinstance(events[0], HeadersReceived)
    assert list(events[0].head.fields) == REQUEST
    assert events[0].end_stream


def test_a_long_header_block_goes_out_in_pieces() -> None:
    conn = serving()
    conn.receive(asked())
    conn.send_headers(1, encode_fields([(b":status", b"200"), (b"x", b"y" * 40_000)]), end_stream=True)
    kinds = [(kind, flags) for kind, flags, _, _ in split(conn.take())]
    assert kinds == [(f.HEADERS, f.END_STREAM), (f.CONTINUATION, 0), (f.CONTINUATION, f.END_HEADERS)]


def test_connect_and_unknown_frames_are_tolerated() -> None:
    conn = serving()
    tunnel = encode_fields([(b":method", b"CONNECT"), (b":authority", b"x")])
    events = conn.receive(f.frame(0xBE, 0xFF, 9, b"new") + asked(block=tunnel) + f.frame(f.PRIORITY, 0, 9, bytes(5)))
    assert [type(event) for event in events] == [HeadersReceived]


def test_spaces_around_a_value_pass() -> None:
    """gRPC libraries send a status text that ends with a space as it is."""
    event = serving().receive(bad(*REQUEST, (b"a", b" x ")))[0]
    assert isinstance(event, HeadersReceived)
    assert event.head.get(b"a") == b" x "


def test_a_repeated_block_is_the_same_head_until_the_table_changes() -> None:
    conn = serving()

    def head(stream: int, block: bytes) -> object:
        event = conn.receive(asked(stream, block=block))[0]
        assert isinstance(event, HeadersReceived)
        return event.head

    assert head(1, ASK) is head(3, ASK)
    fresh = Encoder()
    first, again = fresh.encode([*REQUEST, (b"x", b"one")]), fresh.encode([*REQUEST, (b"x", b"one")])
    head(5, first)  # enters the table
    remembered = head(7, again)
    assert head(9, again) is remembered
    head(11, fresh.encode([*REQUEST, (b"x", b"two")]))  # moves the table: the old bytes mean something else now
    moved = conn.receive(asked(13, block=again))[0]
    assert isinstance(moved, HeadersReceived)
    assert moved.head.fields[-1] == (b"x", b"two")
