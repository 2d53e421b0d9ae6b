"""Follows a set of objects for ever: one list, then watches that go on where the last one ended.

Survives a server that is away, restarts or has forgotten the version; each time with a back-off. A watch may fall
silent without an end: a caller that must know asks for a `check`, which is a fresh read. It also begins the watch anew
if that has missed something. Keeps no objects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Generic, Protocol, TypeVar

from fairlead.cluster.client import Client, Event
from fairlead.cluster.errors import ClusterError, Gone, Invalid, ServerFailed, TooSlow
from fairlead.cluster.kinds import Kind
from fairlead.kit.backoff import wait_s
from fairlead.kit.singleflight import SingleFlight

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

# A watch that ended sooner, with nothing said, was no watch: the next one waits.
SHORTEST_S = 1.0
# The longest that a check may take: the kubelet waits for it.
CHECK_S = 2.0
# A server that has not answered for so long is reported as away, although the answer may still come.
SLOW_S = 2.0
# A status that finds the watch silent for so long looks whether the server answers, for so long: 2 s in all.
PING_AFTER_S, PING_S = 0.5, 1.5
# A read may be ahead of a watch. A watch that brings nothing for so long after a read with news has stalled.
LATE_S = 3.0
# What a server says when its database was put back to an older state.
VERSION_TOO_LARGE = "Too large resource version"


class Store(Protocol[T_contra]):
    """Keeps what a reflector reads. Called on the loop, in order."""

    def replace(self, items: tuple[T_contra, ...], version: str, began_s: float) -> bool:
        """All there was at this version, by a read that began then. Whether that was news.

        What is not among them is gone, unless it is newer than the version. An empty version is newer than all.
        """
        ...

    def put(self, item: T_contra) -> None: ...

    def drop(self, item: T_contra) -> None: ...

    def heard(self) -> None:
        """The server answered: the store holds all there was until now."""
        ...

    def lost(self, error: ClusterError) -> None:
        """The server cannot be reached now. What the store holds stays the best that is known."""
        ...


class Reflector(Generic[T]):
    def __init__(
        self,
        client: Client,
        kind: Kind,
        into: type[T],
        store: Store[T],
        *,
        namespace: str = "",
        fields: str = "",
        shrink: Callable[[T], T] | None = None,
        on_stall: Callable[[float], None] = lambda _silent_s: None,
    ) -> None:
        """`shrink`: see `Client.list`. `on_stall`: the watch was silent for so long, and there were changes."""
        self._client = client
        self._kind = kind
        self._into = into
        self._store = store
        self._namespace = namespace
        self._fields = fields
        self._shrink = shrink
        self._on_stall = on_stall
        self._version = ""  # empty: list again
        self._failures = 0
        self._heard_s: float | None = None  # when the open watch last spoke; None: no watch is open
        self._task: asyncio.Task[None] | None = None
        self._again = False  # whether the task was cancelled to begin anew
        self._checks = SingleFlight(self._check)
        self._pings = SingleFlight(self._ping)
        self._proving: Callable[[], object] | None = None  # ends the time in which the watch must deliver an event
        self._stalled = False

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                self._again = False
                self._task = asyncio.create_task(self._follow())
                await asyncio.wait({self._task})
                if not (self._again and self._task.cancelled()):
                    self._task.result()
        finally:
            self._checks.cancel()
            self._pings.cancel()
            task, self._task = self._task, None
            if task is not None and not task.done():
                task.cancel()
                await asyncio.wait({task})

    def forget(self) -> None:
        """Begins with a list, as at first, when it is run again."""
        self._version = ""

    async def check(self) -> None:
        """Reads everything from the server, once, within `CHECK_S`. Nothing while it does not run.

        Callers share reads. Raises ClusterError, after the store has heard of it.
        """
        if self._task is not None:
            await self._checks.run()

    async def ping(self) -> None:
        """Finds out whether the server behind a silent watch answers, within `PING_S`. If not, the store hears of it.

        Cheap, for a status: it says nothing of what the watch has missed.
        """
        if self._task is not None and self._silent_s > PING_AFTER_S:
            await self._pings.run()

    async def _ping(self) -> None:
        try:
            async with asyncio.timeout(PING_S):
                await self._client.ping(self._kind)
        except TimeoutError:
            self._client.drop_idle()
            self._store.lost(self._too_slow("list", PING_S))
        except ClusterError as error:
            self._store.lost(error)
        else:
            return
        if self._heard_s is not None:
            self._begin_anew()

    @property
    def _silent_s(self) -> float:
        return self._client.clock.monotonic() - self._heard_s if self._heard_s is not None else 0.0

    async def _check(self) -> None:
        # Neither a connection that may be half-open, nor an attempt that may hang, nor a back-off is waited for.
        self._client.drop_idle()
        try:
            async with asyncio.timeout(CHECK_S):
                news = await self._read(merge=True)
        except TimeoutError:
            error = self._too_slow("list", CHECK_S)
            self._store.lost(error)
            raise error from None
        except ClusterError as error:
            self._store.lost(error)
            raise
        if self._heard_s is None:
            self._begin_anew()  # no watch is open: it waits for its next try, or for an answer that may never come
        elif news and self._proving is None:
            # An open watch may only be late. It goes on if it delivers an event now.
            self._proving = self._client.clock.alarm(LATE_S, self._stall)

    def _stall(self) -> None:
        if self._heard_s is not None:
            self._stalled = True
            self._on_stall(self._silent_s)
            self._begin_anew()

    def _begin_anew(self) -> None:
        self._failures = 0
        if self._task is not None:
            self._again = self._task.cancel()

    async def _follow(self) -> None:
        while True:
            asked_s = 0.0
            try:
                await self._go_on()
            except ClusterError as error:
                if _is_stale(error):
                    self._version = ""
                else:
                    self._store.lost(error)
                asked_s = error.retry_after_s
                self._failures += 1
            if self._failures:
                await self._client.clock.sleep(wait_s(self._failures - 1, self._client.rng, asked_s=asked_s))

    async def _go_on(self) -> None:
        if not self._version:
            slow = self._warn("list")
            try:
                await self._read()
            finally:
                slow()
        clock, began_s, events = self._client.clock, self._client.clock.monotonic(), 0
        slow = self._warn("watch")

        def opened() -> None:
            slow()
            self._heard_s = clock.monotonic()
            self._store.heard()

        watch = self._client.watch(
            self._kind,
            self._into,
            since=self._version,
            namespace=self._namespace,
            fields=self._fields,
            opened=opened,
        )
        try:
            async with aclosing(watch):
                async for event in watch:
                    events += 1
                    self._failures = 0
                    self._take(event)
        finally:
            slow()
            self._heard_s = None
            self._prove()
        if not events and clock.monotonic() - began_s < SHORTEST_S:
            self._failures += 1
        else:
            self._failures = 0

    async def _read(self, *, merge: bool = False) -> bool:
        """One list, in one try: the back-off is ours. `merge`: a watch may be ahead of it. Whether it was news."""
        began_s = self._client.clock.monotonic()
        listing = await self._client.list(
            self._kind,
            self._into,
            namespace=self._namespace,
            fields=self._fields,
            patience_s=0.0,
            shrink=self._shrink,
        )
        news = self._store.replace(listing.items, listing.version if merge else "", began_s)
        self._store.heard()
        self._version = listing.version
        return news

    def _take(self, event: Event[T]) -> None:
        if event.object is not None:
            self._prove()
            if self._stalled:
                self._stalled = False
                self._on_stall(0.0)
            (self._store.drop if event.kind == "DELETED" else self._store.put)(event.object)
        self._version = event.version or self._version
        self._heard_s = self._client.clock.monotonic()
        self._store.heard()

    def _prove(self) -> None:
        """The watch has shown that it is alive, or is over."""
        if self._proving is not None:
            self._proving()
            self._proving = None

    def _warn(self, verb: str) -> Callable[[], object]:
        """Reports to the store when there is no answer for a while; returns the way to stop that."""
        return self._client.clock.alarm(SLOW_S, lambda: self._store.lost(self._too_slow(verb, SLOW_S)))

    def _too_slow(self, verb: str, timeout_s: float) -> TooSlow:
        return TooSlow(f"{verb} {self._kind.plural} at {self._client.access.server}", timeout_s)


def is_older(version: str, than: str) -> bool:
    """Versions are numbers, however long; others cannot be compared. An answer to a patch may overtake events."""
    if not all(one.isascii() and one.isdigit() for one in (version, than)):
        return False
    left, right = version.lstrip("0"), than.lstrip("0")
    return (len(left), left) < (len(right), right)


def _is_stale(error: ClusterError) -> bool:
    """Whether the version is at fault, and a new list helps."""
    return isinstance(error, Gone) or (isinstance(error, Invalid | ServerFailed) and VERSION_TOO_LARGE in error.message)
