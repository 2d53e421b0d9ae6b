"""Filters, binds, late watches, lost answers, crashes and restarts in any order: no device is ever given twice.

The API server is a dictionary here, and says when a watch delivers. What it holds is the judge, not what we believe.
"""

from __future__ import annotations

import asyncio
import copy
from collections import defaultdict, deque
from contextlib import suppress
from typing import Any

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.clock import FakeClock
from tests.unit.scheduler.rig import INDEX, MEMORY, as_node, as_pod, node, pod

from fairlead.cluster.errors import Conflict, NotFound, Unreachable
from fairlead.cluster.kinds import PODS, Request
from fairlead.policy.pods.contract import GPUSHARE
from fairlead.scheduler.extender import Extender, ExtenderTerms
from fairlead.scheduler.protocol import BindingArgs, ExtenderArgs
from fairlead.scheduler.view import TENTATIVE_S, WAITING_S, Terms, View

NODES = {"n1": (2, 8), "n2": (1, 8)}  # devices, and units of each
BINDING = Request("create", PODS, subresource="binding")
# Of the next write: done, lost (done, not answered), dropped (neither), late (not answered, done later), refused.
Fate = str


class Clock(FakeClock):
    async def sleep(self, seconds: float) -> None:
        """No pause: what happens in one is a step of its own."""


class Server:
    """What the extender calls of a client, and what happens to the pods."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.pods: dict[str, dict[str, Any]] = {}
        self.events: deque[tuple[str, dict[str, Any]]] = deque()
        self.fate: Fate = "done"
        self._late: list[Any] = []  # writes that are not done yet
        self._version = 0

    def put(self, thing: dict[str, Any]) -> None:
        self._version += 1
        thing["metadata"]["resourceVersion"] = str(self._version)
        self.pods[thing["metadata"]["name"]] = thing
        self.events.append(("put", copy.deepcopy(thing)))

    def delete(self, name: str) -> None:
        if name in self.pods:
            self.events.append(("drop", self.pods.pop(name)))

    async def create(self, _kind: Any, body: Any, _into: Any, *, name: str, **_more: Any) -> None:
        fate, self.fate = self.fate, "done"
        if fate == "dropped":
            raise Unreachable("the server", "it is away")
        if fate == "refused":
            raise Conflict(BINDING, 409, "something is odd")
        if fate == "late":
            self._late.append((name, body))
            raise Unreachable("the server", "it is away")
        self._bind(name, body)
        if fate == "lost":
            raise Unreachable("the server", "it is away")

    def catch_up(self) -> None:
        late, self._late = self._late, []
        for name, body in late:
            with suppress(Conflict, NotFound):
                self._bind(name, body)

    def _bind(self, name: str, body: Any) -> None:
        found = self.pods.get(name)
        if found is None:
            raise NotFound(BINDING, 404, "not found")
        if found["spec"].get("nodeName") or found["metadata"]["uid"] != body["metadata"]["uid"]:
            raise Conflict(BINDING, 409, "already assigned")
        bound = copy.deepcopy(found)
        bound["spec"]["nodeName"] = body["target"]["name"]
        bound["metadata"]["annotations"] = body["metadata"]["annotations"]
        self.put(bound)

    async def get(self, _kind: Any, name: str, into: Any, **_more: Any) -> Any:
        if name not in self.pods:
            raise NotFound(BINDING, 404, "not found")
        return msgspec.convert(self.pods[name], into)

    async def version(self, _kind: Any) -> str:
        return "0"

    def overcommitted(self) -> list[str]:
        used: dict[tuple[str, str], int] = defaultdict(int)
        for one in self.pods.values():
            if where := one["spec"].get("nodeName"):
                index = one["metadata"]["annotations"][INDEX]
                used[where, index] += int(one["spec"]["containers"][0]["resources"]["limits"][MEMORY])
        return [f"{where} has {units}" for where, units in used.items() if units > NODES[where[0]][1]]


class Play:
    def __init__(self) -> None:
        self.server = Server()
        self._made = 0
        self.restart()

    def restart(self) -> None:
        """Another process: it knows what the server has, and nothing else. Its start takes longer than any write."""
        self.server.catch_up()
        self.server.events.clear()
        view = View([Terms(GPUSHARE)])
        client: Any = self.server
        self.extender = Extender(client, view, ExtenderTerms(wakes=False, maps=False), lambda *_words, **_keys: None)
        for name, (devices, units) in NODES.items():
            view.put_node(as_node(node(name, devices * units, devices)))
        for thing in self.server.pods.values():
            view.put_pod(as_pod(thing))
        self.extender.feed.nodes.complete = self.extender.feed.pods.complete = True

    def deliver(self, most: int) -> None:
        """Events come in order, and late."""
        for _ in range(min(most, len(self.server.events))):
            kind, thing = self.server.events.popleft()
            (self.extender.feed.pods.put if kind == "put" else self.extender.feed.pods.drop)(as_pod(thing))

    async def step(self, kind: str, number: int, fate: Fate) -> None:
        names = sorted(self.server.pods)
        name = names[number % len(names)] if names else ""
        match kind:
            case "create":
                self._made += 1
                self.server.put(pod(f"p{self._made:03}", 1 + number % 8))
            case "delete":
                self.server.delete(name)
            case "catch-up":
                self.server.catch_up()
            case "deliver":
                self.deliver(1 + number % 4)
            case "restart":
                self.restart()
            case "time":
                await self.server.clock.advance(TENTATIVE_S)
                self.extender.view.expire(self.server.clock.monotonic())
            case "filter" if name:
                await self.extender.filter(ExtenderArgs(as_pod(self.server.pods[name]), node_names=list(NODES)))
            case "bind" if name:
                self.server.fate = fate
                uid = self.server.pods[name]["metadata"]["uid"]
                await self.extender.bind(BindingArgs(name, "default", uid, list(NODES)[number % len(NODES)]))
                self.server.fate = "done"

    async def fits(self, thing: dict[str, Any]) -> bool:
        answer = await self.extender.filter(ExtenderArgs(as_pod(thing), node_names=list(NODES)))
        return bool(answer.node_names)

    def could_fit(self, thing: dict[str, Any]) -> bool:
        """By what the server has, said as plainly as possible."""
        asked = int(thing["spec"]["containers"][0]["resources"]["limits"][MEMORY])
        used: dict[tuple[str, str], int] = defaultdict(int)
        for one in self.server.pods.values():
            if where := one["spec"].get("nodeName"):
                units = int(one["spec"]["containers"][0]["resources"]["limits"][MEMORY])
                used[where, one["metadata"]["annotations"][INDEX]] += units
        return any(
            units - used[name, str(index)] >= asked
            for name, (devices, units) in NODES.items()
            for index in range(devices)
        )


steps = st.tuples(
    st.sampled_from(["create", "create", "filter", "bind", "bind", "deliver", "catch-up", "delete", "restart", "time"]),
    st.integers(0, 40),
    st.sampled_from(["done", "done", "lost", "dropped", "late", "refused"]),
)


@settings(max_examples=300, deadline=None)
@example([("create", 0, "done"), ("bind", 1, "done"), ("create", 7, "done"), ("bind", 0, "done"), ("bind", 1, "done")])
@example(
    [("create", 0, "done"), ("create", 7, "done"), ("bind", 0, "late"), ("create", 0, "done"), ("bind", 4, "done")]
)
@given(st.lists(steps, max_size=40))
def test_no_device_is_given_twice_and_no_pod_that_fits_is_refused_for_good(story: list[tuple[str, int, Fate]]):
    async def play() -> None:
        stage = Play()
        for kind, number, fate in story:
            await stage.step(kind, number, fate)
            assert stage.server.overcommitted() == []
        stage.server.catch_up()
        assert stage.server.overcommitted() == []
        # In the end all news has come and nothing is under way: what is believed is what is there.
        stage.deliver(len(stage.server.events))
        stage.extender.view.expire(stage.server.clock.monotonic() + WAITING_S)
        for thing in list(stage.server.pods.values()):
            if not thing["spec"].get("nodeName"):
                assert await stage.fits(thing) == stage.could_fit(thing)
                stage.extender.view.expire(stage.server.clock.monotonic() + WAITING_S)
        for name in list(stage.server.pods):
            stage.server.delete(name)
        stage.deliver(len(stage.server.events))
        rooms = stage.extender.view.packings[0].nodes
        assert {name: set(room.used) for name, room in rooms.items()} == {name: {0} for name in NODES}

    asyncio.run(play())
