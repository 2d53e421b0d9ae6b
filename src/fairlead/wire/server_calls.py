"""One call at a server: what its request headers ask for, and how far it has come. Knows no connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from fairlead.wire.grpc import MessageDeframer, is_grpc, parse_timeout_s
from fairlead.wire.method import Call, Method, RpcError, Status

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping

    from fairlead.wire.headers import HeaderList

    Handler = Callable[[Any, Call], Any]


class RequestHeaders:
    """What a header list asks for. Made once per distinct list: see `HeaderDecoder`."""

    __slots__ = ("error", "handler", "http_status", "method", "path", "timeout_s", "with_body")

    def __init__(self, head: HeaderList, routes: Mapping[bytes, tuple[Method[Any, Any], Handler]]) -> None:
        raw_path = head.get(b":path") or b""
        self.path = raw_path.decode("latin-1")
        self.error: RpcError | None = None
        self.http_status = b""
        self.timeout_s: float | None = None
        self.method: Method[Any, Any] | None = None
        self.handler: Handler | None = None
        verb = head.get(b":method")
        self.with_body = verb != b"HEAD"
        if verb != b"POST":
            self.http_status = b"405"
        elif not is_grpc(head.get(b"content-type")):
            self.http_status = b"415"
        elif raw_path not in routes:
            self.error = RpcError(Status.UNIMPLEMENTED, f"unknown method {self.path}")
        else:
            self.method, self.handler = routes[raw_path]
            timeout = head.get(b"grpc-timeout")
            if timeout is not None:
                try:
                    self.timeout_s = parse_timeout_s(timeout)
                except RpcError as error:
                    self.error = error


class ActiveCall(Struct, eq=False):
    """One call in progress."""

    stream_id: int
    headers: RequestHeaders
    deframer: MessageDeframer | None = None
    message: bytes | None = None
    held_bytes: int = 0  # what this call adds to the connection's count of unfinished requests
    timer: asyncio.TimerHandle | None = None
    task: asyncio.Task[None] | None = None
    writable: asyncio.Future[None] | None = None
    headers_sent: bool = False  # of the response; from then on an error can only come as trailers


def sole_message(active: ActiveCall) -> bytes:
    if active.message is None or active.deframer:
        raise RpcError(Status.INTERNAL, "a request is exactly one message")
    return active.message
