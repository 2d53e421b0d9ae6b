"""What the connections of a server share: routes, limits, counters, and who can be closed to make room for others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from fairlead.model.ports import Clock
from fairlead.scheduler.http.budget import Budget
from fairlead.scheduler.http.limits import Counters, Limits
from fairlead.scheduler.http.messages import Routes


class Member(Protocol):
    """A connection, as the service sees it."""

    def hang_up(self) -> None:
        """Ends it, after the client has read what was written."""
        ...

    def abort(self) -> None: ...


class Service:
    def __init__(
        self, routes: Routes, clock: Clock, limits: Limits, on_error: Callable[[str, BaseException], None]
    ) -> None:
        self.routes = routes
        self.clock = clock
        self.limits = limits
        self.on_error = on_error
        self.counters = Counters()
        self.budget = Budget(limits, self.counters)
        self.closing = False
        self.ended = asyncio.Event()  # set when the last connection or handler has gone
        self.connections: set[Member] = set()
        self.handlers: set[asyncio.Task[None]] = set()
        # Who waits for what, the longest first. They may be closed when there are too many.
        self.lingering: dict[Member, None] = {}  # refused, and may not have read it
        self.idle: dict[Member, None] = {}  # nothing of a request has come
        self.beginning: dict[Member, None] = {}  # a part of a head has come

    def join(self, member: Member) -> bool:
        """False: there are too many, and all are busy. It is one of them all the same until it leaves."""
        while len(self.connections) >= self.limits.connections and self._evict():
            pass
        room = len(self.connections) < self.limits.connections
        self.connections.add(member)
        self.counters.connections = len(self.connections)
        self.counters.accepted += 1
        self.counters.refused += not room
        return room

    def leave(self, member: Member) -> None:
        self.connections.discard(member)
        self.counters.connections = len(self.connections)
        self.forget(member)
        self.note_end()

    def forget(self, member: Member) -> None:
        """It waits no longer."""
        self.lingering.pop(member, None)
        self.idle.pop(member, None)
        self.beginning.pop(member, None)

    def note_end(self) -> None:
        if not self.connections and not self.handlers:
            self.ended.set()

    def _evict(self) -> bool:
        for waiting in (self.lingering, self.idle, self.beginning):
            if waiting:
                oldest = next(iter(waiting))
                self.leave(oldest)
                oldest.abort()
                self.counters.evicted += 1
                return True
        return False
