"""One HTTP/2 connection without I/O (RFC 9113): bytes in, events and bytes out, in the client's or the server's role.

Owns the rules of DATA and HEADERS and the streams' states. Must not know sockets, clocks, tasks or gRPC.
"""

from __future__ import annotations

from fairlead.wire.abuse import FloodGuard, ProtocolError
from fairlead.wire.control import (
    read_goaway,
    read_ping,
    read_priority,
    read_push_promise,
    read_rst_stream,
    read_settings,
    read_window_update,
)
from fairlead.wire.events import ConnectionFailed, DataReceived, Event, HeadersReceived, StreamReset
from fairlead.wire.frames import (
    ACK,
    CONTINUATION,
    DEFAULT_FRAME_BYTES,
    DEFAULT_WINDOW,
    ENABLE_PUSH,
    END_HEADERS,
    END_STREAM,
    FRAME_HEADER,
    HEADER_BYTES,
    INITIAL_WINDOW_SIZE,
    MAX_CONCURRENT_STREAMS,
    MAX_HEADER_LIST_SIZE,
    MAX_STREAM_ID,
    PADDED,
    PING,
    PREFACE,
    SETTINGS,
    UINT32,
    WITH_PRIORITY,
    ErrorCode,
    frame,
    goaway,
    rst_stream,
    settings,
    window_update,
)
from fairlead.wire.headers import HeaderDecoder, HeaderError
from fairlead.wire.limits import Limits
from fairlead.wire.sendqueue import SendQueue
from fairlead.wire.streams import Stream, StreamTable


class Connection:
    def __init__(self, *, server: bool, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.server = server
        self.table = StreamTable(server=server)
        self.streams = self.table.open
        self.sending = SendQueue(self.table, server=server)
        self.floods = FloodGuard(self.limits, self.sending)
        self.failed = False
        self.peer_going_away = False
        self.peer_ready = False
        # The peer's limit, which a client checks before it opens a stream.
        self.peer_max_streams = MAX_STREAM_ID
        self._reader = HeaderDecoder(self.limits.header_list_bytes)
        self._rest = bytearray()
        self._need = len(PREFACE) if server else HEADER_BYTES
        self._awaiting_preface = server
        self._recv_window = self.limits.connection_window_bytes
        self._credit = 0
        # A header block in the making: stream, flags of its HEADERS frame, parts, size, frames.
        self._block_stream = 0
        self._block_flags = 0
        self._block: list[bytes] = []
        self._block_bytes = 0

    # Sending.

    def start(self) -> None:
        """Queues the preface: a client's magic, our settings, and a connection window of a useful size."""
        if not self.server:
            self.sending.out.append(PREFACE)
        values = {
            INITIAL_WINDOW_SIZE: self.limits.stream_window_bytes,
            MAX_HEADER_LIST_SIZE: self.limits.header_list_bytes,
        }
        if self.server:
            values[MAX_CONCURRENT_STREAMS] = self.limits.concurrent_streams
        else:
            values[ENABLE_PUSH] = 0
        self.sending.out.append(settings(values))
        if self._recv_window > DEFAULT_WINDOW:
            self.sending.out.append(window_update(0, self._recv_window - DEFAULT_WINDOW))

    def take(self) -> bytes:
        """The bytes to write now."""
        out = self.sending.out
        if not out:
            return b""
        data = b"".join(out)
        out.clear()
        self.sending.pumped_bytes = 0
        return data

    def open(self, block: bytes, *, end_stream: bool) -> int:
        """Opens a stream in the client's role. The caller minds `peer_max_streams` and `can_open`."""
        stream = self.table.open_local(self.sending.initial_window, self.limits.stream_window_bytes)
        self.sending.headers(stream, block, end_stream=end_stream)
        return stream.id

    @property
    def can_open(self) -> bool:
        return not (self.failed or self.peer_going_away) and not self.table.exhausted

    def answer(self, stream_id: int, head: bytes, body: bytes, tail: bytes) -> None:
        stream = self.streams.get(stream_id)
        if stream is not None and not stream.local_closed:
            self.sending.answer(stream, head, body, tail)

    def send_headers(self, stream_id: int, block: bytes, *, end_stream: bool = False) -> None:
        stream = self.streams.get(stream_id)
        if stream is not None and not stream.local_closed:
            self.sending.headers(stream, block, end_stream=end_stream)

    def send_data(self, stream_id: int, *pieces: bytes, end_stream: bool = False) -> None:
        """The pieces are not copied before they are written: a list that many streams send is there once."""
        stream = self.streams.get(stream_id)
        if stream is not None and not stream.local_closed:
            self.sending.data(stream, *pieces, end_stream=end_stream)

    def queued_bytes(self, stream_id: int) -> int:
        stream = self.streams.get(stream_id)
        return stream.queued_bytes if stream is not None else 0

    def reset(self, stream_id: int, code: int) -> None:
        stream = self.streams.get(stream_id)
        if stream is not None:
            self.sending.reset(stream, code)

    def ping(self, payload: bytes) -> None:
        self.sending.out.append(frame(PING, 0, 0, payload))

    def go_away(self, code: int = ErrorCode.NO_ERROR, debug: str = "") -> None:
        """Takes no new streams from here on; those already open go on."""
        self.table.going_away = True
        self.sending.out.append(goaway(self.table.last_peer_id, code, debug.encode()[:256]))

    def consume(self, stream_id: int, size: int) -> None:
        """Gives a stream's window back. The peer hears of it once half the window is due, not at every byte."""
        stream = self.streams.get(stream_id)
        if stream is None or stream.remote_closed:
            return
        stream.credit += size
        if stream.credit * 2 >= self.limits.stream_window_bytes:
            self.sending.out.append(window_update(stream_id, stream.credit))
            stream.recv_window += stream.credit
            stream.credit = 0

    # Receiving.

    def receive(self, data: bytes, now_s: float = 0.0) -> list[Event]:
        """Takes any number of bytes, cut anywhere. `now_s` only tells one flood window from the next."""
        events: list[Event] = []
        if self.failed:
            return events
        if self._rest:
            self._rest += data
            if len(self._rest) < self._need:
                return events
            data = bytes(self._rest)
            self._rest.clear()
        self.floods.tick(now_s)
        try:
            self._read_frames(data, events)
        except ProtocolError as error:
            self.failed = True
            self.sending.out.append(goaway(self.table.last_peer_id, error.code, str(error).encode()[:256]))
            events.append(ConnectionFailed(error.code, str(error)))
        return events

    def _read_frames(self, data: bytes, events: list[Event]) -> None:
        at = 0
        if self._awaiting_preface:
            at = min(len(data), len(PREFACE))
            if not PREFACE.startswith(data[:at]):
                raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "this is not the HTTP/2 preface")
            if at < len(PREFACE):
                self._rest += data
                return
            self._awaiting_preface = False
        end = len(data)
        self._need = HEADER_BYTES
        while end - at >= HEADER_BYTES:
            high, low, kind, flags, stream_id = FRAME_HEADER.unpack_from(data, at)
            size = high << 8 | low
            if size > DEFAULT_FRAME_BYTES:
                raise ProtocolError(ErrorCode.FRAME_SIZE_ERROR, f"a frame of {size} bytes is over the limit")
            stop = at + HEADER_BYTES + size
            if stop > end:
                self._need = HEADER_BYTES + size
                break
            payload = data[at + HEADER_BYTES : stop]
            at = stop
            stream_id &= MAX_STREAM_ID
            if self._block_stream or not self.peer_ready:
                self._check_order(kind, flags, stream_id)
            try:
                # Not through a method of its own: a call of the kubelet is four frames, and this runs for each.
                if kind < _KINDS:
                    _READERS[kind](self, flags, stream_id, payload, events)
                else:
                    self.floods.count_idle()
            except ProtocolError as error:
                if not error.stream_id:
                    raise
                self._fail_stream(error, events)
        if at < end:
            self._rest += data[at:]

    def _check_order(self, kind: int, flags: int, stream_id: int) -> None:
        """The two moments in which not every frame may come."""
        if self._block_stream and (kind != CONTINUATION or stream_id != self._block_stream):
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "a header block was interrupted")
        if not self.peer_ready and (kind != SETTINGS or flags & ACK):
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "the first frame is not SETTINGS")

    def _fail_stream(self, error: ProtocolError, events: list[Event]) -> None:
        stream = self.streams.get(error.stream_id)
        if stream is not None:
            self.sending.reset(stream, error.code)
            events.append(StreamReset(stream.id, error.code, ours=True, reason=str(error)))
        elif self.table.is_idle(error.stream_id):
            # A stream error on a stream that never was: RST_STREAM there would be an error of ours.
            raise ProtocolError(error.code, str(error))
        else:
            self.table.remember_our_reset(error.stream_id)
            self.sending.out.append(rst_stream(error.stream_id, error.code))
        self.floods.count_reset()

    def read_data(self, flags: int, stream_id: int, payload: bytes, events: list[Event]) -> None:
        size = len(payload)
        # The connection's window is eaten and given back even when the stream is gone, or it would leak away.
        if size > self._recv_window:
            raise ProtocolError(ErrorCode.FLOW_CONTROL_ERROR, "more DATA than the connection's window")
        self._recv_window -= size
        self._credit += size
        if self._credit * 2 >= self.limits.connection_window_bytes:
            self.sending.out.append(window_update(0, self._credit))
            self._recv_window += self._credit
            self._credit = 0
        if flags & PADDED:
            payload = _strip_padding(payload)
        stream = self.table.find(stream_id, "DATA")
        if payload:
            self.floods.worked()
        elif not flags & END_STREAM:
            self.floods.count_idle()
        if stream is None:
            return
        if not stream.headers_seen:
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "DATA before the header list", stream_id)
        if size > stream.recv_window:
            raise ProtocolError(ErrorCode.FLOW_CONTROL_ERROR, "more DATA than the stream's window", stream_id)
        stream.recv_window -= size
        stream.received_bytes += len(payload)
        if flags & END_STREAM:
            self._end_remote(stream)
        elif stream.content_length is not None and stream.received_bytes > stream.content_length:
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "more DATA than content-length", stream_id)
        events.append(DataReceived(stream_id, payload, size, end_stream=bool(flags & END_STREAM)))

    def _end_remote(self, stream: Stream) -> None:
        if stream.content_length is not None and stream.received_bytes != stream.content_length:
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "content-length does not match the DATA", stream.id)
        stream.remote_closed = True
        if stream.local_closed:
            self.sending.drop(stream)

    def read_headers(self, flags: int, stream_id: int, payload: bytes, events: list[Event]) -> None:
        if not stream_id:
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "HEADERS on stream 0")
        if flags & PADDED:
            payload = _strip_padding(payload)
        depends_on = 0
        if flags & WITH_PRIORITY:
            if len(payload) < 5:
                raise ProtocolError(ErrorCode.FRAME_SIZE_ERROR, "HEADERS too short for its priority")
            depends_on = UINT32.unpack_from(payload)[0] & MAX_STREAM_ID
            payload = payload[5:]
        if flags & END_HEADERS:
            self._on_block(flags, stream_id, payload, events)
        else:
            self._block_stream, self._block_flags = stream_id, flags
            self._block, self._block_bytes = [payload], len(payload)
        if depends_on == stream_id:
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "a stream depends on itself", stream_id)

    def read_continuation(self, flags: int, stream_id: int, payload: bytes, events: list[Event]) -> None:
        if not self._block_stream:
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "CONTINUATION without HEADERS")
        self._block.append(payload)
        self._block_bytes += len(payload)
        if self._block_bytes > self.limits.header_block_bytes or len(self._block) > self.limits.continuation_frames:
            raise ProtocolError(ErrorCode.ENHANCE_YOUR_CALM, "the header block is too long")
        if flags & END_HEADERS:
            self._block_stream = 0
            block, self._block = b"".join(self._block), []
            self._on_block(self._block_flags, stream_id, block, events)

    def _on_block(self, flags: int, stream_id: int, block: bytes, events: list[Event]) -> None:
        # Decoded before anything else: both ends' compression state moves on even when the stream is refused.
        try:
            head = self._reader.read(block)
        except HeaderError as error:
            raise ProtocolError(error.code, str(error)) from error
        table = self.table
        if table.is_new(stream_id):
            if table.going_away:
                return
            limits = self.limits
            stream = table.open_remote(
                stream_id, self.sending.initial_window, limits.stream_window_bytes, most=limits.concurrent_streams
            )
        else:
            found = self.table.find(stream_id, "HEADERS")
            if found is None:
                return
            stream = found
        end_stream = bool(flags & END_STREAM)
        trailers = stream.headers_seen
        role = "trailers" if trailers else "request" if self.server else "response"
        if role not in head.valid_as and (flaw := head.find_flaw(role)):
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, flaw, stream_id)
        if trailers:
            if not end_stream:
                raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "trailers that do not end the stream", stream_id)
        elif role == "response" and head.fields[0][1][:1] == b"1":
            if end_stream:
                raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "an informational response ends the stream", stream_id)
            self.floods.count_idle()
        else:
            stream.headers_seen = True
            stream.content_length = head.content_length
        if end_stream:
            self._end_remote(stream)
        events.append(HeadersReceived(stream_id, head, end_stream=end_stream, trailers=trailers))


def _strip_padding(payload: bytes) -> bytes:
    if not payload or payload[0] >= len(payload):
        raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "more padding than frame")
    return payload[1 : len(payload) - payload[0]]


# By frame type.
_READERS = (
    Connection.read_data,
    Connection.read_headers,
    read_priority,
    read_rst_stream,
    read_settings,
    read_push_promise,
    read_ping,
    read_goaway,
    read_window_update,
    Connection.read_continuation,
)
_KINDS = len(_READERS)
