"""Streams, their numbers and what is remembered of those that are gone (RFC 9113, 5.1). Knows no bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from fairlead.wire.abuse import ProtocolError
from fairlead.wire.frames import MAX_STREAM_ID, ErrorCode

if TYPE_CHECKING:
    from collections import deque

# Streams that were reset are remembered: what the peer sent before it knew is dropped in silence, what came after its
# own reset is an error. Far more than may be open at once.
_REMEMBERED_RESETS = 1024
# Gaps in the client's numbering that we can still tell from streams that were used.
_REMEMBERED_GAPS = 16


class Stream(Struct, eq=False):
    """One stream. Both halves close on their own; the stream leaves the table when both have."""

    id: int
    send_window: int
    recv_window: int
    # Bytes that the layer above has consumed and no WINDOW_UPDATE has returned yet.
    credit: int = 0
    local_closed: bool = False
    remote_closed: bool = False
    # The final header list of the peer's side has come; what follows it can only be DATA or trailers.
    headers_seen: bool = False
    content_length: int | None = None
    received_bytes: int = 0
    queue: deque[memoryview] | None = None
    queued_bytes: int = 0
    # Trailers that wait behind the queue, or the wish to end the stream with the last DATA frame.
    tail: bytes | None = None
    end_queued: bool = False


class StreamTable:
    """The open streams, and enough memory to judge a frame for one that is not open."""

    def __init__(self, *, server: bool) -> None:
        self.open: dict[int, Stream] = {}
        self.last_peer_id = 0
        self.next_id = 1
        # We said GOAWAY: streams opened from here on are not ours to answer.
        self.going_away = False
        self._server = server
        self._our_resets: dict[int, None] = {}
        self._peer_resets: dict[int, None] = {}
        self._gaps: list[tuple[int, int]] = []

    @property
    def exhausted(self) -> bool:
        return self.next_id > MAX_STREAM_ID

    def is_new(self, stream_id: int) -> bool:
        """A number with which a client may open a stream."""
        return self._server and bool(stream_id & 1) and stream_id > self.last_peer_id

    def is_idle(self, stream_id: int) -> bool:
        """Never used. Numbers of the server's side are always idle: nothing is pushed here."""
        if not stream_id & 1:
            return True
        return stream_id > self.last_peer_id if self._server else stream_id >= self.next_id

    def open_local(self, send_window: int, recv_window: int) -> Stream:
        stream = self.open[self.next_id] = Stream(self.next_id, send_window, recv_window)
        self.next_id += 2
        return stream

    def open_remote(self, stream_id: int, send_window: int, recv_window: int, *, most: int) -> Stream:
        if stream_id > self.last_peer_id + 2 and self.last_peer_id:
            self._gaps = [*self._gaps[1 - _REMEMBERED_GAPS :], (self.last_peer_id + 2, stream_id)]
        self.last_peer_id = stream_id
        if len(self.open) >= most:
            raise ProtocolError(ErrorCode.REFUSED_STREAM, "too many streams at once", stream_id)
        stream = self.open[stream_id] = Stream(stream_id, send_window, recv_window)
        return stream

    def find(self, stream_id: int, what: str) -> Stream | None:
        """The stream a frame is for; None when the frame is to be dropped."""
        if not stream_id:
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, f"{what} on stream 0")
        stream = self.open.get(stream_id)
        if stream is not None:
            if stream.remote_closed:
                raise ProtocolError(ErrorCode.STREAM_CLOSED, f"{what} after the end of the stream", stream_id)
            return stream
        if self.is_idle(stream_id):
            if self.going_away and self.is_new(stream_id):
                return None
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, f"{what} on an idle stream")
        if stream_id in self._our_resets:
            return None
        if stream_id in self._peer_resets:
            raise ProtocolError(ErrorCode.STREAM_CLOSED, f"{what} on a stream that was reset", stream_id)
        if any(low <= stream_id < high for low, high in self._gaps):
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, f"{what} on a stream that was skipped")
        raise ProtocolError(ErrorCode.STREAM_CLOSED, f"{what} on a closed stream")

    def remember_our_reset(self, stream_id: int) -> None:
        _remember(self._our_resets, stream_id)

    def remember_peer_reset(self, stream_id: int) -> None:
        _remember(self._peer_resets, stream_id)


def _remember(resets: dict[int, None], stream_id: int) -> None:
    resets[stream_id] = None
    if len(resets) > _REMEMBERED_RESETS:
        del resets[next(iter(resets))]
