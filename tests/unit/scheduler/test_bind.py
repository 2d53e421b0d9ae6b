"""Bind: one write, and what becomes of the devices when it fails, or is not answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.apiserver.server import ApiServer, Fault, Request, api_server
from tests.unit.scheduler.rig import OF_POD, node, placed, pod, running

from fairlead.scheduler import extender
from fairlead.scheduler.protocol import BindingArgs


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with api_server() as server:
        yield server


async def test_a_bind_writes_node_and_devices_at_once(server: ApiServer):
    waiting = pod("p", 10)
    async with running(server, node("n1"), placed("a", 3, "n1", 1), waiting) as rig:
        assert (await rig.bind(waiting, "n1")).error == ""
        assert rig.where("p") == ("n1", "1")  # the tightest
        annotations = rig.stored("p")["metadata"]["annotations"]
        assert annotations[OF_POD] == "10"
        assert annotations["ALIYUN_COM_GPU_MEM_DEV"] == "16"
        assert annotations["ALIYUN_COM_GPU_MEM_ASSIGNED"] == "false"
        assert annotations["ALIYUN_COM_GPU_MEM_ASSUME_TIME"].isdigit()
        writes = [request for request in server.requests if request.method != "GET"]
        assert [request.path for request in writes] == ["/api/v1/namespaces/default/pods/p/binding"]


async def test_binds_of_one_moment_do_not_take_the_same_room(server: ApiServer):
    pods = [pod(f"p{number}", 6) for number in range(5)]
    async with running(server, node("n1"), *pods) as rig:
        answers = await asyncio.gather(*(rig.bind(one, "n1") for one in pods))
        placed_on = sorted(rig.where(f"p{number}")[1] for number in range(5))
    assert sorted(answer.error == "" for answer in answers) == [False, True, True, True, True]
    assert placed_on == ["", "0", "0", "1", "1"]
    (refused,) = [answer.error for answer in answers if answer.error]
    assert "Insufficient GPU Memory in one device: 6 asked, at most 4 free" in refused


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (Fault(409, "the object has been modified", methods="POST"), "it is bound to no node"),
        (Fault(403, "no", methods="POST"), "no"),
    ],
)
async def test_a_bind_that_fails_gives_the_room_back(server: ApiServer, fault: Fault, said: str):
    waiting, other = pod("p", 16), pod("q", 16)
    async with running(server, node("n1", 16, 1), waiting, other) as rig:
        server.faults.append(fault)
        assert said in (await rig.bind(waiting, "n1")).error
        assert rig.where("p") == ("", "")
        assert rig.stored("p")["metadata"].get("annotations") in (None, {})
        assert (await rig.bind(other, "n1")).error == ""


async def test_a_bind_that_was_done_although_its_answer_is_lost_is_a_success(server: ApiServer):
    waiting = pod("p", 10)
    async with running(server, node("n1"), waiting) as rig:
        serve = server._serve

        def lose(request: Request) -> tuple[int, Any]:
            answer = serve(request)
            if request.method == "POST":
                raise ConnectionResetError
            return answer

        server._serve = lose  # type: ignore[method-assign]  # the answer is lost, the write is not
        assert (await rig.bind(waiting, "n1")).error == ""
        assert rig.where("p") == ("n1", "0")


async def test_a_bind_without_an_answer_is_sent_again(server: ApiServer):
    waiting = pod("p", 16)
    async with running(server, node("n1", 16, 1), waiting) as rig:
        server.faults += [Fault(500, "broken", methods="POST"), Fault(close=True, methods="POST")]
        assert (await rig.bind(waiting, "n1")).error == ""
        assert rig.where("p") == ("n1", "0")


async def test_a_bind_that_hangs_is_sent_again(server: ApiServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(extender, "BIND_S", 2.0)
    waiting = pod("p", 16)
    async with running(server, node("n1", 16, 1), waiting) as rig:
        server.faults.append(Fault(hang=True, methods="POST"))
        assert (await rig.bind(waiting, "n1")).error == ""
        assert rig.where("p") == ("n1", "0")


async def test_a_bind_that_had_no_answer_in_time_is_done_when_the_server_is_back(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
):
    """It may have been done all the time: the pod keeps its devices, and may not go elsewhere."""
    monkeypatch.setattr(extender, "BIND_S", 0.05)
    first, second = pod("p", 16), pod("q", 16)
    async with running(server, node("n1", 16, 1), node("n2", 16, 1), first, second) as rig:
        server.faults += [Fault(close=True, methods="POST GET", path="pods/p") for _ in range(40)]
        assert (await rig.bind(first, "n1")).error
        assert "at most 0 free" in (await rig.bind(second, "n1")).error
        assert "an earlier bind of the pod is not answered yet" in (await rig.bind(first, "n2")).error
        assert [fact["event"] for fact in rig.facts] == ["bind-unknown"]
        server.faults.clear()
        await rig.until(lambda: rig.where("p") == ("n1", "0"))


async def test_a_pod_that_goes_while_its_bind_has_no_answer_gives_the_room_back(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(extender, "BIND_S", 0.05)
    first, second = pod("p", 16), pod("q", 16)
    async with running(server, node("n1", 16, 1), first, second) as rig:
        server.faults += [Fault(close=True, methods="POST GET", path="pods/p") for _ in range(40)]
        assert (await rig.bind(first, "n1")).error
        server.store.muted = True  # the watch does not say it
        server.store.remove("pods", "p", "default")
        server.faults.clear()
        await rig.until(lambda: rig.view.packings[0].nodes["n1"].used == (0,))


async def test_a_pod_that_was_replaced_or_is_gone_is_not_bound(server: ApiServer):
    waiting, other = pod("p", 4), pod("q", 4)
    async with running(server, node("n1"), waiting, other) as rig:
        server.store.muted = True  # the extender does not hear of it
        rig.add(pod("p", 4, meta={"uid": "uid-new"}))
        server.store.remove("pods", "q", "default")
        assert "another pod has this name now" in (await rig.bind(waiting, "n1")).error
        assert "not found" in (await rig.bind(other, "n1")).error
        assert rig.view.packings[0].nodes["n1"].used == (0, 0)


@pytest.mark.parametrize(
    ("name", "uid", "to", "said"),
    [
        ("nosuch", "uid-nosuch", "n1", "not found"),
        ("p", "uid-of-before", "n1", "is another one than the scheduler means"),
        ("p", "uid-p", "nosuch", "is not for GPU share"),
        ("cpu", "uid-cpu", "n1", "asks for no resource of this extender"),
    ],
)
async def test_what_cannot_be_bound_is_refused_and_nothing_is_written(
    server: ApiServer, name: str, uid: str, to: str, said: str
):
    async with running(server, node("n1"), pod("p", 4), pod("cpu", 1, resource="cpu")) as rig:
        answer = await rig.extender.bind(BindingArgs(name, "default", uid, to))
        assert said in answer.error
        assert [request for request in server.requests if request.method != "GET"] == []


async def test_a_pod_that_is_bound_twice_stays_where_it_is(server: ApiServer):
    waiting = pod("p", 10)
    async with running(server, node("n1"), node("n2"), waiting) as rig:
        assert (await rig.bind(waiting, "n1")).error == ""
        assert "already assigned" in (await rig.bind(waiting, "n2")).error
        assert rig.where("p") == ("n1", "0")
        await rig.until(lambda: rig.view.packings[0].nodes["n2"].used == (0, 0))
        assert rig.view.packings[0].nodes["n1"].used == (10, 0)
