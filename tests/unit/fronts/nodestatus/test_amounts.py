"""Amounts on a node: published, kept, taken away, and nobody else's touched."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from typing import Any

import pytest
from tests.apiserver.fixtures import Quick
from tests.apiserver.server import ApiServer, Fault
from tests.unit.cluster.watching import running

from fairlead.cluster.client import Client
from fairlead.cluster.nodes import NodeWatch
from fairlead.fronts.nodestatus import amounts as amounts_module
from fairlead.fronts.nodestatus.amounts import SIGNED, Publisher

PATIENCE_S = 20.0
CORE = "example.com/gpu-core"


class Stage:
    """A node on a fake server, a publisher of it, and what the publisher says."""

    def __init__(self, server: ApiServer, client: Client) -> None:
        self.server = server
        self.problem = ""
        self._told = asyncio.Event()
        self.facts: list[tuple[str, dict[str, Any]]] = []
        self.publisher = Publisher(client, NodeWatch(client, "n1"), "fairlead", self._record, self._on_problem)
        self.make()

    def make(self, **capacity: str) -> None:
        amounts = {"cpu": "8", "nvidia.com/gpu": "4", **capacity}
        status = {"capacity": amounts, "allocatable": dict(amounts)}
        self.server.store.put("nodes", {"metadata": {"name": "n1", "annotations": {"a": "b"}}, "status": status})

    @property
    def node(self) -> Any:
        return self.server.store.get("nodes", "n1")

    @property
    def signature(self) -> str | None:
        found: str | None = self.node["metadata"].get("annotations", {}).get(SIGNED + "fairlead")
        return found

    def reset(self, resource: str, amount: str = "0") -> None:
        thing = copy.deepcopy(self.node)
        for place in ("capacity", "allocatable"):
            thing["status"][place][resource] = amount
        self.server.store.put("nodes", thing)

    def patches(self) -> int:
        return sum(request.method == "PATCH" for request in self.server.requests)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                await self.server.store.news()

    async def until_set(self, resource: str, amount: str | None) -> None:
        await self.until(lambda: self.node["status"]["capacity"].get(resource) == amount)
        assert self.node["status"]["allocatable"].get(resource) == amount

    async def until_problem(self, words: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while words not in self.problem or bool(words) != bool(self.problem):
                self._told.clear()
                await self._told.wait()

    def _record(self, kind: str, /, **keys: object) -> None:
        self.facts.append((kind, keys))

    def _on_problem(self, problem: str) -> None:
        self.problem = problem
        self._told.set()


@pytest.fixture
def stage(server: ApiServer, client: Client, quick: Quick) -> Stage:
    return Stage(server, client)


@pytest.fixture(autouse=True)
def no_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock here does not wait, so the look behind the watch would never rest."""

    async def nothing(_self: Publisher) -> None:
        pass

    monkeypatch.setattr(Publisher, "_look", nothing)


async def test_amounts_are_published_in_one_patch_and_signed_for(stage: Stage):
    stage.publisher.want({CORE: 800, "example.com/gpu-count": 8})
    async with running(stage.publisher.run()):
        await stage.until_set(CORE, "800")
    assert stage.node["status"]["capacity"]["example.com/gpu-count"] == "8"
    assert stage.signature == "example.com/gpu-core,example.com/gpu-count"
    assert stage.node["metadata"]["annotations"]["a"] == "b"
    assert stage.patches() == 1
    assert stage.server.requests[-1].path == "/api/v1/nodes/n1/status"


async def test_a_new_amount_replaces_the_old_and_the_same_costs_nothing(stage: Stage):
    stage.publisher.want({CORE: 800})
    async with running(stage.publisher.run()):
        await stage.until_set(CORE, "800")
        stage.publisher.want({CORE: 800})
        stage.publisher.want({CORE: 700})
        await stage.until_set(CORE, "700")
    assert stage.patches() == 2


async def test_what_a_kubelet_reset_is_set_again(stage: Stage):
    stage.publisher.want({CORE: 800})
    async with running(stage.publisher.run()):
        await stage.until_set(CORE, "800")
        await stage.server.watched()
        stage.reset(CORE)
        await stage.until_set(CORE, "800")
    assert ("amounts-undone", {"node": "n1", "found": f"{CORE}=0"}) in stage.facts


async def test_a_node_made_anew_gets_them_again(stage: Stage):
    stage.publisher.want({CORE: 800})
    async with running(stage.publisher.run()):
        await stage.until_set(CORE, "800")
        await stage.server.watched()
        stage.server.store.remove("nodes", "n1")
        await stage.until_problem("there is no node 'n1'")
        stage.server.store.put("nodes", {"metadata": {"name": "n1"}, "status": {}})
        await stage.until(lambda: stage.node["status"].get("capacity") == {CORE: "800"})
        await stage.until_problem("")
    assert stage.signature == CORE


async def test_what_is_wanted_no_more_is_removed_also_after_a_restart(stage: Stage, client: Client):
    stage.publisher.want({CORE: 800, "example.com/x": 1})
    async with running(stage.publisher.run()):
        await stage.until_set(CORE, "800")
    after = Publisher(client, NodeWatch(client, "n1"), "fairlead", stage._record)
    after.want({CORE: 800})
    async with running(after.run()):
        await stage.until_set("example.com/x", None)
        after.want({})
        await stage.until_set(CORE, None)
    assert stage.signature is None
    assert stage.node["status"]["capacity"] == {"cpu": "8", "nvidia.com/gpu": "4"}


async def test_nothing_is_touched_before_it_is_known_what_is_wanted(stage: Stage):
    stage.server.store.get("nodes", "n1")["metadata"]["annotations"][SIGNED + "fairlead"] = CORE
    async with running(stage.publisher.run()):
        await stage.server.watched()
        stage.reset("cpu", "9")
    assert stage.patches() == 0


async def test_stopping_leaves_the_amounts_to_the_scheduler(stage: Stage):
    stage.publisher.want({CORE: 800})
    async with running(stage.publisher.run()):
        await stage.until_set(CORE, "800")
    assert stage.node["status"]["capacity"][CORE] == "800"


async def test_the_resource_of_a_device_plugin_is_refused_and_left_alone(stage: Stage):
    stage.publisher.want({"nvidia.com/gpu": 1, CORE: 800})
    async with running(stage.publisher.run()):
        await stage.until_set(CORE, "800")
        await stage.until_problem("nvidia.com/gpu is not published: it is 4 already")
    assert stage.node["status"]["capacity"]["nvidia.com/gpu"] == "4"


async def test_a_name_may_be_taken_over_when_told_so(stage: Stage):
    stage.make(**{CORE: "5"})
    stage.node["metadata"]["annotations"][SIGNED + "other"] = f"{CORE},example.com/x"
    stage.publisher.want({CORE: 800}, frozenset({CORE}))
    async with running(stage.publisher.run()):
        await stage.until_set(CORE, "800")
    assert stage.node["metadata"]["annotations"][SIGNED + "other"] == "example.com/x"


async def test_a_refused_patch_is_told_with_its_rule_and_tried_again(stage: Stage, quick: Quick):
    stage.server.allowed = {("list", "nodes"), ("watch", "nodes")}
    stage.publisher.want({CORE: 800})
    async with running(stage.publisher.run()):
        await stage.until_problem('resources: ["nodes/status"]\n  verbs: ["patch"]')
        stage.server.allowed.add(("patch", "nodes/status"))
        await stage.until_set(CORE, "800")
        await stage.until_problem("")


async def test_a_patch_that_lost_a_race_is_made_again(stage: Stage):
    stage.publisher.want({CORE: 800})
    async with running(stage.publisher.run()):
        await stage.until_set(CORE, "800")
        await stage.server.watched()
        stage.server.faults = [Fault(code=422, message="testing value failed")]
        stage.publisher.want({CORE: 600})
        await stage.until_set(CORE, "600")


async def test_a_fight_is_slowed_down_and_told(stage: Stage, quick: Quick):
    stage.publisher.want({CORE: 800})
    async with running(stage.publisher.run()):
        await stage.until_set(CORE, "800")
        await stage.server.watched()
        for _ in range(amounts_module.RIVAL_AFTER + 3):
            stage.reset(CORE, "1")
            await stage.until_set(CORE, "800")
        assert "another client keeps changing amounts of node 'n1'" in stage.problem
    fights = [slept for slept in quick.slept_s if slept >= amounts_module.RIVAL_FIRST_S / 2]
    assert len(fights) == 3
    assert fights == sorted(fights)
