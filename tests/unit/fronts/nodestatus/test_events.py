"""Events on the node for faults."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
from tests.apiserver.fixtures import Quick
from tests.apiserver.server import ApiServer, Fault
from tests.unit.cluster.watching import running
from tests.unit.fronts.nodestatus.node import NodeStage

from fairlead.cluster.client import Client
from fairlead.fronts.nodestatus.events import BURST, EVERY_S, TEXTS_MAX, EventTerms, NodeEvents

TERMS = EventTerms("XIDError", "nvidia-gpu-device-plugin", "Caught XID error, XID={number}", ("xid-*",))


@pytest.fixture
def stage(server: ApiServer, client: Client) -> NodeStage:
    return NodeStage(server, client)


def events_of(stage: NodeStage) -> NodeEvents:
    return NodeEvents(stage.cluster, TERMS, stage.record, stage.note)


def counted(stage: NodeStage, count: int) -> bool:
    return [event["count"] for event in stage.events] == [count]


async def test_a_fault_makes_an_event_on_the_node(stage: NodeStage):
    events = events_of(stage)
    async with running(events.run()):
        events.report("gpu-lost")
        events.report("xid-31")
        await stage.until(lambda: bool(stage.events))
    (event,) = stage.events
    assert event["involvedObject"] == {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u1"}
    assert (event["reason"], event["message"], event["type"]) == ("XIDError", "Caught XID error, XID=31", "Warning")
    assert (event["source"], event["count"]) == ({"component": "nvidia-gpu-device-plugin"}, 1)
    assert event["metadata"]["name"].startswith("n1.")


async def test_one_report_of_a_driver_that_reaches_many_devices_is_one_event(stage: NodeStage):
    events = events_of(stage)
    async with running(events.run()):
        for _device in range(7):
            events.report("xid-48")
        await stage.until(lambda: bool(stage.events))
    assert [event["count"] for event in stage.events] == [1]


async def test_what_comes_again_is_counted(stage: NodeStage):
    events = events_of(stage)
    async with running(events.run()):
        for count in (1, 2, 3):
            events.report("xid-79")
            await stage.until(partial(counted, stage, count))
    assert len(stage.sent("POST")) == 1


async def test_an_event_that_the_server_has_forgotten_is_made_anew(stage: NodeStage):
    events = events_of(stage)
    async with running(events.run()):
        events.report("xid-79")
        await stage.until(lambda: bool(stage.events))
        stage.server.store.remove("events", stage.events[0]["metadata"]["name"], "default")
        await asyncio.sleep(0)
        events.report("xid-79")
        await stage.until(lambda: [event["count"] for event in stage.events] == [1])


async def test_a_storm_is_written_slowly_and_loses_no_count(stage: NodeStage, quick: Quick):
    events = events_of(stage)
    async with running(events.run()):
        for number in range(BURST + 5):
            events.report(f"xid-{number}")
        await stage.until(lambda: len(stage.events) == BURST + 5)
    assert sum(quick.slept_s) >= 5 * EVERY_S * 0.99


async def test_a_driver_that_invents_codes_fills_no_memory(stage: NodeStage):
    events = events_of(stage)
    for number in range(10 * TEXTS_MAX):
        events.report(f"xid-{number}")
    assert len(events._waiting) == TEXTS_MAX
    assert sum(kind == "event-dropped" for kind, _ in stage.facts) == 9 * TEXTS_MAX


async def test_without_the_right_it_is_a_problem_that_names_it(stage: NodeStage):
    stage.server.faults += [Fault(code=403, message="no", methods="POST")]
    events = events_of(stage)
    async with running(events.run()):
        events.report("xid-79")
        await stage.until(lambda: bool(stage.events) and stage.problems["events"] == "")
    assert 'resources: ["events"]' in stage.told[0], stage.told
