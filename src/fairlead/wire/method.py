"""What a gRPC method is, and the statuses and calls both ends speak of. Knows no connection."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Generic, TypeVar

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Req = TypeVar("Req")
Resp = TypeVar("Resp")


class Status(IntEnum):
    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class RpcError(Exception):
    """Raised by a handler to answer with a status; raised by a channel for an answer that is not OK."""

    def __init__(self, status: Status, message: str = "") -> None:
        super().__init__(f"{status.name}: {message}" if message else status.name)
        self.status = status
        self.message = message


class Method(Struct, Generic[Req, Resp], frozen=True):
    """One method of a service. `streaming` means that the server answers with a stream."""

    path: str
    request: type[Req]
    response: type[Resp]
    streaming: bool = False


class Peer:
    """The other end of a connection, and the process behind it as the kernel tells it. One object per connection."""

    __slots__ = ("pid", "uid", "wanted")

    def __init__(self, pid: int = 0, uid: int = -1) -> None:
        self.pid = pid  # 0: unknown, or in a process namespace that we do not see
        self.uid = uid  # -1: unknown
        self.wanted = False  # never closed in favour of another, nor for being slow


class Call:
    """What a handler may want to know of the call it serves."""

    __slots__ = ("_clock", "_deadline_s", "_fields", "path", "peer")

    def __init__(
        self,
        path: str,
        fields: tuple[tuple[bytes, bytes], ...],
        deadline_s: float | None,
        clock: Callable[[], float],
        peer: Peer,
    ) -> None:
        self.path = path
        self.peer = peer
        self._fields = fields
        self._deadline_s = deadline_s
        self._clock = clock

    @property
    def metadata(self) -> Mapping[str, str]:
        """The caller's own headers; of a repeated one, the last. Binary ones stay base64."""
        return {
            name.decode("latin-1"): value.decode("latin-1") for name, value in self._fields if not name.startswith(b":")
        }

    def time_left_s(self) -> float | None:
        """Seconds to the caller's deadline, never below zero; None when it set none."""
        return None if self._deadline_s is None else max(0.0, self._deadline_s - self._clock())
