"""Follows a set of objects for ever: one list, then watches that go on where the last one ended.

Survives a server that is away, restarts or has forgotten the version; each time with a back-off. Keeps no objects.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import Generic, Protocol, TypeVar

from fairlead.cluster.backoff import wait_s
from fairlead.cluster.client import Client, Event
from fairlead.cluster.errors import ClusterError, Gone, Invalid, ServerFailed
from fairlead.cluster.kinds import Kind

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

# A watch that ended sooner, with nothing said, was no watch: the next one waits.
SHORTEST_S = 1.0
# What a server says when its database was put back to an older state.
FROM_THE_FUTURE = "Too large resource version"


class Sink(Protocol[T_contra]):
    """Who keeps what a follower hears. Called on the loop, in order."""

    def replace(self, items: tuple[T_contra, ...]) -> None:
        """All there is now. What is not among them is gone."""
        ...

    def put(self, item: T_contra) -> None: ...

    def drop(self, item: T_contra) -> None: ...

    def heard(self) -> None:
        """The server spoke: what was told so far is all there was until now."""
        ...

    def lost(self, error: ClusterError) -> None:
        """No contact for now. What was told stays the best there is."""
        ...


class Follower(Generic[T]):
    def __init__(
        self, client: Client, kind: Kind, into: type[T], sink: Sink[T], *, fields: str = "", namespace: str = ""
    ) -> None:
        self._client = client
        self._kind = kind
        self._into = into
        self._sink = sink
        self._fields = fields
        self._namespace = namespace
        self._version = ""  # empty: list again
        self._failures = 0

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            asked_s = 0.0
            try:
                await self._go_on()
            except ClusterError as error:
                if _is_stale(error):
                    self._version = ""
                else:
                    self._sink.lost(error)
                asked_s = error.retry_after_s
                self._failures += 1
            if self._failures:
                await self._client.clock.sleep(wait_s(self._failures - 1, self._client.rng, asked_s=asked_s))

    def forget(self) -> None:
        """Begins with a list, as at first, when it is run again."""
        self._version = ""

    async def _go_on(self) -> None:
        if not self._version:
            listing = await self._client.list(self._kind, self._into, fields=self._fields, namespace=self._namespace)
            self._sink.replace(listing.items)
            self._sink.heard()
            self._version = listing.version
        began_s, events = self._client.clock.monotonic(), 0
        watch = self._client.watch(
            self._kind,
            self._into,
            since=self._version,
            fields=self._fields,
            namespace=self._namespace,
            opened=self._sink.heard,
        )
        async with aclosing(watch):
            async for event in watch:
                events += 1
                self._failures = 0
                self._take(event)
        if not events and self._client.clock.monotonic() - began_s < SHORTEST_S:
            self._failures += 1
        else:
            self._failures = 0

    def _take(self, event: Event[T]) -> None:
        if event.object is not None and event.kind == "DELETED":
            self._sink.drop(event.object)
        elif event.object is not None:
            self._sink.put(event.object)
        self._version = event.version or self._version
        self._sink.heard()


def is_older(version: str, than: str) -> bool:
    """Versions are numbers, however long; of others nobody can tell. An answer to a patch may overtake events."""
    if not all(one.isascii() and one.isdigit() for one in (version, than)):
        return False
    left, right = version.lstrip("0"), than.lstrip("0")
    return (len(left), left) < (len(right), right)


def _is_stale(error: ClusterError) -> bool:
    """Whether the version is at fault, and a new list helps."""
    return isinstance(error, Gone) or (isinstance(error, Invalid | ServerFailed) and FROM_THE_FUTURE in error.message)
