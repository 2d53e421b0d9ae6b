"""The sending half of flow control (RFC 9113, 5.2): messages become frames the peer has room for.

Knows nothing of what arrives; `http2` tells it when windows change.
"""

from __future__ import annotations

import sys
from collections import deque
from typing import TYPE_CHECKING

from fairlead.wire.frames import (
    DATA,
    DEFAULT_FRAME_BYTES,
    DEFAULT_WINDOW,
    END_HEADERS,
    END_STREAM,
    FRAME_HEADER,
    HEADERS,
    ErrorCode,
    frame_header,
    header_frames,
    rst_stream,
)

if TYPE_CHECKING:
    from fairlead.wire.streams import Stream, StreamTable


SHORT = 256  # a header block whose length takes one byte


class SendQueue:
    """Everything waiting to leave: finished bytes in `out`, and data the peer's windows hold back."""

    def __init__(self, table: StreamTable, *, server: bool) -> None:
        self.out: list[bytes | memoryview] = []
        # At most so many bytes of DATA go out at once, and none while the transport is full: what waits is kept as
        # views of the messages, which may be shared, and not as copies.
        self.burst_bytes = sys.maxsize
        self.full = False
        self.pumped_bytes = 0
        self.window = DEFAULT_WINDOW
        self.initial_window = DEFAULT_WINDOW
        self.frame_bytes = DEFAULT_FRAME_BYTES
        self.queued_bytes = 0
        # Counts DATA bytes that left: how one sees whether a peer makes progress.
        self.sent_bytes = 0
        # Streams that finished well: how one sees that a client does more than open and reset.
        self.finished = 0
        self._table = table
        self._server = server
        self._blocked: dict[int, Stream] = {}

    def discard(self) -> None:
        """Frees all that waits: the connection is gone, but its parts form cycles that live on until a collection."""
        self.out.clear()
        for stream in list(self._blocked.values()):
            self.drop(stream)

    def answer(self, stream: Stream, head: bytes, body: bytes, tail: bytes) -> None:
        """A whole response: in one piece when the windows have room, which for small answers they always do."""
        size = len(body)
        if (
            size <= self.window
            and size <= stream.send_window
            and size <= self.frame_bytes
            and len(head) < SHORT
            and len(tail) < SHORT
        ):
            self.window -= size
            stream.send_window -= size
            self.sent_bytes += size
            sid = stream.id
            pack = FRAME_HEADER.pack
            # Written out, not through frame_header: this is every answer to the kubelet.
            self.out += (
                pack(0, len(head), HEADERS, END_HEADERS, sid) + head,
                pack(size >> 8, size & 0xFF, DATA, 0, sid),
                body,
                pack(0, len(tail), HEADERS, END_HEADERS | END_STREAM, sid) + tail,
            )
            self._end(stream)
            return
        self.headers(stream, head, end_stream=False)
        self.data(stream, body)
        self.headers(stream, tail, end_stream=True)

    def headers(self, stream: Stream, block: bytes, *, end_stream: bool) -> None:
        piece = header_frames(stream.id, block, end_stream=end_stream, frame_bytes=self.frame_bytes)
        if stream.queue:
            stream.tail = piece
            return
        self.out.append(piece)
        if end_stream:
            self._end(stream)

    def data(self, stream: Stream, *pieces: bytes, end_stream: bool = False) -> None:
        if stream.queue is None:
            stream.queue = deque()
        for piece in pieces:
            if piece:
                stream.queue.append(memoryview(piece))
                stream.queued_bytes += len(piece)
                self.queued_bytes += len(piece)
        stream.end_queued = end_stream
        if stream.queue:
            self._blocked[stream.id] = stream
            self.pump()
        elif end_stream:
            self.out.append(frame_header(0, DATA, END_STREAM, stream.id))
            self._end(stream)

    def pump(self) -> list[int]:
        """Sends what the windows allow, a frame of each stream in turn. Returns the streams whose queue ran empty."""
        drained: list[int] = []
        moved = True
        while moved and self._blocked and self._may_send():
            moved = False
            for stream in list(self._blocked.values()):
                if not self._may_send():
                    break
                if stream.send_window > 0:
                    moved = True
                    if self._send_frame(stream):
                        drained.append(stream.id)
        return drained

    def _may_send(self) -> bool:
        return self.window > 0 and self.pumped_bytes < self.burst_bytes and not self.full

    def _send_frame(self, stream: Stream) -> bool:
        queue = stream.queue
        assert queue
        room = min(self.frame_bytes, self.window, stream.send_window, self.burst_bytes - self.pumped_bytes)
        pieces: list[memoryview] = []
        size = 0
        while queue and size < room:
            piece = queue.popleft()
            if len(piece) > room - size:
                queue.appendleft(piece[room - size :])
                piece = piece[: room - size]
            pieces.append(piece)
            size += len(piece)
        stream.send_window -= size
        stream.queued_bytes -= size
        self.window -= size
        self.queued_bytes -= size
        self.sent_bytes += size
        self.pumped_bytes += size
        last = not queue and stream.end_queued
        self.out.append(frame_header(size, DATA, END_STREAM if last else 0, stream.id))
        self.out += pieces
        if queue:
            return False
        del self._blocked[stream.id]
        if stream.tail is not None:
            self.out.append(stream.tail)
            stream.tail = None
            last = True
        if last:
            self._end(stream)
        return True

    def _end(self, stream: Stream) -> None:
        stream.local_closed = True
        self.finished += 1
        if stream.remote_closed:
            self._table.open.pop(stream.id, None)
        elif self._server:
            # An early answer. NO_ERROR asks the client to stop sending and to keep what it got (RFC 9113, 8.1).
            self.reset(stream, ErrorCode.NO_ERROR)

    def drop(self, stream: Stream) -> None:
        """Forgets a stream and what was queued for it."""
        self._table.open.pop(stream.id, None)
        self._blocked.pop(stream.id, None)
        self.queued_bytes -= stream.queued_bytes
        stream.queued_bytes = 0
        stream.queue = None
        stream.tail = None
        stream.local_closed = stream.remote_closed = True

    def reset(self, stream: Stream, code: int) -> None:
        self.drop(stream)
        self._table.remember_our_reset(stream.id)
        self.out.append(rst_stream(stream.id, code))
