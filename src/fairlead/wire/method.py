"""What a gRPC method is, and the statuses and calls both ends speak of. Knows no connection."""

from __future__ import annotations

from enum import IntEnum
from typing import Generic, TypeVar

from msgspec import Struct

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


class Peer(Struct, eq=False):
    """The other end of a connection, and the process behind it as the kernel reports it. One object per connection."""

    pid: int = 0  # 0: unknown, or in a process namespace that we do not see
    uid: int = -1  # -1: unknown
    protected: bool = False  # never closed for the sake of another connection, nor for being slow


class Call(Struct, eq=False):
    """What a handler may want to know of the call it serves. One value for all calls of a connection."""

    peer: Peer
    body: bytes = b""  # of the request, until the handler returns or first waits
