"""Flood protection: how many frames without use a peer may send. Counts; knows no frame and no clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.wire.frames import ErrorCode

if TYPE_CHECKING:
    from fairlead.wire.limits import Limits
    from fairlead.wire.sendqueue import SendQueue


class ProtocolError(Exception):
    """The peer broke a rule. With a stream, that stream ends; without one, the connection does."""

    def __init__(self, code: ErrorCode, reason: str, stream_id: int = 0) -> None:
        super().__init__(reason)
        self.code = code
        self.stream_id = stream_id


class FloodGuard:
    """Finished streams make up for resets, and data in either direction for frames that carry none."""

    __slots__ = ("_finished_seen", "_idle_frames", "_limits", "_resets", "_sending", "_sent_seen", "_since_s")

    def __init__(self, limits: Limits, sending: SendQueue) -> None:
        self._limits = limits
        self._sending = sending
        self._since_s = 0.0
        self._resets = 0
        self._idle_frames = 0
        self._finished_seen = 0
        self._sent_seen = 0

    def tick(self, now_s: float) -> None:
        if now_s - self._since_s > self._limits.flood_window_s:
            self._since_s = now_s
            self._resets = self._idle_frames = 0

    def worked(self) -> None:
        self._idle_frames = 0

    def count_reset(self) -> None:
        finished = self._sending.finished
        self._resets = max(0, self._resets - (finished - self._finished_seen)) + 1
        self._finished_seen = finished
        if self._resets > self._limits.resets:
            raise ProtocolError(ErrorCode.ENHANCE_YOUR_CALM, "too many streams were reset")

    def count_idle(self) -> None:
        if self._sending.sent_bytes != self._sent_seen:
            self._sent_seen = self._sending.sent_bytes
            self._idle_frames = 0
        self._idle_frames += 1
        if self._idle_frames > self._limits.idle_frames:
            raise ProtocolError(ErrorCode.ENHANCE_YOUR_CALM, "too many frames that carry nothing")
