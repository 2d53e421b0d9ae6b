"""Guards: the control daemons of a node, kept well; and the devices that they serve, told when they are not.

Two users: the backend, which offers nothing before they are well and withdraws what they serve when they fall; and the
command that runs them on behalf of a plugin in another container.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from msgspec import Struct

from fairlead.backends.nvidia.errors import MpsNotYet
from fairlead.backends.nvidia.mps.command import Tools
from fairlead.backends.nvidia.mps.daemon import ControlDaemon
from fairlead.backends.nvidia.mps.plan import Plan
from fairlead.model.errors import BackendError
from fairlead.model.health import Cause, CauseKind
from fairlead.model.names import DeviceId
from fairlead.model.ports import Clock, Sink

CODE = "mps-down"
PACE_S = 10.0  # between two questions
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0  # between two tries to start one again
Make = Callable[[Plan], ControlDaemon]


class _Post(Struct):
    """One daemon and what is known of it."""

    daemon: ControlDaemon
    started: bool = False  # at least once, so that what it serves was offered
    down: str = ""  # why it is down now
    pause_s: float = 0.0
    again_s: float = 0.0  # not started again before


class Guards:
    def __init__(
        self,
        clock: Clock,
        *,
        managed: bool = False,
        keep: bool = False,
        tools: Tools | None = None,
        make: Make | None = None,
    ) -> None:
        """`managed`: we start and stop them. `keep`: not stopped at the end, for those that use them."""
        self._clock = clock
        self._managed = managed
        self._keep = keep
        self._make = make or (lambda plan: ControlDaemon(plan, tools, clock))
        self._turn = asyncio.Lock()  # a scan and the watch may want to start the same one
        self._posts: dict[str, _Post] = {}  # by resource

    async def ready(self, plans: Iterable[Plan]) -> None:
        """All daemons of these plans, well. Those of others are stopped. BackendError for one that is not well yet.

        One that was well before and has fallen since does not count: its devices are known, and have their fault.
        """
        wanted = {plan.resource: plan for plan in plans}
        async with self._turn:
            for resource in [known for known in self._posts if known not in wanted]:
                gone = self._posts.pop(resource)
                if self._managed:
                    await gone.daemon.stop()
            held = {gpu for plan in wanted.values() for gpu in plan.gpus}
            for plan in wanted.values():
                await self._ready(plan, held)

    async def _ready(self, plan: Plan, held: set[str]) -> None:
        post = self._posts.get(plan.resource)
        freed: set[str] = set()
        if post is None:
            post = self._posts[plan.resource] = _Post(self._make(plan))
        elif post.daemon.plan != plan:
            # The same daemon with other limits or GPUs: it is told the new ones, not ended.
            freed = set(post.daemon.plan.gpus) - held
            post.daemon, post.started = self._make(plan), False
        if post.started:
            return
        try:
            await (post.daemon.start() if self._managed else post.daemon.check())
        except BackendError as error:
            kind = BackendError if self._managed else MpsNotYet
            raise kind(f"the MPS control daemon for {plan.resource} is not well: {error}") from error
        post.started = True
        if self._managed:
            await post.daemon.release(sorted(freed))

    async def watch(self, sink: Sink) -> None:
        """Asks each now and then, until cancelled."""
        while True:
            await self._clock.sleep(PACE_S)
            await self.round(sink)

    async def round(self, sink: Sink) -> None:
        async with self._turn:
            for post in self._posts.values():
                await self._look_at(post, sink)

    async def _look_at(self, post: _Post, sink: Sink) -> None:
        if not post.started:
            if await post.daemon.well():
                sink.rescan()  # what it serves can be offered now
            return
        if await post.daemon.well():
            self._back(post, sink)
            return
        try:
            await post.daemon.check()  # twice: one slow answer is no fall
        except BackendError as error:
            await self._fallen(post, str(error), sink)
        else:
            self._back(post, sink)

    async def _fallen(self, post: _Post, why: str, sink: Sink) -> None:
        now_s = self._clock.monotonic()
        if not post.down:
            post.pause_s, post.again_s = FIRST_PAUSE_S, now_s
        post.down = why
        # At every look: a fault that is not told again may be forgiven after a while.
        cause = Cause(CODE, CauseKind.NEEDS_RESET, f"the MPS control daemon for {post.daemon.plan.resource}: {why}")
        for gpu in post.daemon.plan.gpus:
            sink.fault(DeviceId(gpu), cause)
        if not self._managed or now_s < post.again_s:
            return
        post.again_s = now_s + post.pause_s
        post.pause_s = min(2 * post.pause_s, LONGEST_PAUSE_S)
        try:
            await post.daemon.start()
        except BackendError as error:
            post.down = str(error)
        else:
            self._back(post, sink)

    def _back(self, post: _Post, sink: Sink) -> None:
        if post.down:
            post.down = ""
            for gpu in post.daemon.plan.gpus:
                sink.clear(DeviceId(gpu), CODE)

    async def close(self) -> tuple[str, ...]:
        """Stops what is ours. The answer is what went wrong."""
        problems: list[str] = []
        async with self._turn:
            posts, self._posts = list(self._posts.values()), {}
            if self._managed and not self._keep:
                for post in posts:
                    problems += await post.daemon.stop()
        return tuple(problems)
