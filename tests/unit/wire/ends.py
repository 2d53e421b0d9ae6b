"""Two ends of one HTTP/2 conversation behind one face: ours, and the h2 library's as the oracle."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings

from fairlead.wire import events
from fairlead.wire.frames import ErrorCode
from fairlead.wire.headers import encode_fields
from fairlead.wire.http2 import Connection
from fairlead.wire.limits import Limits

Fields = list[tuple[bytes, bytes]]


@dataclass
class Seen:
    """What one end was told about one stream."""

    heads: list[Fields] = field(default_factory=list)
    data: bytearray = field(default_factory=bytearray)
    ended: bool = False
    reset: int | None = None


class OurEnd:
    def __init__(self, *, server: bool, limits: Limits) -> None:
        self.conn = Connection(server=server, limits=limits)
        self.conn.start()
        self.seen: dict[int, Seen] = defaultdict(Seen)
        self.pongs: list[bytes] = []
        self.goaway: int | None = None

    def request(self, fields: Fields, *, end: bool) -> int:
        return self.conn.open(encode_fields(fields), end_stream=end)

    def headers(self, stream: int, fields: Fields, *, end: bool) -> None:
        self.conn.send_headers(stream, encode_fields(fields), end_stream=end)

    def data(self, stream: int, data: bytes, *, end: bool) -> None:
        self.conn.send_data(stream, data, end_stream=end)

    def reset(self, stream: int) -> None:
        self.conn.reset(stream, ErrorCode.CANCEL)

    def ping(self, payload: bytes) -> None:
        self.conn.ping(payload)

    def say_goaway(self) -> None:
        self.conn.go_away()

    def take(self) -> bytes:
        return self.conn.take()

    def receive(self, data: bytes) -> None:
        for event in self.conn.receive(data):
            if isinstance(event, events.HeadersReceived):
                seen = self.seen[event.stream_id]
                seen.heads.append(list(event.head.fields))
                seen.ended |= event.end_stream
            elif isinstance(event, events.DataReceived):
                seen = self.seen[event.stream_id]
                seen.data += event.data
                seen.ended |= event.end_stream
                self.conn.consume(event.stream_id, event.window_bytes)
            elif isinstance(event, events.StreamReset):
                assert not event.ours, event.reason
                self.seen[event.stream_id].reset = event.code
            elif isinstance(event, events.PingAcked):
                self.pongs.append(event.payload)
            elif isinstance(event, events.GoAwayReceived):
                self.goaway = event.last_stream_id
            else:
                assert not isinstance(event, events.ConnectionFailed), event.reason


class TheirEnd:
    def __init__(self, *, server: bool, window_bytes: int, frame_bytes: int) -> None:
        config = h2.config.H2Configuration(client_side=not server, header_encoding=False)
        self.conn = h2.connection.H2Connection(config)
        self.conn.initiate_connection()
        # A second SETTINGS frame, so that they come into force when we acknowledge them and not before.
        self.conn.update_settings(
            {
                h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window_bytes,
                h2.settings.SettingCodes.MAX_FRAME_SIZE: frame_bytes,
            }
        )
        self.seen: dict[int, Seen] = defaultdict(Seen)
        self.pongs: list[bytes] = []
        self.goaway: int | None = None
        self._queue: dict[int, list[tuple[bytes, bool] | Fields]] = defaultdict(list)

    def request(self, fields: Fields, *, end: bool) -> int:
        stream = self.conn.get_next_available_stream_id()
        self.conn.send_headers(stream, fields, end_stream=end)
        return stream

    def headers(self, stream: int, fields: Fields, *, end: bool) -> None:
        if self._queue[stream]:
            self._queue[stream].append(fields)
        else:
            self._try(lambda: self.conn.send_headers(stream, fields, end_stream=end), stream)

    def data(self, stream: int, data: bytes, *, end: bool) -> None:
        self._queue[stream].append((data, end))

    def reset(self, stream: int) -> None:
        self._queue.pop(stream, None)
        self._try(lambda: self.conn.reset_stream(stream, ErrorCode.CANCEL), stream)

    def ping(self, payload: bytes) -> None:
        self.conn.ping(payload)

    def say_goaway(self) -> None:
        self.conn.close_connection()

    def take(self) -> bytes:
        for stream in list(self._queue):
            self._try(lambda stream=stream: self._flush(stream), stream)
        return self.conn.data_to_send()

    def _try(self, act: object, stream: int) -> None:
        try:
            act()  # type: ignore[operator]  # a plain callable
        except h2.exceptions.StreamClosedError:
            self._queue.pop(stream, None)  # the other end has reset it

    def _flush(self, stream: int) -> None:
        queue = self._queue[stream]
        while queue:
            item = queue[0]
            if isinstance(item, list):
                self.conn.send_headers(stream, item, end_stream=True)
                queue.pop(0)
                continue
            data, end = item
            room = min(self.conn.local_flow_control_window(stream), self.conn.max_outbound_frame_size)
            if data and room <= 0:
                return
            last = len(data) <= room
            self.conn.send_data(stream, data[:room] if data else b"", end_stream=end and last)
            if last:
                queue.pop(0)
            else:
                queue[0] = (data[room:], end)

    def receive(self, data: bytes) -> None:
        for event in self.conn.receive_data(data):
            if isinstance(event, h2.events.RequestReceived | h2.events.ResponseReceived | h2.events.TrailersReceived):
                self.seen[event.stream_id].heads.append([(bytes(k), bytes(v)) for k, v in event.headers])
            elif isinstance(event, h2.events.DataReceived):
                self.seen[event.stream_id].data += event.data
                self.conn.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, h2.events.StreamEnded):
                self.seen[event.stream_id].ended = True
            elif isinstance(event, h2.events.StreamReset):
                self.seen[event.stream_id].reset = int(event.error_code)
            elif isinstance(event, h2.events.PingAckReceived):
                self.pongs.append(event.ping_data)
            elif isinstance(event, h2.events.ConnectionTerminated):
                self.goaway = event.last_stream_id


End = OurEnd | TheirEnd
