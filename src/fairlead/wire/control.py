"""The frames that carry no call: SETTINGS, PING, GOAWAY, WINDOW_UPDATE, PRIORITY, RST_STREAM (RFC 9113, 6).

Each function applies one frame to a connection. `http2` decides when; the streams' data and headers are its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.wire.abuse import ProtocolError
from fairlead.wire.events import Event, GoAwayReceived, PingAcked, SettingsReceived, StreamDrained, StreamReset
from fairlead.wire.frames import (
    ACK,
    DEFAULT_FRAME_BYTES,
    ENABLE_PUSH,
    INITIAL_WINDOW_SIZE,
    LARGEST_FRAME_BYTES,
    MAX_CONCURRENT_STREAMS,
    MAX_FRAME_SIZE,
    MAX_STREAM_ID,
    MAX_WINDOW,
    PING,
    SETTING,
    SETTINGS,
    TWO_UINT32,
    UINT32,
    ErrorCode,
    frame,
)

if TYPE_CHECKING:
    from fairlead.wire.http2 import Connection

_SETTINGS_ACK = frame(SETTINGS, ACK, 0)


def read_settings(conn: Connection, flags: int, stream_id: int, payload: bytes, events: list[Event]) -> None:
    if stream_id:
        raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "SETTINGS on a stream")
    if (flags & ACK and payload) or len(payload) % SETTING.size:
        raise ProtocolError(ErrorCode.FRAME_SIZE_ERROR, "SETTINGS of an impossible size")
    conn.floods.count_idle()
    if flags & ACK:
        return
    for key, value in SETTING.iter_unpack(payload):
        _apply_setting(conn, key, value)
    conn.peer_ready = True
    conn.sending.out.append(_SETTINGS_ACK)
    events.append(SettingsReceived())
    events.extend(map(StreamDrained, conn.sending.pump()))


def _apply_setting(conn: Connection, key: int, value: int) -> None:
    sending = conn.sending
    if key == ENABLE_PUSH:
        if value > 1 or (value and not conn.server):
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, f"ENABLE_PUSH is {value}")
    elif key == MAX_CONCURRENT_STREAMS:
        conn.peer_max_streams = value
    elif key == MAX_FRAME_SIZE:
        if not DEFAULT_FRAME_BYTES <= value <= LARGEST_FRAME_BYTES:
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, f"MAX_FRAME_SIZE is {value}")
        sending.frame_bytes = value
    elif key == INITIAL_WINDOW_SIZE:
        if value > MAX_WINDOW:
            raise ProtocolError(ErrorCode.FLOW_CONTROL_ERROR, f"INITIAL_WINDOW_SIZE is {value}")
        change = value - sending.initial_window
        sending.initial_window = value
        # Open streams move by the difference and may go below zero (RFC 9113, 6.9.2).
        for stream in conn.streams.values():
            stream.send_window += change
            if stream.send_window > MAX_WINDOW:
                raise ProtocolError(ErrorCode.FLOW_CONTROL_ERROR, "INITIAL_WINDOW_SIZE overflows a stream's window")
    # HEADER_TABLE_SIZE: our header blocks use no dynamic table. MAX_HEADER_LIST_SIZE: ours are small. Others: unknown.


def read_ping(conn: Connection, flags: int, stream_id: int, payload: bytes, events: list[Event]) -> None:
    if stream_id:
        raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "PING on a stream")
    if len(payload) != 8:
        raise ProtocolError(ErrorCode.FRAME_SIZE_ERROR, "PING of an impossible size")
    conn.floods.count_idle()
    if flags & ACK:
        events.append(PingAcked(payload))
    else:
        conn.sending.out.append(frame(PING, ACK, 0, payload))


def read_goaway(conn: Connection, flags: int, stream_id: int, payload: bytes, events: list[Event]) -> None:
    del flags
    if stream_id:
        raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "GOAWAY on a stream")
    if len(payload) < TWO_UINT32.size:
        raise ProtocolError(ErrorCode.FRAME_SIZE_ERROR, "GOAWAY is too short")
    conn.floods.count_idle()
    last_id, code = TWO_UINT32.unpack_from(payload)
    conn.peer_going_away = True
    events.append(GoAwayReceived(last_id & MAX_STREAM_ID, code, payload[TWO_UINT32.size :]))


def read_window_update(conn: Connection, flags: int, stream_id: int, payload: bytes, events: list[Event]) -> None:
    del flags
    if len(payload) != UINT32.size:
        raise ProtocolError(ErrorCode.FRAME_SIZE_ERROR, "WINDOW_UPDATE of an impossible size")
    increment = UINT32.unpack(payload)[0] & MAX_WINDOW
    sending = conn.sending
    if stream_id:
        stream = conn.streams.get(stream_id)
        if stream is None:
            if conn.table.is_idle(stream_id):
                raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE on an idle stream")
            conn.floods.count_idle()  # closed a moment ago: the peer could not know
            return
        if not increment:
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE by zero", stream_id)
        stream.send_window += increment
        if stream.send_window > MAX_WINDOW:
            raise ProtocolError(ErrorCode.FLOW_CONTROL_ERROR, "the stream's window overflows", stream_id)
    else:
        if not increment:
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE by zero")
        sending.window += increment
        if sending.window > MAX_WINDOW:
            raise ProtocolError(ErrorCode.FLOW_CONTROL_ERROR, "the connection's window overflows")
    conn.floods.count_idle()
    if sending.queued_bytes:
        events.extend(map(StreamDrained, sending.pump()))


def read_priority(conn: Connection, flags: int, stream_id: int, payload: bytes, events: list[Event]) -> None:
    del flags, events
    if not stream_id:
        raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "PRIORITY on stream 0")
    if len(payload) != 5:
        raise ProtocolError(ErrorCode.FRAME_SIZE_ERROR, "PRIORITY of an impossible size", stream_id)
    if UINT32.unpack_from(payload)[0] & MAX_STREAM_ID == stream_id:
        raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "a stream depends on itself", stream_id)
    conn.floods.count_idle()


def read_rst_stream(conn: Connection, flags: int, stream_id: int, payload: bytes, events: list[Event]) -> None:
    del flags
    if not stream_id:
        raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "RST_STREAM on stream 0")
    if len(payload) != UINT32.size:
        raise ProtocolError(ErrorCode.FRAME_SIZE_ERROR, "RST_STREAM of an impossible size")
    stream = conn.streams.get(stream_id)
    if stream is None:
        if conn.table.is_idle(stream_id):
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "RST_STREAM on an idle stream")
        conn.floods.count_idle()
        return
    conn.sending.drop(stream)
    conn.table.remember_peer_reset(stream_id)
    events.append(StreamReset(stream_id, UINT32.unpack(payload)[0], ours=False))
    conn.floods.count_reset()


def read_push_promise(conn: Connection, flags: int, stream_id: int, payload: bytes, events: list[Event]) -> None:
    del conn, flags, stream_id, payload, events
    # A client of ours forbids it in its settings; a client of anyone's may never send it (RFC 9113, 8.4).
    raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "PUSH_PROMISE is not welcome here")
