"""The extender as kube-scheduler and the clients of gpushare's extender ask it: over HTTP, in JSON."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.apiserver.server import ApiServer, api_server
from tests.unit.scheduler.rig import Rig, node, placed, pod, running

from fairlead._version import __version__
from fairlead.kit.clock import SystemClock
from fairlead.scheduler.http.server import Server
from fairlead.scheduler.routes import routes

BASE = "/gpushare-scheduler"


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with api_server() as server:
        yield server


class Caller:
    def __init__(self, port: int) -> None:
        self._port = port

    async def __call__(self, method: str, path: str, body: object = b"") -> tuple[int, Any]:
        """The status, and the answer; text where it is no JSON."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(raw)}\r\n\r\n"
        writer.write(head.encode() + raw)
        async with asyncio.timeout(10):
            answer = await reader.read()
        writer.close()
        first, _, content = answer.partition(b"\r\n\r\n")
        text = content.decode()
        return int(first.split()[1]), json.loads(text) if text[:1] in ("{", "[") else text


@asynccontextmanager
async def serving(server: ApiServer, *things: dict[str, Any]) -> AsyncIterator[tuple[Rig, Caller]]:
    async with running(server, *things) as rig:
        http = Server(routes(rig.extender), SystemClock())
        port = int(http.listen("127.0.0.1:0").rpartition(":")[2])
        try:
            yield rig, Caller(port)
        finally:
            await http.close(1.0)


async def test_a_pod_is_filtered_scored_and_bound(server: ApiServer):
    waiting = pod("p", 10)
    async with serving(server, node("n1"), node("n2"), placed("a", 6, "n2", 1), waiting) as (rig, call):
        args = {"Pod": waiting, "Nodes": None, "NodeNames": ["n1", "n2"]}
        status, found = await call("POST", f"{BASE}/filter", args)
        assert (status, found["NodeNames"], found["Error"]) == (200, ["n2", "n1"], "")
        status, scored = await call("POST", f"{BASE}/prioritize", args)
        assert scored == [{"Host": "n1", "Score": 0}, {"Host": "n2", "Score": 10}]
        to = {"PodName": "p", "PodNamespace": "default", "PodUID": "uid-p", "Node": "n2"}
        assert await call("POST", f"{BASE}/bind", to) == (200, {"Error": ""})
        assert rig.where("p") == ("n2", "1")


async def test_victims_are_told_by_their_uids(server: ApiServer):
    important = pod("p", 16, spec={"priority": 9})
    async with serving(server, node("n1", 16, 1), placed("a", 9, "n1", 0), important) as (_, call):
        args = {
            "Pod": important,
            "NodeNameToVictims": None,
            "NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "uid-a"}], "NumPDBViolations": 2}},
        }
        assert await call("POST", f"{BASE}/preempt", args) == (
            200,
            {"NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "uid-a"}], "NumPDBViolations": 2}}},
        )


async def test_inspect_shows_each_device_with_its_pods(server: ApiServer):
    async with serving(server, node("n1"), placed("a", 9, "n1", 1)) as (_, call):
        status, found = await call("GET", f"{BASE}/inspect")
        assert status == 200
        (one,) = found["nodes"]
        assert (one["name"], one["totalGPU"], one["usedGPU"]) == ("n1", 32, 9)
        assert one["devs"][1] == {
            "id": 1,
            "totalGPU": 16,
            "usedGPU": 9,
            "pods": [{"name": "a", "namespace": "default", "usedGPU": 9}],
        }
        assert (await call("GET", f"{BASE}/inspect/n1"))[1] == found
        status, answer = await call("GET", f"{BASE}/inspect/nosuch")
        assert status == 404
        assert "there is no node 'nosuch'" in answer["error"]


async def test_what_is_only_kept_tentatively_is_not_shown(server: ApiServer):
    waiting = pod("p", 10)
    async with serving(server, node("n1"), waiting) as (rig, call):
        await rig.filter(waiting, "n1")
        assert (await call("GET", f"{BASE}/inspect"))[1]["nodes"][0]["usedGPU"] == 0


@pytest.mark.parametrize("body", [b"{nope", b"", b"[]", b'{"Pod": 1}', b"\xff", b"[" * 100_000])
async def test_a_body_that_cannot_be_read_changes_nothing_and_is_told(server: ApiServer, body: bytes):
    async with serving(server, node("n1")) as (rig, call):
        for verb in ("filter", "bind"):
            status, answer = await call("POST", f"{BASE}/{verb}", body)
            assert status == 200  # the scheduler reads the body of no other answer
            assert "the request cannot be read" in answer["Error"] or "the request lacks one of" in answer["Error"]
        for verb in ("prioritize", "preempt"):
            status, answer = await call("POST", f"{BASE}/{verb}", body)
            assert status == 400
            assert "cannot be read" in answer["error"]
        assert rig.view.packings[0].nodes["n1"].used == (0, 0)


async def test_before_the_lists_are_read_every_question_gets_that_answer(server: ApiServer):
    waiting = pod("p", 1)
    async with serving(server, node("n1"), waiting) as (rig, call):
        rig.extender.feed.nodes.complete = False
        args = {"Pod": waiting, "NodeNames": ["n1"]}
        to = {"PodName": "p", "PodNamespace": "default", "PodUID": "uid-p", "Node": "n1"}
        assert "not read yet" in (await call("POST", f"{BASE}/filter", args))[1]["Error"]
        assert "not read yet" in (await call("POST", f"{BASE}/bind", to))[1]["Error"]
        assert (await call("POST", f"{BASE}/preempt", args))[0] == 503
        assert (await call("GET", "/readyz"))[0] == 503
        assert await call("GET", "/healthz") == (200, "ok")
        rig.extender.feed.nodes.complete = True
        assert await call("GET", "/readyz") == (200, "ok")


async def test_other_paths_and_methods_are_refused(server: ApiServer):
    async with serving(server, node("n1")) as (_, call):
        assert (await call("GET", f"{BASE}/filter"))[0] == 405
        assert (await call("POST", "/nowhere"))[0] == 404
        assert await call("GET", "/version") == (200, __version__)
