"""One connection of a client: its requests one after the other, each within its times. Knows nothing of listening."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto

from fairlead.scheduler.http.budget import Share
from fairlead.scheduler.http.messages import CONTINUE, Handler, Reply, Request, checked, encode, explain
from fairlead.scheduler.http.parsing import Head, Refused, RequestParser
from fairlead.scheduler.http.service import Service


class _Phase(Enum):
    IDLE = auto()  # nothing of a request has come
    HEAD = auto()  # a part of its head
    ADMISSION = auto()  # a large body waits for room
    BODY = auto()
    HANDLER = auto()
    WRITING = auto()  # the client has not read all of the answer
    ENDING = auto()  # nothing more is asked for


class Connection(asyncio.Protocol):
    def __init__(self, service: Service) -> None:
        self._service = service
        self._limits = service.limits
        self._parser = RequestParser(service.limits)
        self._share = Share(service.budget, self._on_room)
        self._phase = _Phase.IDLE
        self._head: Head | None = None
        self._answering: asyncio.Task[None] | None = None
        self._cancel_alarm: Callable[[], object] = _nothing
        self._began_s = 0.0  # the body
        self._seen_bytes = 0  # of the body, at the last look at its progress
        self._writable = True
        self._reading = True
        self._half_closed = False

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        # `pause_writing` then says that an answer has not been read. With 0, asyncio's TLS says it always.
        transport.set_write_buffer_limits(high=1, low=0)
        if not self._service.join(self):
            self._refuse(503, f"{self._limits.connections} connections are open, and all are busy")
        elif self._service.closing:
            self.hang_up()
        else:
            self._wait_for_request()

    def data_received(self, data: bytes) -> None:
        if self._phase is _Phase.ENDING:
            return
        self._parser.feed(data)
        if self._phase in {_Phase.IDLE, _Phase.HEAD, _Phase.BODY}:
            self._advance()
        else:  # the next request, before this one is answered: the kernel holds the rest of it
            self._pause()

    def eof_received(self) -> bool:
        """A client that sends no more may still want to read what it asked for. True: the connection stays."""
        self._half_closed = True
        if not self._transport.can_write_eof():
            return False  # with TLS it is gone
        if self._phase is _Phase.HEAD:  # requests that came together: those that are whole are answered
            asyncio.get_running_loop().call_soon(self._advance)
            return True
        return self._phase in {_Phase.ADMISSION, _Phase.HANDLER, _Phase.WRITING}

    def connection_lost(self, _error: Exception | None) -> None:
        self._service.leave(self)
        if self._phase is _Phase.HANDLER:
            return  # what was asked for is done to its end, as a binding must be; its deadline stays
        self._phase = _Phase.ENDING
        self._cancel_alarm()
        self._share.release()

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        if self._phase is _Phase.WRITING:
            self._next()
        elif self._phase is _Phase.ENDING:
            asyncio.get_running_loop().call_soon(self._write_eof)  # not within asyncio's own work on the socket

    # What the service and the clock call.

    def hang_up(self) -> None:
        self._enter(_Phase.ENDING)
        self._alarm(self._limits.write_s, self.abort)
        self._transport.close()

    def abort(self) -> None:
        self._enter(_Phase.ENDING)
        self._transport.abort()

    def _expire(self) -> None:
        """The client is too slow."""
        if self._phase is _Phase.IDLE:
            self.hang_up()
            return
        self._service.counters.abandoned += 1
        if self._phase is _Phase.WRITING:
            self.abort()
        elif self._phase is _Phase.HEAD:
            self._refuse(408, f"the head of the request did not come within {self._limits.head_s:g} s")
        else:
            self._refuse(408, f"the body of the request came too slowly: {self._parser.received:,} bytes are here")

    def _look_at_progress(self) -> None:
        spent_s = self._service.clock.monotonic() - self._began_s
        came = self._parser.received - self._seen_bytes
        if spent_s >= self._limits.body_s or came < self._limits.progress_bytes:
            self._expire()
            return
        self._seen_bytes = self._parser.received
        self._alarm(min(self._limits.progress_s, self._limits.body_s - spent_s), self._look_at_progress)

    def _give_up_waiting(self) -> None:
        most = self._limits.bodies_bytes
        self._refuse(503, f"the bodies of other requests take up the room for them, {most:,} bytes; try again later")

    def _on_room(self) -> None:
        asyncio.get_running_loop().call_soon(self._admitted)

    def _admitted(self) -> None:
        if self._phase is _Phase.ADMISSION:
            self._begin_body()
            self._advance()

    # A request, from its first byte to the last of its answer.

    def _wait_for_request(self) -> None:
        self._enter(_Phase.IDLE)
        self._alarm(self._limits.idle_s, self._expire)
        self._resume()

    def _advance(self) -> None:
        if self._phase not in {_Phase.IDLE, _Phase.HEAD, _Phase.BODY}:
            return
        try:
            if self._head is None:
                self._read_head()
            if self._head is not None and self._phase is _Phase.BODY:
                self._read_body(self._head)
            if self._half_closed and self._phase in {_Phase.IDLE, _Phase.HEAD, _Phase.BODY}:
                self.hang_up()  # the rest will not come
        except Refused as refused:
            self._refuse(refused.status, refused.reason)

    def _read_head(self) -> None:
        head = self._parser.read_head()
        if head is None:
            if self._parser.pending and self._phase is _Phase.IDLE:
                self._enter(_Phase.HEAD)
                self._alarm(self._limits.head_s, self._expire)
            self._resume()
            return
        self._head = head
        large = head.length is None or head.length > self._limits.small_body_bytes
        _, refusal, allow = self._find(head) if large else (None, None, "")
        if refusal is not None:
            self._end(refusal, allow)  # not worth reading, and without reading it there is no next request
        elif self._share.want(self._limits.small_body_bytes if head.length is None else head.length):
            self._begin_body()
        else:
            self._enter(_Phase.ADMISSION)
            self._alarm(self._limits.admission_s, self._give_up_waiting)
            self._pause()

    def _begin_body(self) -> None:
        self._enter(_Phase.BODY)
        self._began_s = self._service.clock.monotonic()
        self._seen_bytes = self._parser.received
        self._alarm(min(self._limits.progress_s, self._limits.body_s), self._look_at_progress)
        head = self._head
        if head is not None and head.expects and head.length != 0 and not self._parser.received + self._parser.pending:
            self._transport.write(CONTINUE)

    def _read_body(self, head: Head) -> None:
        body = self._parser.read_body()
        if body is not None:
            self._dispatch(head, body)
        elif self._parser.received > self._share.size and not self._share.want(self._limits.body_bytes):
            # A chunked body that is not small. How long it is shows at its end: it counts as the largest.
            self._enter(_Phase.ADMISSION)
            self._alarm(self._limits.admission_s, self._give_up_waiting)
            self._pause()
        else:
            self._resume()

    def _find(self, head: Head) -> tuple[Handler | None, Reply | None, str]:
        """The handler; or what is said instead, and which methods there are."""
        methods = self._service.routes.get(head.path)
        if methods is None:
            known = ", ".join(sorted(self._service.routes))
            return None, explain(404, f"nothing is served at {head.path[:80]!r}. Served are: {known}"), ""
        if handler := methods.get(head.method):
            return handler, None, ""
        allowed = ", ".join(sorted(methods))
        return None, explain(405, f"{head.path} is asked with {allowed}, not with {head.method}"), allowed

    def _dispatch(self, head: Head, body: bytes) -> None:
        self._enter(_Phase.HANDLER)
        handler, refusal, allow = self._find(head)
        if handler is None:
            assert refusal is not None
            self._answer(refusal, allow)
            return
        self._alarm(self._limits.handler_s, self._give_up_handler)
        request = Request(head.method, head.path, head.query, head.headers, body)
        self._answering = asyncio.create_task(self._handle(handler, request), name=f"http {head.path}")
        self._service.handlers.add(self._answering)
        self._answering.add_done_callback(self._on_handler_end)

    def _on_handler_end(self, task: asyncio.Task[None]) -> None:
        self._service.handlers.discard(task)
        self._service.note_end()

    async def _handle(self, handler: Handler, request: Request) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            reply = checked(await handler(request))
        except asyncio.CancelledError as error:
            if task.cancelling():  # by us: nobody waits for its answer
                raise
            reply = self._fail(request.path, error)  # something that the handler waited for was cancelled
        except Exception as error:  # noqa: BLE001 - a request must not be able to print a traceback
            reply = self._fail(request.path, error)
        if self._answering is task:
            self._answering = None
            self._answer(reply)

    def _fail(self, path: str, error: BaseException) -> Reply:
        self._service.on_error(path, error)
        return explain(500, "the answer could not be made; the journal says why")

    def _give_up_handler(self) -> None:
        late, self._answering = self._answering, None
        if late is not None:
            late.cancel()
        self._answer(explain(504, f"the answer was not made within {self._limits.handler_s:g} s"))

    def _answer(self, reply: Reply, allow: str = "") -> None:
        head = self._head
        assert head is not None
        self._head = None
        self._share.release()
        self._count(head.path, reply.status)
        if self._transport.is_closing():  # the client left
            self._cancel_alarm()
            self._phase = _Phase.ENDING
            return
        # A client that will send no more may have sent several already.
        keep = head.keep and not self._service.closing and not (self._half_closed and not self._parser.pending)
        self._transport.write(encode(reply, keep=keep, allow=allow, bodiless=head.method == "HEAD"))
        self._enter(_Phase.WRITING)
        if not keep:
            self.hang_up()
        elif self._writable:
            self._next()
        else:
            self._alarm(self._limits.write_s, self._expire)

    def _next(self) -> None:
        if self._service.closing or (self._half_closed and not self._parser.pending):
            self.hang_up()
        elif self._parser.pending:
            # Later: requests that came together must not keep the loop from others.
            self._enter(_Phase.HEAD)
            self._alarm(self._limits.head_s, self._expire)
            asyncio.get_running_loop().call_soon(self._advance)
        else:
            self._wait_for_request()

    # The end of a connection that cannot go on.

    def _refuse(self, status: int, reason: str) -> None:
        self._end(explain(status, reason))

    def _end(self, reply: Reply, allow: str = "") -> None:
        """Says why, and lets the client read it: to close while it sends would take the answer away from it."""
        self._count(self._head.path if self._head is not None else "", reply.status)
        self._head = None
        self._share.release()
        self._enter(_Phase.ENDING)
        self._service.lingering[self] = None
        if self._transport.is_closing():
            return
        self._transport.write(encode(reply, keep=False, allow=allow))
        if self._half_closed:
            self.hang_up()
            return
        self._alarm(self._limits.linger_s, self.hang_up)
        self._resume()
        if self._writable:
            self._write_eof()

    def _write_eof(self) -> None:
        """Only when all is written: asyncio would do it later, and print a traceback for a client that has gone."""
        if self._transport.can_write_eof() and not self._transport.is_closing():
            with suppress(OSError):  # the client has gone, between the last byte and this
                self._transport.write_eof()

    def _enter(self, phase: _Phase) -> None:
        self._phase = phase
        self._cancel_alarm()
        self._service.forget(self)
        if phase is _Phase.IDLE:
            self._service.idle[self] = None
        elif phase is _Phase.HEAD:
            self._service.beginning[self] = None

    def _alarm(self, seconds: float, ring: Callable[[], None]) -> None:
        self._cancel_alarm()
        self._cancel_alarm = self._service.clock.alarm(seconds, ring)

    def _count(self, path: str, status: int) -> None:
        self._service.counters.requests[path if path in self._service.routes else "", status] += 1

    def _pause(self) -> None:
        if self._reading and not self._half_closed:
            self._reading = False
            self._transport.pause_reading()

    def _resume(self) -> None:
        if not self._reading and not self._transport.is_closing():
            self._reading = True
            self._transport.resume_reading()


def _nothing() -> None:
    pass
