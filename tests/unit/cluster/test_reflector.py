"""Following pods and nodes through everything that happens to an API server."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from tests.apiserver.fixtures import Quick
from tests.apiserver.server import ApiServer, Fault
from tests.unit.cluster.watching import PATIENCE_S, has, names, pod, running, until

from fairlead.cluster import pods as pods_module
from fairlead.cluster.client import Client
from fairlead.cluster.errors import TooSlow
from fairlead.cluster.kinds import PODS
from fairlead.cluster.nodes import Node, NodeMeta, NodeSnapshot, NodeWatch
from fairlead.cluster.objects import PodObject
from fairlead.cluster.pods import PodCache
from fairlead.model.pod import Container, Pod


async def test_pods_come_change_and_go(server: ApiServer, client: Client):
    server.store.put("pods", pod("a"), "default")
    server.store.put("pods", pod("elsewhere", node="n2"), "default")
    cache = PodCache(client, "n1")
    assert not cache.now.complete
    async with running(cache.run()):
        await until(cache.latest, lambda now: names(now) == {"a"})
        await server.watched()
        server.store.put("pods", pod("b"), "blue")
        await until(cache.latest, lambda now: names(now) == {"a", "b"})
        server.store.put("pods", pod("a", annotations={"k": "v"}), "default")
        await until(cache.latest, lambda now: now.pods["uid-a"].annotations == {"k": "v"})
        server.store.remove("pods", "b", "blue")
        await until(cache.latest, lambda now: names(now) == {"a"})
        server.store.put("pods", pod("a", phase="Succeeded"), "default")
        await until(cache.latest, lambda now: names(now) == set())
    assert len([request for request in server.requests if "watch" not in request.query]) == 1


async def test_pods_are_numbered_as_they_come_and_those_of_one_list_together(server: ApiServer, client: Client):
    for name in ("b", "a"):
        server.store.put("pods", pod(name), "default")
    cache = PodCache(client, "n1")
    async with running(cache.run()):
        await until(cache.latest, has("a"))
        await server.watched()
        for name in ("z", "c"):
            server.store.put("pods", pod(name), "default")
        server.store.put("pods", pod("z", annotations={"k": "v"}), "default")
        now = await until(cache.latest, lambda now: has("c")(now) and now.pods["uid-z"].annotations)
    came = {one.name: one.arrived for one in now.pods.values()}
    assert came["a"] == came["b"] < came["z"] < came["c"]
    listing = await client.list(PODS, PodObject, fields="spec.nodeName=n1")  # by name
    cache.replace(listing.items)
    assert {one.name: one.arrived for one in cache.now.pods.values()} == came


async def test_a_pod_keeps_what_is_read_and_no_more(server: ApiServer, client: Client):
    thing = pod("a", annotations={"keep/x": "1", "last-applied": "x" * 9999}, deletionTimestamp="2026-01-02T00:00:00Z")
    thing["spec"]["initContainers"] = [{"name": "side", "restartPolicy": "Always"}, {"name": "init"}]
    server.store.put("pods", thing, "default")
    cache = PodCache(client, "n1", keeps=lambda key: key.startswith("keep/"))
    async with running(cache.run()):
        now = await until(cache.latest, lambda now: now.complete)
    assert now.pods["uid-a"] == Pod(
        uid="uid-a",
        namespace="default",
        name="a",
        node="n1",
        phase="Pending",
        created_s=1767225600.0,
        deleting=True,
        annotations={"keep/x": "1"},
        init_containers=(Container("side", sidecar=True), Container("init")),
        containers=(Container("main", {"example.com/gpu": "1"}),),
        version="101",
        arrived=1,
    )
    assert str(now.pods["uid-a"]) == "default/a"


async def test_a_watch_goes_on_where_it_ended_without_a_new_list(server: ApiServer, client: Client):
    cache = PodCache(client, "n1")
    async with running(cache.run()):
        for name in ("a", "b", "c"):
            await server.watched()
            server.store.put("pods", pod(name), "default")
            await until(cache.latest, has(name))
            server.end_watches()
    assert len([request for request in server.requests if "watch" not in request.query]) == 1
    since = [request.query["resourceVersion"] for request in server.requests if "watch" in request.query]
    assert since[:3] == ["100", "101", "102"]


async def test_a_server_that_restarts_is_found_again(server: ApiServer, patient: Client):
    cache = PodCache(patient, "n1")
    async with running(cache.run()):
        await server.watched()
        await server.stop()
        lost = await until(cache.latest, lambda now: bool(now.problem))
        assert "cannot be reached" in lost.problem
        server.store.put("pods", pod("meanwhile"), "default")
        await server.start()
        await until(cache.latest, lambda now: "meanwhile" in names(now))
        assert not (await until(cache.latest, lambda now: not now.problem)).problem
        assert cache.silent_s < float("inf")


async def test_a_forgotten_version_means_a_new_list(server: ApiServer, client: Client):
    server.store.put("pods", pod("old"), "default")
    cache = PodCache(client, "n1")
    async with running(cache.run()):
        await until(cache.latest, lambda now: names(now) == {"old"})
        await server.watched()
        server.bookmarks = False
        server.store.remove("pods", "old", "default")
        await until(cache.latest, lambda now: names(now) == set())
        # While nobody watches: one comes, and the history is dropped.
        await server.drop()
        server.store.put("pods", pod("new"), "default")
        server.store.history.clear()
        server.store.forget_history()
        await until(cache.latest, lambda now: names(now) == {"new"})


async def test_a_database_put_back_to_an_older_state_means_a_new_list(server: ApiServer, client: Client, quick: Quick):
    cache = PodCache(client, "n1")
    async with running(cache.run()):
        await server.watched()
        server.faults = [Fault(code=504, message="Timeout: Too large resource version: 900, current: 5")]
        server.end_watches()
        server.store.put("pods", pod("a"), "default")
        await until(cache.latest, lambda now: names(now) == {"a"})
    assert len([request for request in server.requests if "watch" not in request.query]) == 2


async def test_a_server_that_ends_every_watch_at_once_is_not_hammered(server: ApiServer, client: Client, quick: Quick):
    empty = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    cache = PodCache(client, "n1")
    async with running(cache.run()):
        await server.watched()
        quick.slept_s.clear()
        server.faults = [Fault(raw=empty) for _ in range(6)]
        server.end_watches()
        await server.watched()
    assert len(quick.slept_s) >= 6
    assert quick.slept_s[5] > quick.slept_s[0]


async def test_a_forbidden_watch_is_told_and_tried_again(server: ApiServer, client: Client):
    server.allowed = {("list", "pods")}
    cache = PodCache(client, "n1")
    async with running(cache.run()):
        lost = await until(cache.latest, lambda now: bool(now.problem))
        assert 'resources: ["pods"]\n  verbs: ["watch"]' in lost.problem
        server.allowed.add(("watch", "pods"))
        server.store.put("pods", pod("a"), "default")
        await until(cache.latest, lambda now: names(now) == {"a"} and not now.problem)


async def test_the_number_of_pods_is_bounded(server: ApiServer, client: Client, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pods_module, "PODS_MAX", 3)
    for number in range(5):
        server.store.put("pods", pod(f"p{number}"), "default")
    cache = PodCache(client, "n1")
    async with running(cache.run()):
        now = await until(cache.latest, lambda now: now.complete)
        assert (len(now.pods), now.left_out) == (3, 2)
        await server.watched()
        server.store.put("pods", pod("more"), "default")
        now = await until(cache.latest, lambda now: now.left_out == 3)
        assert len(now.pods) == 3


async def test_a_pod_of_another_node_is_left_out_whatever_the_server_selects(server: ApiServer, client: Client):
    cache = PodCache(client, "n1")
    there, here = (msgspec.convert(pod("a", node=node), PodObject) for node in ("n2", "n1"))
    cache.put(there)
    assert cache.now.pods == {}
    cache.put(here)
    assert names(cache.now) == {"a"}
    cache.put(there)
    assert cache.now.pods == {}


async def test_wait_for_ends_when_the_pod_is_there(server: ApiServer, client: Client):
    cache = PodCache(client, "n1")
    async with running(cache.run()):
        waiting = asyncio.create_task(cache.wait_for(lambda now: now.pods.get("uid-a"), PATIENCE_S))
        await server.watched()
        server.store.put("pods", pod("a"), "default")
        assert (await waiting).name == "a"
        assert (await cache.wait_for(lambda now: now.pods.get("uid-a"), 0.0)).name == "a"


async def test_wait_for_gives_up_with_the_reason(server: ApiServer, client: Client):
    server.allowed = set()
    cache = PodCache(client, "n1")
    async with running(cache.run()):
        await until(cache.latest, lambda now: bool(now.problem))
        with pytest.raises(TooSlow, match=r"an assumed pod on node 'n1' \(.*may not list pods"):
            await cache.wait_for(lambda now: now.pods.get("uid-a"), 0.01, "an assumed pod")


# --- The node ---------------------------------------------------------------------------------------------------------


async def test_a_node_is_followed_from_before_it_exists_to_after_it_is_gone(server: ApiServer, client: Client):
    watch = NodeWatch(client, "n1")
    async with running(watch.run()):
        assert await until(watch.latest, lambda now: now.complete) == NodeSnapshot(None, complete=True)
        await server.watched()
        server.store.put("nodes", {"metadata": {"name": "n2"}})
        server.store.put("nodes", {"metadata": {"name": "n1", "labels": {"config": "a"}}})
        now = await until(watch.latest, lambda now: now.node is not None)
        assert now.node.metadata.labels == {"config": "a"}
        server.store.put("nodes", {"metadata": {"name": "n1", "labels": {"config": "b"}}})
        await until(watch.latest, lambda now: now.node.metadata.labels == {"config": "b"})
        version = watch.latest.version
        # An answer to a patch may overtake the events before it.
        watch.put(Node(NodeMeta("n1", resource_version="1", labels={"config": "older"})))
        assert watch.latest.version == version
        # A report that changes nothing we read wakes nobody.
        thing = {"metadata": {"name": "n1", "labels": {"config": "b"}}, "status": {"conditions": [{"type": "Ready"}]}}
        server.store.put("nodes", thing)
        server.store.remove("nodes", "n1")
        await until(watch.latest, lambda now: now.node is None)
        assert watch.latest.version == version + 1


async def test_a_node_that_cannot_be_seen_is_told_and_seen_again(server: ApiServer, client: Client):
    server.store.put("nodes", {"metadata": {"name": "n1"}})
    server.allowed = set()
    watch = NodeWatch(client, "n1")
    async with running(watch.run()):
        lost = await until(watch.latest, lambda now: bool(now.problem))
        assert "may not list nodes" in lost.problem
        assert not lost.complete
        server.allowed = None
        await until(watch.latest, lambda now: now.node is not None and not now.problem)
