"""One call at a server: what its header list asks for, and how far it is. Knows no connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairlead.wire.grpc import Inbox, is_grpc, parse_timeout_s
from fairlead.wire.method import Call, Method, RpcError, Status

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping

    from fairlead.wire.headers import Head

    Handler = Callable[[Any, Call], Any]


class Plan:
    """What a header list asks for. Made once per distinct list: see `HeaderReader`."""

    __slots__ = ("error", "handler", "http_status", "method", "path", "timeout_s", "with_body")

    def __init__(self, head: Head, routes: Mapping[bytes, tuple[Method[Any, Any], Handler]]) -> None:
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


class Serving:
    """One call in progress."""

    __slots__ = ("begun", "call", "held_bytes", "inbox", "message", "plan", "room", "stream_id", "task", "timer")

    def __init__(self, stream_id: int, plan: Plan, call: Call) -> None:
        self.stream_id = stream_id
        self.plan = plan
        self.call = call
        self.inbox: Inbox | None = None
        self.message: bytes | None = None
        # What this call adds to the connection's count of unfinished requests.
        self.held_bytes = 0
        self.timer: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None
        self.room: asyncio.Future[None] | None = None
        # The response's header list has gone out; an error can only come as trailers now.
        self.begun = False


def only_message(serving: Serving) -> bytes:
    if serving.message is None or serving.inbox:
        raise RpcError(Status.INTERNAL, "a request is exactly one message")
    return serving.message
