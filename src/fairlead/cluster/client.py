"""Calls to the API server: get, list, watch, patch, create, update, delete. Typed answers and errors, deadlines, tries.

Owns a few kept connections; a watch has one of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from fairlead._version import __version__
from fairlead.cluster.access import Access
from fairlead.cluster.connection import Connection, StaleConnection, connect
from fairlead.cluster.errors import (
    ClusterError,
    Forbidden,
    MalformedResponse,
    NoAccess,
    StatusError,
    TooLarge,
    TooSlow,
    Unauthorized,
    status_error,
)
from fairlead.cluster.http1 import ResponseHead, encode
from fairlead.cluster.kinds import Kind, Request
from fairlead.cluster.lines import LineSplitter
from fairlead.cluster.patches import MergePatch, Patch, merge
from fairlead.kit.backoff import parse_retry_after, wait_s
from fairlead.model.ports import Clock

T = TypeVar("T")

ATTEMPT_S = 10.0
PATIENCE_S = 30.0  # for a call with all its tries
# One object fits, see `LINE_MAX_BYTES`; of a page that does not, less is asked for.
BODY_MAX_BYTES = 16 * 2**20
PAGE = 200  # objects a list asks for at a time
PAGES_MAX = 1000  # a list that never ends is no list
IDLE_MAX_S = 60.0  # Go servers close what was quiet for longer
IDLE_KEPT = 2
# The server ends a watch after this time, or up to twice of it, and sends a bookmark 2 s before. In between it sends
# one a minute, which is too rare for a sign of life: so watches are short, and one that is not ended is dead.
WATCH_S = 15
WATCH_OVERDUE_S = 5.0


class Meta(Struct, frozen=True, rename="camel"):
    """What every object says of itself."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class AnyObject(Struct, frozen=True):
    """An object of which only the name matters."""

    metadata: Meta = Meta()


class ObjectList(Struct, Generic[T], frozen=True):
    items: tuple[T, ...]
    version: str  # to watch from


class Event(Struct, Generic[T], frozen=True):
    """One line of a watch. A bookmark has no object: it says how far the server has looked."""

    kind: str  # ADDED, MODIFIED, DELETED, BOOKMARK
    object: T | None
    version: str


class _PageMeta(Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    next_page: str = msgspec.field(name="continue", default="")


class _Page(Struct, frozen=True):
    items: list[msgspec.Raw] | None = None
    metadata: _PageMeta = _PageMeta()


class _Line(Struct, frozen=True):
    type: str
    object: msgspec.Raw


class _Status(Struct, frozen=True):
    code: int = 0
    message: str = ""


class Client:
    def __init__(
        self,
        access: Access,
        clock: Clock,
        *,
        rng: Random | None = None,
        attempt_s: float = ATTEMPT_S,
        patience_s: float = PATIENCE_S,
        idle_kept: int = IDLE_KEPT,
    ) -> None:
        """`idle_kept`: connections that are kept for the next requests, for as many as are sent at once."""
        self.access = access
        self.clock = clock
        self.rng = rng or Random()  # noqa: S311 - spreads retries, hides nothing
        self._attempt_s = attempt_s
        self._patience_s = patience_s
        self._idle_kept = idle_kept
        self._idle: list[Connection] = []
        self.answers: bool | None = None  # whether the server answered the last request; None: none was sent

    async def close(self) -> None:
        self.drop_idle()

    def drop_idle(self) -> None:
        """The next request makes a new connection: a kept one may be half-open, and would eat up the deadline."""
        while self._idle:
            self._idle.pop().close()

    # --- Calls ----------------------------------------------------------------------------------------------------

    async def get(self, kind: Kind, name: str, into: type[T], *, namespace: str = "") -> T:
        return _decode(await self._call(Request("get", kind, name, namespace)), into)

    async def list(
        self,
        kind: Kind,
        into: type[T],
        *,
        namespace: str = "",
        fields: str = "",
        labels: str = "",
        page: int = PAGE,
        patience_s: float | None = None,
        shrink: Callable[[T], T] | None = None,
    ) -> ObjectList[T]:
        """All of them, a page at a time. Raises Gone if the list was too slow for the server's memory.

        No version is asked for, so the answer holds everything that was written before the request (a consistent
        read). `patience_s`: for each page with its tries; 0: one try. `shrink`: makes an object small before the next
        page is read. Without it all objects are in memory as they came, and what of them stays lies scattered there.
        """
        query, size = _selectors(fields, labels), page
        items: list[T] = []
        for _ in range(PAGES_MAX):
            request = Request("list", kind, namespace=namespace, query={**query, "limit": str(size)})
            try:
                found = _decode(await self._call(request, patience_s), _Page)
            except TooLarge:
                if size == 1:
                    raise
                size = max(1, size // 4)
                continue
            size = min(page, 2 * size)
            fresh = (_decode(item, into) for item in found.items or ())
            items += map(shrink, fresh) if shrink is not None else fresh
            if not found.metadata.next_page:
                return ObjectList(tuple(items), found.metadata.resource_version)
            query["continue"] = found.metadata.next_page
        raise MalformedResponse(f"the list of {kind.plural} has no end")

    async def ping(self, kind: Kind) -> None:
        """Whether the server answers at all, by a list of nothing from its cache. An error status is an answer, too."""
        query = {"fieldSelector": "metadata.name=-", "resourceVersion": "0", "limit": "1"}
        try:
            await self._once(Request("list", kind, query=query))
        except StatusError as error:
            if error.temporary:
                raise

    async def patch(
        self, kind: Kind, name: str, patch: Patch, into: type[T], *, namespace: str = "", subresource: str = ""
    ) -> T:
        request = Request("patch", kind, name, namespace, subresource, patch.query, patch.encode(), patch.content_type)
        return _decode(await self._call(request), into)

    async def create(
        self, kind: Kind, body: Any, into: type[T], *, name: str = "", namespace: str = "", subresource: str = ""
    ) -> T:
        """`name` and `subresource`: for what is made of an object that exists, such as the binding of a pod."""
        request = Request("create", kind, name, namespace, subresource, body=msgspec.json.encode(body))
        return _decode(await self._call(request), into)

    async def update(self, kind: Kind, name: str, body: Any, into: type[T], *, namespace: str = "") -> T:
        """Writes a whole object. With its version in it, a change by others is a Conflict; without, it is lost."""
        return _decode(await self._call(Request("update", kind, name, namespace, body=msgspec.json.encode(body))), into)

    async def change(self, kind: Kind, name: str, body: Any, *, namespace: str = "") -> None:
        """By a merge patch. Where that is forbidden the object is read, merged here, and written with its version.

        Raises Conflict when the object has changed since it was read: work out the change again. If both ways are
        forbidden, the error asks for the patch.
        """
        try:
            await self.patch(kind, name, MergePatch(body), AnyObject, namespace=namespace)
        except Forbidden as refused:
            whole = await self.get(kind, name, dict[str, Any], namespace=namespace)
            try:
                await self.update(kind, name, merge(whole, body), AnyObject, namespace=namespace)
            except Forbidden:
                raise refused from None

    async def delete(self, kind: Kind, name: str, *, namespace: str = "") -> None:
        await self._call(Request("delete", kind, name, namespace))

    async def watch(
        self,
        kind: Kind,
        into: type[T],
        *,
        since: str,
        namespace: str = "",
        fields: str = "",
        labels: str = "",
        opened: Callable[[], None] = lambda: None,
    ) -> AsyncGenerator[Event[T], None]:
        """What changes from a version on, until the server ends it: then go on from the last event's version.

        `opened` is called when the server has accepted it: a quiet cluster may send nothing for a minute. Raises Gone
        when the version is too old. Close it (`contextlib.aclosing`) when leaving early.
        """
        # By chance, so that the nodes of a cluster do not come back in step.
        lasts_s = self.rng.randint(WATCH_S, 2 * WATCH_S)
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": since,
            "timeoutSeconds": str(lasts_s),
            **_selectors(fields, labels),
        }
        request = Request("watch", kind, namespace=namespace, query=query)
        async with self._response(request) as connection:
            opened()
            lines = LineSplitter()
            pieces = connection.body()
            while True:
                piece = await self._within(lasts_s + WATCH_OVERDUE_S, request, anext(pieces, None))
                if piece is None:
                    if lines.pending:
                        raise MalformedResponse("a watch ended in the middle of an event")
                    return
                for line in lines.feed(piece):
                    yield _event(request, line, into)

    # --- One call, with its tries ---------------------------------------------------------------------------------

    async def _call(self, request: Request, patience_s: float | None = None) -> bytes:
        end_s = self.clock.monotonic() + (self._patience_s if patience_s is None else patience_s)
        attempt = 0
        while True:
            try:
                return await self._once(request)
            except ClusterError as error:
                # What may have been carried out must not be carried out twice: a patch and a delete say what shall
                # be, a create does not.
                again = error.temporary and (request.verb != "create" or error.retry_after_s > 0)
                if isinstance(error, Unauthorized) and attempt == 0:
                    self.access.forget()
                    again = True
                pause_s = wait_s(attempt, self.rng, asked_s=error.retry_after_s)
                if not again or self.clock.monotonic() + pause_s > end_s:
                    raise
            attempt += 1
            await self.clock.sleep(pause_s)

    async def _once(self, request: Request) -> bytes:
        async def whole() -> bytes:
            async with self._response(request) as connection:
                return await _read_all(connection)

        return await self._within(self._attempt_s, request, whole())

    @asynccontextmanager
    async def _response(self, request: Request) -> AsyncIterator[Connection]:
        """A connection with the response's body still to read; it is kept if that is done. An error status raises."""
        encoded = await self._encode(request)
        try:
            head, connection = await self._within(self._attempt_s, request, self._send(encoded))
        except ClusterError:
            self.answers = False
            raise
        self.answers = True
        try:
            if not 200 <= head.status < 300:
                body = await self._within(self._attempt_s, request, _read_all(connection))
                retry_after_s = parse_retry_after(head.headers.get("retry-after", ""))
                error = status_error(request, head.status, _message(body), retry_after_s)
                self.answers = not error.temporary  # a refusal is an answer, too
                raise error
            yield connection
        finally:
            self._keep(connection)

    async def _encode(self, request: Request) -> bytes:
        server = self.access.server
        headers = {"Host": server.authority, "Accept": "application/json", "User-Agent": f"fairlead/{__version__}"}
        if token := (await self.access.credential()).token:
            headers["Authorization"] = f"Bearer {token}"
        if request.body:
            headers["Content-Type"] = request.content_type
        try:
            return encode(request.method, server.prefix + request.target, headers, request.body)
        except ValueError as error:  # never the value: it may be the token
            raise NoAccess(f"{self.access.source or server}: {error}") from None

    async def _send(self, request: bytes) -> tuple[ResponseHead, Connection]:
        while True:
            connection = self._kept() or await connect(self.access)
            try:
                return await connection.send(request), connection
            except StaleConnection:
                connection.close()
            except BaseException:
                connection.close()
                raise

    async def _within(self, timeout_s: float, request: Request, work: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(timeout_s):
                return await work
        except TimeoutError:
            self.drop_idle()  # they lead to the same server
            raise TooSlow(f"{request} at {self.access.server}", timeout_s) from None

    def _kept(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if self.clock.monotonic() - connection.idle_since_s < IDLE_MAX_S:
                return connection
            connection.close()
        return None

    def _keep(self, connection: Connection) -> None:
        if connection.reusable and len(self._idle) < self._idle_kept:
            connection.idle_since_s = self.clock.monotonic()
            self._idle.append(connection)
        else:
            connection.close()


async def _read_all(connection: Connection) -> bytes:
    pieces, size = [], 0
    async for piece in connection.body():
        size += len(piece)
        if size > BODY_MAX_BYTES:
            raise TooLarge(f"an answer is larger than {BODY_MAX_BYTES} bytes")
        pieces.append(piece)
    return b"".join(pieces)


def _selectors(fields: str, labels: str) -> dict[str, str]:
    return {key: text for key, text in (("fieldSelector", fields), ("labelSelector", labels)) if text}


def _decode(body: bytes | msgspec.Raw, into: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=into)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedResponse(f"expected {into.__name__.strip('_')}: {error}") from None


def _event(request: Request, line: bytes, into: type[T]) -> Event[T]:
    found = _decode(line, _Line)
    if found.type == "ERROR":
        status = _decode(found.object, _Status)
        raise status_error(request, status.code or 500, status.message)
    version = _decode(found.object, AnyObject).metadata.resource_version
    thing = None if found.type == "BOOKMARK" else _decode(found.object, into)
    return Event(found.type, thing, version)


def _message(body: bytes) -> str:
    try:
        return msgspec.json.decode(body, type=_Status).message
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return body[:300].decode(errors="replace")
