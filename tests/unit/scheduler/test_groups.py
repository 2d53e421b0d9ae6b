"""Groups of kube-scheduler itself: room for all members at once, and none for those that are not bound."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.apiserver.server import ApiServer, api_server
from tests.unit.scheduler.rig import as_pod, node, pod, running, view_of

from fairlead.policy.packing.packing import Origin
from fairlead.scheduler.extender import WOKEN
from fairlead.scheduler.objects import read_pod
from fairlead.scheduler.view import TENTATIVE_S, Asked, View

VOLUME: dict[str, Any] = {"volumes": [{"persistentVolumeClaim": {"claimName": "data"}}]}


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with api_server() as server:
        yield server


def member(name: str, units: int, **spec: Any) -> dict[str, Any]:
    return pod(name, units, spec={"schedulingGroup": {"podGroupName": "gang"}, **spec})


def book(view: View, thing: dict[str, Any], device: int, now_s: float) -> None:
    asked = view.asked(read_pod(as_pod(thing), view.keeps))
    assert isinstance(asked, Asked)
    view.book(asked, "n1", ((device,),), Origin.TENTATIVE, now_s)


def test_room_of_a_member_is_kept_while_others_of_its_group_are_asked_about():
    view = view_of(node("n1"))
    book(view, member("a", 4), 0, 100.0)
    book(view, member("b", 5), 1, 104.0)
    assert not view.expire(100.0 + TENTATIVE_S)
    assert view.packings[0].nodes["n1"].used == (4, 5)
    assert view.expire(104.0 + TENTATIVE_S) == {"default/gang"}
    assert view.packings[0].nodes["n1"].used == (0, 0)


def test_room_of_a_member_with_volumes_is_kept_by_the_nomination():
    view = view_of(node("n1"))
    late = member("a", 4, **VOLUME)
    book(view, late, 0, 100.0)
    late["status"]["nominatedNodeName"] = "n1"
    view.put_pod(as_pod(late))
    view.expire(100.0 + 100 * TENTATIVE_S)
    assert sum(view.packings[0].nodes["n1"].used) == 4
    late["status"]["nominatedNodeName"] = ""
    view.put_pod(as_pod(late))
    assert view.packings[0].nodes["n1"].used == (0, 0)


async def test_a_group_that_is_not_bound_gives_its_room_to_the_next_pod(server: ApiServer):
    first, other, single = member("a", 16), member("b", 16), pod("p", 16)
    async with running(server, node("n1", 16, 1), first, other, single) as rig:
        assert (await rig.filter(first, "n1")).node_names == ["n1"]
        assert (await rig.filter(other, "n1")).node_names == []  # its own group is in the way: the group does not fit
        assert (await rig.filter(single, "n1")).node_names == ["n1"]
        assert (await rig.bind(single, "n1")).error == ""


async def test_a_group_that_is_being_bound_keeps_its_room(server: ApiServer):
    first, other, single = member("a", 16), member("b", 16), pod("p", 16)
    async with running(server, node("n1", 32, 2), first, other, single) as rig:
        for one in (first, other):
            assert (await rig.filter(one, "n1")).node_names == ["n1"]
        for one in (first, other):
            assert (await rig.bind(one, "n1")).error == ""
        assert (await rig.filter(single, "n1")).node_names == []


async def test_a_member_is_not_told_of_room_that_its_own_group_gives_back(server: ApiServer):
    """Its group would be tried again, and refused again, without an end."""
    first, other, single = member("a", 16), member("b", 16), pod("p", 16)
    async with running(server, node("n1", 16, 1), first, other, single) as rig:
        assert (await rig.filter(first, "n1")).node_names == ["n1"]
        for one in (other, single):
            asked = rig.view.waiting(one["metadata"]["uid"])
            assert asked is not None
            rig.view.refuse(asked)
        await rig.until(lambda: WOKEN in (rig.stored("p")["metadata"].get("annotations") or {}))
        assert WOKEN not in (rig.stored("b")["metadata"].get("annotations") or {})
