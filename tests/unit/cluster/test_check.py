"""A watch that is silent, late or hangs, and a server that is away: a read finds out, and is bounded."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from random import Random

import msgspec
import pytest
from tests.apiserver.server import Fault
from tests.apiserver.trouble import TroubledServer
from tests.clock import FakeClock
from tests.unit.cluster.watching import has, names, pod, running, until

from fairlead.cluster import reflector
from fairlead.cluster.access import Access, parse_server
from fairlead.cluster.client import Client
from fairlead.cluster.connection import connect
from fairlead.cluster.nodes import NodeWatch
from fairlead.cluster.objects import PodObject
from fairlead.cluster.pods import AGAIN_S, PodCache
from fairlead.cluster.reflector import LATE_S, SLOW_S


@pytest.fixture
def clock() -> FakeClock:
    """Stands still: whatever waits for a back-off waits for ever."""
    return FakeClock()


@pytest.fixture
async def cache(server: TroubledServer, clock: FakeClock) -> AsyncIterator[PodCache]:
    client = Client(Access(parse_server(server.url)), clock, rng=Random(1))
    yield PodCache(client, "n1")
    await client.close()


def watches(server: TroubledServer) -> int:
    return sum("watch" in request.query for request in server.requests)


async def test_a_check_brings_what_a_silent_watch_has_missed(server: TroubledServer, cache: PodCache, clock: FakeClock):
    server.stalled = True
    async with running(cache.run()):
        await server.watched()
        server.store.put("pods", pod("a"), "default")
        await clock.advance(1.0)
        assert names(cache.now) == set()
        await cache.check()
        assert names(cache.now) == {"a"}
        assert cache.now.read_s == clock.monotonic()


async def test_a_watch_that_stays_silent_after_news_is_reported_and_begun_anew(
    server: TroubledServer, cache: PodCache, clock: FakeClock
):
    server.stalled = True
    async with running(cache.run()):
        await server.watched()
        server.store.put("pods", pod("a"), "default")
        await clock.advance(40.0)
        await cache.check()
        assert not cache.now.stalled
        server._watching.clear()
        await clock.advance(LATE_S)
        assert "silent for 43 s while pods changed" in cache.now.stalled
        await server.watched()
        assert watches(server) == 2
        server.stalled = False
        server.store.put("pods", pod("b"), "default")
        await until(cache.latest, lambda now: has("b")(now) and not now.stalled)


async def test_a_watch_that_was_only_late_is_left_alone(server: TroubledServer, cache: PodCache, clock: FakeClock):
    server.stalled = True
    async with running(cache.run()):
        await server.watched()
        server.store.put("pods", pod("a"), "default")
        await cache.check()
        server.stalled = False
        server.store.put("pods", pod("b"), "default")
        await until(cache.latest, has("b"))
        await clock.advance(LATE_S)
        assert watches(server) == 1
        assert not cache.now.stalled


async def test_a_check_without_news_leaves_the_watch_alone(server: TroubledServer, cache: PodCache, clock: FakeClock):
    server.store.put("pods", pod("a"), "default")
    async with running(cache.run()):
        await server.watched()
        before = cache.now.pods
        await cache.check()
        await clock.advance(LATE_S)
        assert cache.now.pods is before
        assert watches(server) == 1


async def test_checks_at_the_same_time_share_reads(server: TroubledServer, cache: PodCache):
    async with running(cache.run()):
        await server.watched()
        before = server.reads("pods")
        await asyncio.gather(*(cache.check() for _ in range(20)))
        assert server.reads("pods") - before == 2


async def test_a_check_does_not_wait_for_the_back_off(server: TroubledServer, cache: PodCache):
    async with running(cache.run()):
        await server.watched()
        await server.stop()
        await until(cache.latest, lambda now: bool(now.problem))
        await server.start()
        server.store.put("pods", pod("a"), "default")
        await cache.check()
        assert names(cache.now) == {"a"}
        assert not cache.now.problem
        await server.watched()  # the follower has not waited either


async def test_a_check_does_not_wait_for_an_attempt_that_hangs(server: TroubledServer, cache: PodCache):
    server.store.put("pods", pod("a"), "default")
    server.faults = [Fault(hang=True)]
    async with running(cache.run()):
        await server.asked(1)
        await cache.check()
        assert names(cache.now) == {"a"}
        await server.watched()


async def test_a_check_takes_a_new_connection(server: TroubledServer, cache: PodCache):
    async with running(cache.run()):
        await server.watched()
        await cache.check()
        before = server.connections
        await cache.check()
        assert server.connections == before + 1


async def test_a_check_that_is_not_answered_is_bounded_and_reported(
    server: TroubledServer, cache: PodCache, monkeypatch: pytest.MonkeyPatch
):
    async with running(cache.run()):
        await server.watched()
        server.freeze()
        monkeypatch.setattr(reflector, "CHECK_S", 0.05)
        await cache.check()
        assert "list pods" in cache.now.problem
        assert "no answer within 0.05 s" in cache.now.problem
        monkeypatch.undo()
        server.thaw()
        await cache.check()
        assert not cache.now.problem


async def test_nothing_is_read_for_a_cache_that_does_not_run(server: TroubledServer, cache: PodCache):
    await cache.check()
    assert not server.requests
    assert not cache.now.complete


async def test_the_end_of_a_cache_does_not_cancel_who_waits_for_a_check(server: TroubledServer, cache: PodCache):
    """A reload makes the cache read anew, while the kubelet waits for an answer."""
    async with running(cache.run()):
        await server.watched()
        server.freeze()
        waiting = asyncio.create_task(cache.check())
        await server.asked(3)
    await waiting
    assert not waiting.cancelled()


async def test_who_waits_gets_what_a_silent_watch_does_not_tell(server: TroubledServer, cache: PodCache):
    server.stalled = True
    async with running(cache.run()):
        await server.watched()
        server.store.put("pods", pod("a"), "default")
        assert (await cache.wait_for(lambda now: now.pods.get("uid-a"), 20.0)).name == "a"


async def test_while_a_caller_waits_the_server_is_asked_once_a_second(
    server: TroubledServer, cache: PodCache, clock: FakeClock
):
    async with running(cache.run()):
        await server.watched()
        await cache.check()
        before = server.reads("pods")

        async def wait() -> None:
            while True:
                await cache.wait_for_news(cache.latest.version, 20.0)

        async with running(wait()):
            for number in range(3):
                await clock.until_asleep(AGAIN_S)
                assert server.reads("pods") - before == number
                read_s = clock.monotonic() + AGAIN_S
                await clock.advance(AGAIN_S)
                await cache.wait_for(lambda now: now.read_s >= read_s or None, 20.0)  # noqa: B023 - ends before the next round


# --- A server that is away --------------------------------------------------------------------------------------------


async def test_a_server_that_refuses_is_reported_at_the_first_try(server: TroubledServer, cache: PodCache):
    await server.stop()
    async with running(cache.run()):
        assert "cannot be reached" in (await until(cache.latest, lambda now: bool(now.problem))).problem
    await server.start()


@pytest.mark.parametrize("listed", [False, True])
async def test_a_server_that_does_not_answer_is_reported_after_two_seconds(
    server: TroubledServer, cache: PodCache, clock: FakeClock, listed: bool
):
    if not listed:
        server.freeze()
    async with running(cache.run()):
        if listed:
            await server.watched()
            server.freeze()
            await server.drop()
            await until(cache.latest, lambda now: "hung up" in now.problem)
            await clock.advance(1.0)  # the back-off
        await server.asked(3 if listed else 1)  # a list and two watches
        await clock.advance(SLOW_S)
        assert f"no answer within {SLOW_S:g} s" in cache.now.problem
        server.thaw()
        await until(cache.latest, lambda now: not now.problem)


async def test_a_knock_finds_a_server_that_stopped_behind_an_open_watch(
    server: TroubledServer, cache: PodCache, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
):
    async with running(cache.run()):
        await server.watched()
        server.freeze()
        await clock.advance(1.0)
        monkeypatch.setattr(reflector, "PING_S", 0.05)
        await asyncio.gather(*(cache.ping() for _ in range(5)))
        assert "no answer within 0.05 s" in cache.now.problem
        server.thaw()
        await until(cache.latest, lambda now: not now.problem)


@pytest.mark.parametrize("allowed", [None, {("watch", "pods")}])
async def test_a_knock_at_a_server_that_answers_changes_nothing(
    server: TroubledServer, cache: PodCache, clock: FakeClock, allowed: set[tuple[str, str]] | None
):
    async with running(cache.run()):
        await server.watched()
        await cache.ping()  # a watch that has just spoken is no reason to ask
        assert len(server.requests) == 2
        await clock.advance(1.0)
        server.allowed = allowed  # an error status is an answer
        await cache.ping()
        assert not cache.now.problem
        assert (watches(server), server.reads("pods")) == (1, 2)
        server.faults = [Fault(code=503, message="no backend")]
        await cache.ping()
        assert "no backend" in cache.now.problem


@contextmanager
def black_hole() -> Iterator[str]:
    """An address that takes no connection and refuses none: the queue of the listener is full."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            one = stack.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


async def test_a_network_that_swallows_connections_is_reported_and_holds_no_check_up(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(reflector, "CHECK_S", 0.05)
    with black_hole() as url:
        cache = PodCache(Client(Access(parse_server(url)), clock, rng=Random(1)), "n1")
        async with running(cache.run()):
            await clock.until_asleep(SLOW_S)
            await clock.advance(SLOW_S)
            assert f"no answer within {SLOW_S:g} s" in cache.now.problem
            await cache.check()
            assert "no answer within 0.05 s" in cache.now.problem


async def test_a_watch_is_short_and_goes_on_without_bookmarks(
    server: TroubledServer, cache: PodCache, clock: FakeClock
):
    server.bookmarks = False
    async with running(cache.run()):
        for name in ("a", "b", "c"):
            await server.watched()
            server.store.put("pods", pod(name), "default")
            await until(cache.latest, has(name))
            await clock.advance(20.0)
            server.end_watches()
        await server.watched()
    assert server.reads("pods") == 1
    assert all(15 <= int(one.query["timeoutSeconds"]) <= 30 for one in server.requests if "watch" in one.query)


async def test_a_node_is_read_without_waiting_for_the_back_off(server: TroubledServer, clock: FakeClock):
    client = Client(Access(parse_server(server.url)), clock, rng=Random(1))
    watch = NodeWatch(client, "n1")
    await server.stop()
    async with running(watch.run()):
        await until(watch.latest, lambda now: bool(now.problem))
        await server.start()
        server.store.put("nodes", {"metadata": {"name": "n1", "labels": {"a": "1"}}})
        await watch.check()
        assert watch.latest.value.node is not None
        assert not watch.latest.value.problem
    await client.close()


async def test_a_host_that_is_gone_is_noticed_by_the_kernel_in_ten_seconds(server: TroubledServer):
    connection = await connect(Access(parse_server(server.url)))
    try:
        sock = connection._stream._writer.get_extra_info("socket")
        get = lambda name: sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, name))  # noqa: E731 - three times below
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert get("TCP_KEEPIDLE") + get("TCP_KEEPINTVL") * get("TCP_KEEPCNT") <= 11
        assert get("TCP_USER_TIMEOUT") == 10_000
    finally:
        connection.close()


# --- A read and a watch at the same time ------------------------------------------------------------------------------


def thing(name: str, version: int) -> PodObject:
    return msgspec.convert(pod(name, resourceVersion=str(version)), PodObject)


def test_what_a_watch_has_brought_is_not_undone_by_an_older_read():
    cache = PodCache(Client(Access(parse_server("http://127.0.0.1:1")), FakeClock()), "n1")
    cache.replace((thing("a", 100),))
    cache.put(thing("b", 120))
    cache.put(thing("a", 130))
    assert cache.replace((thing("a", 100), thing("c", 105)), "110")
    assert {one.name: one.version for one in cache.now.pods.values()} == {"a": "130", "b": "120", "c": "105"}
    # A newer one knows better.
    assert cache.replace((thing("a", 130),), "140")
    assert names(cache.now) == {"a"}
    # After a database was put back, versions begin again: a list that begins a watch holds whatever its version.
    assert cache.replace((thing("d", 5),))
    assert names(cache.now) == {"d"}
