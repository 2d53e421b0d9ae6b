"""What `http2` reports to the layer above. Every call makes two of these, so they must be cheap."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from fairlead.wire.headers import HeaderList


class HeadersReceived(Struct):
    """A request, a response (informational ones too) or trailers."""

    stream_id: int
    head: HeaderList
    end_stream: bool
    trailers: bool


class DataReceived(Struct):
    """`window_bytes` counts padding too; return it with `Connection.consume` once the data is processed."""

    stream_id: int
    data: bytes
    window_bytes: int
    end_stream: bool


class StreamReset(Struct):
    """The stream is gone. `ours` tells a stream error we found from a RST_STREAM the peer sent."""

    stream_id: int
    code: int
    ours: bool
    reason: str = ""


class StreamDrained(Struct):
    """Everything queued for the stream has been written; it has room again."""

    stream_id: int


class SettingsReceived(Struct):
    """The peer's settings are in force."""


class PingAcked(Struct):
    payload: bytes


class GoAwayReceived(Struct):
    """The peer takes no new streams; those above `last_stream_id` were not looked at."""

    last_stream_id: int
    code: int
    debug: bytes


class ConnectionFailed(Struct):
    """The peer broke the protocol. A GOAWAY with `code` is in the output; write it and close."""

    code: int
    reason: str


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
