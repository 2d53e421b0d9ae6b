"""RFC 9113, rule by rule: what a peer may do is handled, what it may not do ends its stream or its connection."""

from __future__ import annotations

import pytest
from hpack import Encoder

from fairlead.wire import frames as f
from fairlead.wire.events import (
    ConnectionFailed,
    DataReceived,
    Event,
    GoAwayReceived,
    HeadersReceived,
    SettingsReceived,
    StreamDrained,
    StreamReset,
)
from fairlead.wire.frames import ErrorCode as E
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


CONNECTION_ERRORS = {
    "frame over the size limit": (f.head_of(16_385, f.DATA, 0, 1), E.FRAME_SIZE_ERROR),
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


def test_more_streams_than_allowed_are_refused() -> None:
    conn = serving(Limits(concurrent_streams=2))
    events = conn.receive(asked(1) + asked(3) + asked(5))
    assert stream_failure(conn, events, 5) == E.REFUSED_STREAM
    # The client may not have known: what it sends for that stream is dropped.
    assert conn.receive(f.frame(f.DATA, 0, 5, b"x")) == []


def test_frames_on_streams_that_ended_well() -> None:
    conn = serving()
    conn.receive(asked())
    conn.answer(1, ANSWER, b"body", TAIL)
    assert conn.receive(f.window_update(1, 5) + f.rst_stream(1, 0)) == []  # crossed on the wire
    assert failure(conn, conn.receive(f.frame(f.DATA, 0, 1, b"x"))) == E.STREAM_CLOSED


def test_an_early_answer_asks_the_client_to_stop() -> None:
    conn = serving()
    conn.receive(asked(end=False))
    conn.answer(1, ANSWER, b"body", TAIL)
    kinds = [kind for kind, _, _, _ in split(conn.take())]
    assert kinds == [f.HEADERS, f.DATA, f.HEADERS, f.RST_STREAM]
    assert conn.receive(f.frame(f.DATA, f.END_STREAM, 1, b"late")) == []
    assert not conn.streams


def test_an_answer_waits_for_the_windows_and_trailers_wait_for_it() -> None:
    conn = serving(peer={f.INITIAL_WINDOW_SIZE: 3})
    conn.receive(asked())
    conn.answer(1, ANSWER, b"0123456789", TAIL)
    assert [(kind, payload) for kind, _, _, payload in split(conn.take())][1:] == [(f.DATA, b"012")]
    assert conn.queued_bytes(1) == 7
    assert conn.receive(f.window_update(1, 2)) == []
    assert split(conn.take()) == [(f.DATA, 0, 1, b"34")]
    conn.receive(f.settings({f.INITIAL_WINDOW_SIZE: 0}))  # two below zero now
    conn.take()
    conn.receive(f.window_update(1, 3))
    assert conn.take() == b""
    events = conn.receive(f.settings({f.INITIAL_WINDOW_SIZE: 100}))
    assert [type(event) for event in events] == [SettingsReceived, StreamDrained]
    assert [(k, fl, p) for k, fl, _, p in split(conn.take()) if k != f.SETTINGS] == [
        (f.DATA, 0, b"56789"),
        (f.HEADERS, f.END_STREAM | f.END_HEADERS, TAIL),
    ]
    assert not conn.streams


def test_a_reset_drops_what_was_queued() -> None:
    conn = serving(peer={f.INITIAL_WINDOW_SIZE: 0})
    conn.receive(asked(1) + asked(3))
    conn.answer(1, ANSWER, b"x" * 1000, TAIL)
    conn.answer(3, ANSWER, b"y" * 500, TAIL)
    conn.receive(f.rst_stream(1, E.CANCEL))
    assert conn.flow.queued_bytes == 500
    conn.reset(3, E.CANCEL)
    assert conn.flow.queued_bytes == 0
    conn.take()
    conn.answer(1, ANSWER, b"", TAIL)
    conn.send_headers(1, ANSWER)
    conn.send_data(1, b"x")
    conn.reset(1, E.CANCEL)
    conn.consume(1, 5)
    assert conn.take() == b""
    assert conn.queued_bytes(1) == 0


def test_one_connection_window_is_shared_fairly() -> None:
    conn = serving(peer={f.INITIAL_WINDOW_SIZE: 1 << 20})
    conn.receive(asked(1) + asked(3))
    conn.answer(1, ANSWER, b"x" * 100_000, TAIL)
    conn.answer(3, ANSWER, b"y" * 100_000, TAIL)
    conn.take()
    conn.receive(f.window_update(0, 65_536))
    sent = dict.fromkeys((1, 3), 0)
    for kind, _, stream, payload in split(conn.take()):
        if kind == f.DATA:
            sent[stream] += len(payload)
    assert sent == {1: 32_768, 3: 32_768}


def test_windows_are_given_back_as_data_is_consumed() -> None:
    conn = serving(Limits(stream_window_bytes=1000, connection_window_bytes=100_000))
    conn.receive(asked(end=False) + f.frame(f.DATA, 0, 1, b"x" * 499))
    conn.consume(1, 499)
    assert conn.take() == b""
    conn.receive(f.frame(f.DATA, 0, 1, b"x" * 501))
    conn.consume(1, 501)
    assert conn.take() == f.window_update(1, 1000)
    events = conn.receive(f.frame(f.DATA, 0, 1, b"x" * 1001))
    assert stream_failure(conn, events) == E.FLOW_CONTROL_ERROR


def test_the_connection_window_does_not_leak_through_dead_streams() -> None:
    conn = serving(Limits(connection_window_bytes=65_535))
    conn.receive(asked(end=False))
    conn.reset(1, E.CANCEL)
    conn.take()
    for _ in range(20):
        assert conn.receive(f.frame(f.DATA, 0, 1, b"x" * 16_384)) == []
    assert not conn.failed
    assert split(conn.take())[0][0] == f.WINDOW_UPDATE


def test_more_data_than_the_connection_window_ends_it() -> None:
    conn = serving(Limits(connection_window_bytes=65_535, stream_window_bytes=1 << 20))
    conn._recv_window = 10  # as after much data on a connection whose half window is not yet due
    conn.receive(asked(end=False))
    assert failure(conn, conn.receive(f.frame(f.DATA, 0, 1, b"x" * 11))) == E.FLOW_CONTROL_ERROR


@pytest.mark.parametrize(
    ("once", "code"),
    [
        pytest.param(f.frame(f.PING, 0, 0, bytes(8)), E.ENHANCE_YOUR_CALM, id="PING"),
        pytest.param(f.settings({}), E.ENHANCE_YOUR_CALM, id="SETTINGS"),
        pytest.param(f.frame(f.PRIORITY, 0, 9, bytes(5)), E.ENHANCE_YOUR_CALM, id="PRIORITY"),
        pytest.param(f.frame(0x42, 0, 0), E.ENHANCE_YOUR_CALM, id="unknown frames"),
        pytest.param(f.window_update(0, 1), E.ENHANCE_YOUR_CALM, id="WINDOW_UPDATE"),
        pytest.param(f.frame(f.DATA, 0, 1), E.ENHANCE_YOUR_CALM, id="empty DATA"),
        pytest.param(f.goaway(0, 0), E.ENHANCE_YOUR_CALM, id="GOAWAY"),
    ],
)
def test_floods_are_cut_off(once: bytes, code: E) -> None:
    conn = serving(CALM)
    conn.receive(asked(end=False))
    for _ in range(4):
        conn.receive(once)
        assert not conn.failed
    assert failure(conn, conn.receive(once * 3)) == code


def test_rapid_resets_are_cut_off_whoever_resets() -> None:
    opened_and_reset = b"".join(asked(i) + f.rst_stream(i, E.CANCEL) for i in range(1, 9, 2))
    conn = serving(CALM)
    assert failure(conn, conn.receive(opened_and_reset)) == E.ENHANCE_YOUR_CALM
    driven_into_errors = b"".join(asked(i, end=False) + f.window_update(i, 0) for i in range(1, 9, 2))
    conn = serving(CALM)
    assert failure(conn, conn.receive(driven_into_errors)) == E.ENHANCE_YOUR_CALM


def test_work_and_time_pay_for_noise() -> None:
    conn = serving(CALM)
    for stream in range(1, 41, 2):
        conn.receive(asked(stream, end=False) + f.frame(f.PING, 0, 0, bytes(8)) * 4, now_s=0.0)
        conn.receive(f.frame(f.DATA, f.END_STREAM, stream, b"x"))
        conn.answer(stream, ANSWER, b"y", TAIL)
    assert not conn.failed
    for late in range(20):
        conn.receive(f.frame(f.PING, 0, 0, bytes(8)) * 4, now_s=100.0 * (late + 1))
    assert not conn.failed


def test_header_floods_are_cut_off() -> None:
    conn = serving(CALM)
    empty = f.frame(f.HEADERS, 0, 1) + f.frame(f.CONTINUATION, 0, 1) * 3
    assert failure(conn, conn.receive(empty)) == E.ENHANCE_YOUR_CALM
    conn = serving(CALM)
    large = f.frame(f.HEADERS, 0, 1, bytes(16_000)) + f.frame(f.CONTINUATION, 0, 1, bytes(16_000))
    assert failure(conn, conn.receive(large)) == E.ENHANCE_YOUR_CALM
    conn = serving(CALM)
    swollen = encode_fields([*REQUEST, (b"x", b"y" * 2000)])
    assert failure(conn, conn.receive(asked(block=swollen))) == E.ENHANCE_YOUR_CALM


def test_after_our_goaway_new_streams_are_ignored_and_old_ones_finish() -> None:
    conn = serving()
    conn.receive(asked(1, end=False))
    conn.go_away()
    assert split(conn.take()) == [(f.GOAWAY, 0, 0, f.TWO_UINT32.pack(1, 0))]
    assert conn.receive(asked(3, end=False) + f.frame(f.DATA, f.END_STREAM, 3, b"x")) == []
    events = conn.receive(f.frame(f.DATA, f.END_STREAM, 1, b"x"))
    assert [type(event) for event in events] == [DataReceived]


def test_many_resets_and_gaps_are_forgotten_in_time() -> None:
    conn = serving()
    for stream in range(1, 4 * 1030, 4):
        conn.receive(asked(stream, end=False))
        conn.reset(stream, E.CANCEL)
    assert conn.receive(f.frame(f.DATA, 0, 4 * 1020 + 1, b"x")) == []
    assert failure(conn, conn.receive(f.frame(f.DATA, 0, 1, b"x"))) == E.STREAM_CLOSED


# In the client's role.


def test_a_response_comes_with_informational_ones_before_it() -> None:
    conn = calling()
    stream = conn.open(ASK, end_stream=True)
    early = encode_fields([(b":status", b"103")])
    data = asked(stream, end=False, block=early) + asked(stream, end=False, block=ANSWER)
    events = conn.receive(data + f.frame(f.DATA, 0, stream, b"x") + asked(stream, block=TAIL))
    assert [type(event) for event in events] == [HeadersReceived, HeadersReceived, DataReceived, HeadersReceived]
    assert isinstance(events[3], HeadersReceived)
    assert events[3].trailers
    assert not conn.streams


CLIENT_STREAM_ERRORS = {
    "no status": encode_fields([(b"a", b"b")]),
    "request pseudo header": encode_fields([(b":status", b"200"), (b":path", b"/")]),
    "status of two digits": encode_fields([(b":status", b"20")]),
    "status 101": encode_fields([(b":status", b"101")]),
    "informational at the end": encode_fields([(b":status", b"100")]),
}


@pytest.mark.parametrize("block", CLIENT_STREAM_ERRORS.values(), ids=CLIENT_STREAM_ERRORS)
def test_a_malformed_response_ends_its_stream(block: bytes) -> None:
    conn = calling()
    conn.open(ASK, end_stream=True)
    assert stream_failure(conn, conn.receive(asked(block=block))) == E.PROTOCOL_ERROR


def test_data_before_the_response_ends_the_stream() -> None:
    conn = calling()
    conn.open(ASK, end_stream=True)
    assert stream_failure(conn, conn.receive(f.frame(f.DATA, 0, 1, b"x"))) == E.PROTOCOL_ERROR


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(asked(3, block=ANSWER), id="answer nobody asked for"),
        pytest.param(asked(2, block=ANSWER), id="stream of the server's own"),
        pytest.param(f.settings({f.ENABLE_PUSH: 1}), id="push allowed by a server"),
        pytest.param(f.frame(f.PUSH_PROMISE, f.END_HEADERS, 1, bytes(4)), id="push"),
    ],
)
def test_a_server_that_breaks_the_rules_is_left(data: bytes) -> None:
    conn = calling()
    conn.open(ASK, end_stream=True)
    assert failure(conn, conn.receive(data)) == E.PROTOCOL_ERROR


def test_goaway_stops_new_streams() -> None:
    conn = calling()
    conn.open(ASK, end_stream=True)
    assert conn.can_open
    event = conn.receive(f.goaway(1, E.ENHANCE_YOUR_CALM, b"slow down"))[0]
    assert isinstance(event, GoAwayReceived)
    assert (event.last_stream_id, event.code, event.debug) == (1, E.ENHANCE_YOUR_CALM, b"slow down")
    assert not conn.can_open


def test_stream_numbers_run_out() -> None:
    conn = calling()
    conn.table.next_id = f.MAX_STREAM_ID
    assert conn.can_open
    conn.open(ASK, end_stream=True)
    assert not conn.can_open


def test_an_empty_end_is_a_frame_of_its_own() -> None:
    conn = calling()
    stream = conn.open(ASK, end_stream=False)
    conn.take()
    conn.send_data(stream, b"", end_stream=True)
    assert split(conn.take()) == [(f.DATA, f.END_STREAM, stream, b"")]
