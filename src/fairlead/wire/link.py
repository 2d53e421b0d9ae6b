"""One HTTP/2 connection on an asyncio transport: writing, back-pressure, hanging up on a stuck or wrong peer.

Shared by server and client. Knows no gRPC.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from fairlead.wire.events import ConnectionFailed, StreamDrained
from fairlead.wire.frames import ErrorCode
from fairlead.wire.http2 import Connection

if TYPE_CHECKING:
    from fairlead.wire.events import Event
    from fairlead.wire.limits import Limits

# How long a connection that failed stays to let its GOAWAY be read: closing with unread input would discard it.
LINGER_S = 1.0


class Link(asyncio.Protocol):
    """Feeds bytes to a `Connection` and its bytes to the transport. What the events mean is for the heirs to say."""

    transport: asyncio.Transport

    def __init__(self, *, server: bool, limits: Limits) -> None:
        self.limits = limits
        self.http = Connection(server=server, limits=limits)
        self.http.flow.burst_bytes = limits.burst_bytes
        self.loop = asyncio.get_running_loop()
        self.paused = False
        self.lost = False
        self._stall: asyncio.TimerHandle | None = None
        self._stall_mark = (0, 0)
        self._linger: asyncio.TimerHandle | None = None

    # For the heirs.

    def on_event(self, event: Event) -> None:
        raise NotImplementedError

    def on_room(self) -> None:
        """The transport takes bytes again."""
        raise NotImplementedError

    def on_lost(self, reason: str) -> None:
        """The connection is gone, or as good as gone. May come twice."""
        raise NotImplementedError

    def on_backlog(self) -> None:
        """The peer does not take all that waits for it. A bound that connections have in common is kept here."""

    @property
    def patient(self) -> bool:
        """Whether a peer that takes nothing is waited for, however long."""
        return False

    # From asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.http.start()
        self.flush()

    def data_received(self, data: bytes) -> None:
        for event in self.http.receive(data, self.loop.time()):
            if type(event) is ConnectionFailed:
                self.fail(event.reason)
            else:
                self.on_event(event)
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        for timer in (self._stall, self._linger):
            if timer is not None:
                timer.cancel()
        self.on_lost(str(exc) if exc else "the peer closed the connection")

    def pause_writing(self) -> None:
        self.paused = self.http.flow.full = True
        self._arm()

    def resume_writing(self) -> None:
        self.paused = self.http.flow.full = False
        self.flush()
        if not self.paused:
            self.on_room()

    # Writing.

    @property
    def _mute(self) -> bool:
        """Nothing more can be written."""
        return self._linger is not None or self.transport.is_closing()

    def flush(self) -> None:
        data = self.http.take()
        if data and not self._mute:
            self.transport.write(data)
        if self.paused or self.http.flow.queued_bytes:
            self._flush_queue()

    def _flush_queue(self) -> None:
        """Writes on while the peer has window and the transport takes it; the rest waits for either, within bounds."""
        flow = self.http.flow
        while flow.queued_bytes and not self.paused and not self._mute:
            drained = flow.pump()
            data = self.http.take()
            if not data:
                break
            self.transport.write(data)
            for stream_id in drained:
                self.on_event(StreamDrained(stream_id))
        if not self.waiting_bytes:
            return
        self._arm()
        if self.waiting_bytes > self.limits.queue_bytes:
            self.hang_up(ErrorCode.ENHANCE_YOUR_CALM, "too much is waiting for a peer that does not read")
        else:
            self.on_backlog()

    @property
    def waiting_bytes(self) -> int:
        return self.http.flow.queued_bytes + self.transport.get_write_buffer_size()

    def fail(self, reason: str) -> None:
        """The peer broke the protocol; its GOAWAY is in the output."""
        self.on_lost(reason)
        self.flush()
        self.leave()

    def hang_up(self, code: ErrorCode, reason: str) -> None:
        """Ends the connection without waiting for a peer that does not listen."""
        if self.lost:
            return
        self.lost = True
        if not self._mute:
            self.http.go_away(code, reason)
            self.transport.write(self.http.take())
        self.on_lost(reason)
        self.transport.abort()

    def leave(self) -> None:
        """Sends what is written and closes; the peer gets a moment to read it."""
        if self._mute:
            return
        self._linger = self.loop.call_later(LINGER_S, self.transport.abort)
        # Reading goes on, and what is read is dropped: unread input would turn the close into a reset.
        self.http.failed = True
        self.transport.resume_reading()
        self.transport.write_eof()

    def _arm(self) -> None:
        if self._stall is None and not self.lost:
            self._stall_mark = (self.http.flow.sent_bytes, self.transport.get_write_buffer_size())
            self._stall = self.loop.call_later(self.limits.stall_s, self._check_stall)

    def _check_stall(self) -> None:
        self._stall = None
        waiting = self.transport.get_write_buffer_size()
        if not (self.paused or self.http.flow.queued_bytes):
            return
        sent, waited = self._stall_mark
        if self.http.flow.sent_bytes == sent and waiting >= waited and not self.patient:
            self.hang_up(ErrorCode.ENHANCE_YOUR_CALM, f"nothing was read for {self.limits.stall_s:g} s")
        else:
            self._arm()
