"""A condition of the node that tells of faults since its boot."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.apiserver.server import ApiServer, Fault
from tests.clock import FakeClock
from tests.unit.cluster.watching import running
from tests.unit.fronts.nodestatus.node import READY, NodeStage

from fairlead.cluster.client import Client
from fairlead.fronts.nodestatus.condition import (
    CODES_MAX,
    HEARTBEAT_S,
    ConditionTerms,
    NodeCondition,
    read_reason,
    write_reason,
)

TERMS = ConditionTerms("XidCriticalError", ("xid-48", "xid-79", "xid-6?"))
OLD = {"type": "XidCriticalError", "status": "True", "reason": '{"79":true}', "message": "boot-1"}


@pytest.fixture
def still(client: Client) -> FakeClock:
    """Time that a test turns: heartbeats come when it says so."""
    client.clock = FakeClock()
    return client.clock


@pytest.fixture
def stage(server: ApiServer, client: Client, still: FakeClock) -> NodeStage:
    return NodeStage(server, client)


def condition_of(stage: NodeStage) -> NodeCondition:
    return NodeCondition(stage.cluster, TERMS, stage.record, stage.note)


async def test_a_fault_of_these_codes_sets_it_with_the_boot(stage: NodeStage):
    condition = condition_of(stage)
    async with running(condition.run()):
        condition.report("xid-31")
        condition.report("xid-79")
        await stage.until(lambda: "XidCriticalError" in stage.conditions)
        condition.report("xid-63")
        await stage.until(lambda: stage.conditions["XidCriticalError"]["reason"] == '{"63":true,"79":true}')
        told = ("condition-set", {"node": "n1", "condition": "XidCriticalError", "codes": ["63", "79"]})
        await stage.until(lambda: told in stage.facts)
    found = stage.conditions["XidCriticalError"]
    assert (found["status"], found["message"]) == ("True", "boot-2")
    assert found["lastTransitionTime"] == found["lastHeartbeatTime"] == "2023-11-14T22:13:20Z"


async def test_only_this_condition_is_written(stage: NodeStage):
    condition = condition_of(stage)
    async with running(condition.run()):
        condition.report("xid-48")
        await stage.until(lambda: "XidCriticalError" in stage.conditions)
    assert stage.conditions["Ready"] == READY
    (patch,) = stage.sent("PATCH")
    assert (patch.path, patch.headers["content-type"]) == (
        "/api/v1/nodes/n1/status",
        "application/strategic-merge-patch+json",
    )
    assert [one["type"] for one in patch.json()["status"]["conditions"]] == ["XidCriticalError"]
    assert stage.sent("PUT") == []


async def test_one_of_an_earlier_boot_is_removed(stage: NodeStage):
    stage.put(READY, OLD)
    async with running(condition_of(stage).run()):
        removed = ("condition-removed", {"node": "n1", "condition": "XidCriticalError", "boot": "boot-1"})
        await stage.until(lambda: removed in stage.facts)
        assert list(stage.conditions) == ["Ready"]


async def test_one_of_this_boot_stays_and_is_added_to(stage: NodeStage):
    stage.put({**OLD, "message": "boot-2", "lastTransitionTime": "2020-01-01T00:00:00Z"})
    condition = condition_of(stage)
    async with running(condition.run()):
        condition.report("xid-64")
        await stage.until(lambda: stage.conditions["XidCriticalError"]["reason"] == '{"64":true,"79":true}')
    assert stage.conditions["XidCriticalError"]["lastTransitionTime"] == "2020-01-01T00:00:00Z"


async def test_a_heartbeat_comes_each_minute_while_it_stands(stage: NodeStage, still: FakeClock):
    stage.put(READY)
    condition = condition_of(stage)
    async with running(condition.run()):
        await stage.until(lambda: len(stage.sent("GET")) == 1)
        await still.advance(10 * HEARTBEAT_S)
        assert len(stage.sent("GET")) == 1  # nothing stands, and nothing is asked
        condition.report("xid-79")
        await stage.until(lambda: "XidCriticalError" in stage.conditions)
        first = stage.conditions["XidCriticalError"]
        await still.advance(HEARTBEAT_S)
        await stage.until(lambda: stage.conditions["XidCriticalError"] != first)
    later = stage.conditions["XidCriticalError"]
    assert later["lastHeartbeatTime"] > first["lastHeartbeatTime"]
    assert later["lastTransitionTime"] == first["lastTransitionTime"]


async def test_a_node_that_still_shows_its_earlier_boot_loses_it_when_the_kubelet_has_reported(
    stage: NodeStage, still: FakeClock
):
    stage.put(OLD, boot="boot-1")
    async with running(condition_of(stage).run()):
        await stage.until(lambda: len(stage.sent("PATCH")) == 1)
        stage.put(OLD, boot="boot-2")
        await still.until_asleep(1)
        await still.advance(HEARTBEAT_S)
        await stage.until(lambda: stage.conditions == {})


async def test_a_server_that_refuses_is_a_problem_and_is_tried_again(stage: NodeStage, still: FakeClock):
    stage.server.faults += [Fault(code=403, message="no", methods="PATCH")]
    condition = condition_of(stage)
    async with running(condition.run()):
        condition.report("xid-79")
        await stage.until(lambda: "nodes/status" in stage.problems.get("condition XidCriticalError", ""))
        await still.advance(HEARTBEAT_S)
        await stage.until(lambda: "XidCriticalError" in stage.conditions)
        await stage.until(lambda: stage.problems["condition XidCriticalError"] == "")


def test_a_driver_that_invents_codes_fills_no_condition(stage: NodeStage):
    condition = NodeCondition(stage.cluster, ConditionTerms("T", ("xid-*",)), stage.record, stage.note)
    for number in range(10 * CODES_MAX):
        condition.report(f"xid-{number}")
    assert len(condition._seen) == CODES_MAX


@given(st.sets(st.text(st.characters(codec="ascii", categories=("L", "N")), min_size=1), max_size=CODES_MAX))
def test_a_reason_that_was_written_is_read(codes: set[str]):
    assert read_reason(write_reason(codes)) == codes


@given(st.text() | st.recursive(st.none() | st.booleans() | st.text(), lambda inner: st.lists(inner)).map(json.dumps))
def test_any_text_may_stand_as_a_reason(text: str):
    assert all(isinstance(code, str) for code in read_reason(text))
