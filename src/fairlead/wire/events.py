"""What `http2` tells the layer above. Plain slotted classes: every call makes two, so they must be cheap."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairlead.wire.headers import Head


class HeadersReceived:
    """A request, a response (informational ones too) or trailers."""

    __slots__ = ("end_stream", "head", "stream_id", "trailers")

    def __init__(self, stream_id: int, head: Head, *, end_stream: bool, trailers: bool) -> None:
        self.stream_id = stream_id
        self.head = head
        self.end_stream = end_stream
        self.trailers = trailers


class DataReceived:
    """`window_bytes` counts padding too; give it back with `Connection.consume` when the data has found its place."""

    __slots__ = ("data", "end_stream", "stream_id", "window_bytes")

    def __init__(self, stream_id: int, data: bytes, window_bytes: int, *, end_stream: bool) -> None:
        self.stream_id = stream_id
        self.data = data
        self.window_bytes = window_bytes
        self.end_stream = end_stream


class StreamReset:
    """The stream is gone. `ours` tells a stream error we found from a RST_STREAM the peer sent."""

    __slots__ = ("code", "ours", "reason", "stream_id")

    def __init__(self, stream_id: int, code: int, reason: str = "", *, ours: bool) -> None:
        self.stream_id = stream_id
        self.code = code
        self.reason = reason
        self.ours = ours


class StreamDrained:
    """Everything queued for the stream has been written; it has room again."""

    __slots__ = ("stream_id",)

    def __init__(self, stream_id: int) -> None:
        self.stream_id = stream_id


class SettingsReceived:
    """The peer's settings are in force."""

    __slots__ = ()


class PingAcked:
    __slots__ = ("payload",)

    def __init__(self, payload: bytes) -> None:
        self.payload = payload


class GoAwayReceived:
    """The peer takes no new streams; those above `last_stream_id` were not looked at."""

    __slots__ = ("code", "debug", "last_stream_id")

    def __init__(self, last_stream_id: int, code: int, debug: bytes) -> None:
        self.last_stream_id = last_stream_id
        self.code = code
        self.debug = debug


class ConnectionFailed:
    """The peer broke the protocol. A GOAWAY with `code` waits in the output; write it and hang up."""

    __slots__ = ("code", "reason")

    def __init__(self, code: int, reason: str) -> None:
        self.code = code
        self.reason = reason


Event = (
    HeadersReceived
    | DataReceived
    | StreamReset
    | StreamDrained
    | SettingsReceived
    | PingAcked
    | GoAwayReceived
    | ConnectionFailed
)
