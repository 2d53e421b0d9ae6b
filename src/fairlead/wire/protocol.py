"""One HTTP/2 connection on an asyncio transport: writing, back-pressure, closing on a peer that is stuck or wrong.

Shared by server and client. Knows no gRPC.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from fairlead.wire.events import ConnectionFailed, StreamDrained
from fairlead.wire.frames import ErrorCode
from fairlead.wire.http2 import Connection
from fairlead.wire.method import Peer

if TYPE_CHECKING:
    from fairlead.wire.events import Event
    from fairlead.wire.limits import Limits

# How long a connection that failed stays to let its GOAWAY be read: closing with unread input would discard it.
LINGER_S = 1.0


class Http2Protocol(asyncio.Protocol, ABC):
    """Feeds bytes to a `Connection` and its bytes to the transport. Subclasses handle the events."""

    transport: asyncio.Transport

    def __init__(self, *, server: bool, limits: Limits) -> None:
        self.limits = limits
        self.http = Connection(server=server, limits=limits)
        self.http.sending.burst_bytes = limits.burst_bytes
        self.loop = asyncio.get_running_loop()
        self.paused = False
        self.lost = False
        self.peer = Peer()
        self._stall_timer: asyncio.TimerHandle | None = None
        self._stall_progress = (0, 0)
        self._linger_timer: asyncio.TimerHandle | None = None

    # For subclasses.

    @abstractmethod
    def on_event(self, event: Event) -> None: ...

    @abstractmethod
    def on_writable(self) -> None:
        """The transport takes bytes again."""

    @abstractmethod
    def on_lost(self, reason: str) -> None:
        """The connection is gone, or as good as gone. May come twice."""

    def on_backlog(self) -> None:
        """The peer does not take all that waits for it. A bound that connections have in common is kept here."""

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
        for timer in (self._stall_timer, self._linger_timer):
            if timer is not None:
                timer.cancel()
        self.on_lost(str(exc) if exc else "the peer closed the connection")
        self.http.sending.discard()

    def pause_writing(self) -> None:
        self.paused = self.http.sending.full = True
        self._start_stall_timer()

    def resume_writing(self) -> None:
        self.paused = self.http.sending.full = False
        self.flush()
        if not self.paused:
            self.on_writable()

    # Writing.

    @property
    def _closing(self) -> bool:
        """Nothing more can be written."""
        return self._linger_timer is not None or self.transport.is_closing()

    def flush(self) -> None:
        data = self.http.take()
        if data and not self._closing:
            self.transport.write(data)
        if self.paused or self.http.sending.queued_bytes:
            self._flush_queue()

    def _flush_queue(self) -> None:
        """Writes on while the peer has window and the transport takes it; the rest waits for either, within bounds."""
        sending = self.http.sending
        while sending.queued_bytes and not self.paused and not self._closing:
            drained = sending.pump()
            data = self.http.take()
            if not data:
                break
            self.transport.write(data)
            for stream_id in drained:
                self.on_event(StreamDrained(stream_id))
        if not self.waiting_bytes:
            return
        self._start_stall_timer()
        if self.waiting_bytes > self.limits.queue_bytes:
            self.abort_with(ErrorCode.ENHANCE_YOUR_CALM, "too much is waiting for a peer that does not read")
        else:
            self.on_backlog()

    @property
    def waiting_bytes(self) -> int:
        return self.http.sending.queued_bytes + self.transport.get_write_buffer_size()

    def fail(self, reason: str) -> None:
        """The peer broke the protocol; its GOAWAY is in the output."""
        self.on_lost(reason)
        self.flush()
        self.close_gracefully()

    def abort_with(self, code: ErrorCode, reason: str) -> None:
        """Ends the connection without waiting for a peer that does not listen."""
        if self.lost:
            return
        self.lost = True
        if not self._closing:
            self.http.go_away(code, reason)
            self.transport.write(self.http.take())
        self.on_lost(reason)
        self.transport.abort()

    def close_gracefully(self) -> None:
        """Sends what is written and closes; the peer gets a moment to read it."""
        if self._closing:
            return
        self._linger_timer = self.loop.call_later(LINGER_S, self.transport.abort)
        # Reading goes on, and what is read is dropped: unread input would turn the close into a reset.
        self.http.failed = True
        self.transport.resume_reading()
        self.transport.write_eof()

    def _start_stall_timer(self) -> None:
        if self._stall_timer is None and not self.lost:
            self._stall_progress = (self.http.sending.sent_bytes, self.transport.get_write_buffer_size())
            self._stall_timer = self.loop.call_later(self.limits.stall_s, self._check_stall)

    def _check_stall(self) -> None:
        # A kubelet works through one list before it reads the next. To hang up would make it forget all devices.
        self._stall_timer = None
        waiting = self.transport.get_write_buffer_size()
        if not (self.paused or self.http.sending.queued_bytes):
            return
        sent, waited = self._stall_progress
        if self.http.sending.sent_bytes == sent and waiting >= waited and not self.peer.protected:
            self.abort_with(ErrorCode.ENHANCE_YOUR_CALM, f"nothing was read for {self.limits.stall_s:g} s")
        else:
            self._start_stall_timer()
