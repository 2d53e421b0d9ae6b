"""Watches of an API server: what they tell, how they end, and what is given up."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest
from tests.apiserver.server import ApiServer, Fault
from tests.apiserver.trouble import TroubledServer
from tests.unit.cluster.watching import pod

from fairlead.cluster import client as client_module
from fairlead.cluster.client import AnyObject, Client, Event
from fairlead.cluster.errors import (
    Gone,
    MalformedResponse,
    TooSlow,
)
from fairlead.cluster.kinds import PODS
from fairlead.cluster.lines import LineSplitter


async def _take(events: Any, count: int) -> list[Event[AnyObject]]:
    async with asyncio.timeout(10):
        return [await anext(events) for _ in range(count)]


async def test_a_watch_tells_what_comes_changes_and_goes(server: ApiServer, client: Client):
    async with aclosing(client.watch(PODS, AnyObject, since="100", fields="spec.nodeName=n1")) as events:
        server.store.put("pods", pod("a"), "default")
        server.store.put("pods", pod("b", node="n2"), "default")
        server.store.put("pods", pod("a", phase="Running"), "default")
        server.store.remove("pods", "a", "default")
        seen = await _take(events, 3)
    assert [event.kind for event in seen] == ["ADDED", "MODIFIED", "DELETED"]
    assert [event.version for event in seen] == ["101", "103", "104"]
    assert all(event.object and event.object.metadata.name == "a" for event in seen)


async def test_a_bookmark_moves_on_without_an_object(server: ApiServer, client: Client):
    async with aclosing(client.watch(PODS, AnyObject, since="100", fields="spec.nodeName=n1")) as events:
        server.store.put("pods", pod("b", node="n2"), "default")
        assert await _take(events, 1) == [Event("BOOKMARK", None, "101")]


async def test_a_watch_ends_when_the_server_ends_it(server: ApiServer, client: Client):
    async def ends() -> None:
        await server.watched()
        server.end_watches()

    ending = asyncio.create_task(ends())
    assert [event async for event in client.watch(PODS, AnyObject, since="100")] == []
    await ending


async def test_a_version_that_is_too_old_is_gone(server: ApiServer, client: Client):
    server.store.forget_history()
    with pytest.raises(Gone, match="too old resource version: 100"):
        await _take(client.watch(PODS, AnyObject, since="100"), 1)


async def test_a_watch_that_is_cut_says_so(server: ApiServer, client: Client):
    half = b'HTTP/1.1 200 OK\r\n\r\n{"type": "ADDED", "object": {"meta'
    server.faults = [Fault(raw=half)]
    with pytest.raises(MalformedResponse, match="in the middle of an event"):
        await _take(client.watch(PODS, AnyObject, since="100"), 1)


async def test_a_silent_watch_is_given_up(server: TroubledServer, client: Client, monkeypatch: pytest.MonkeyPatch):
    server.stalled = True
    monkeypatch.setattr(client_module, "WATCH_S", 0)
    monkeypatch.setattr(client_module, "WATCH_OVERDUE_S", 0.05)
    with pytest.raises(TooSlow, match="watch pods"):
        await _take(client.watch(PODS, AnyObject, since="100"), 1)


async def test_an_event_without_end_is_not_kept(server: ApiServer, client: Client, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(client_module, "LineSplitter", lambda: LineSplitter(100))
    server.store.put("pods", pod("a" * 200), "default")
    with pytest.raises(MalformedResponse, match="larger than 100 bytes"):
        await _take(client.watch(PODS, AnyObject, since="100"), 1)


@pytest.mark.parametrize("line", [b"nonsense\n", b'{"type": 3}\n', b'{"type": "ADDED"}\n', b"[" * 5000 + b"\n"])
async def test_nonsense_on_a_watch_is_told(server: ApiServer, client: Client, line: bytes):
    server.faults = [Fault(raw=b"HTTP/1.1 200 OK\r\n\r\n" + line)]
    with pytest.raises(MalformedResponse, match="makes no sense"):
        await _take(client.watch(PODS, AnyObject, since="100"), 1)
