"""RFC 9113, over the life of streams: limits, windows, floods, endings, and the client's side."""

from __future__ import annotations

import pytest
from tests.unit.wire.conversation import (
    ANSWER,
    ASK,
    CALM,
    REQUEST,
    TAIL,
    asked,
    calling,
    failure,
    serving,
    split,
    stream_failure,
)

from fairlead.wire import frames as f
from fairlead.wire.events import (
    DataReceived,
    GoAwayReceived,
    HeadersReceived,
    SettingsReceived,
    StreamDrained,
)
from fairlead.wire.frames import ErrorCode as E
from fairlead.wire.headers import encode_fields
from fairlead.wire.limits import Limits


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
    assert conn.sending.queued_bytes == 500
    conn.reset(3, E.CANCEL)
    assert conn.sending.queued_bytes == 0
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
