"""The page of a daemon: the node in a browser, live. Loaded only where HTTP is served.

Owns what the page is sent: one document with the status, the links between devices and the latest facts, again after
each change; and the history of a device, when it is asked for. Read-only. The files of the page are beside it, in
`pagefiles/`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from fairlead.app.questions import find_device, itself
from fairlead.app.snapshot import take_snapshot
from fairlead.kit.latest import Latest
from fairlead.kit.text import to_json
from fairlead.model.errors import FairleadError
from fairlead.observe.http import Reply, Request, Route
from fairlead.observe.journal import row_of
from fairlead.observe.status import Snapshot, make_status

if TYPE_CHECKING:
    from fairlead.app.daemon import Daemon
    from fairlead.kit.owner import Owner
    from fairlead.model.device import Device
    from fairlead.model.names import DeviceId
    from fairlead.model.resource import Resource
    from fairlead.observe.journal import Fact
    from fairlead.observe.status import Held

FILES = Path(__file__).with_name("pagefiles")
TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
JSON = "application/json"
PAUSE_S = 0.2  # changes of one moment are shown together
REFRESH_S = 5.0  # who holds what changes without a fact
FACTS = 60
HISTORY = 20  # facts of one device
CORDONS = frozenset({"cordoned", "uncordoned", "cordons-kept"})
DEVICES_LINKED = 64  # of more devices the links are not drawn


class Page:
    def __init__(
        self,
        daemon: Daemon,
        thread: Owner,
        refusal: Callable[[Request], Awaitable[str]],
        on_error: Callable[[str, Exception], None],
    ) -> None:
        """`refusal`: why a request is refused; empty if it is not. `on_error` takes the path and what went wrong."""
        self._daemon = daemon
        self._thread = thread
        self._refusal = refusal
        self._on_error = on_error
        self._changed = asyncio.Event()
        self._document = Latest(b"")
        self._making: asyncio.Task[None] | None = None
        self._readers = 0

    def routes(self) -> Mapping[str, Route]:
        files = {f"/{path.name}": partial(self._file, path) for path in FILES.iterdir() if path.suffix in TYPES}
        guarded: dict[str, Route] = {
            "/": files["/index.html"],
            "/index.html": files["/index.html"],
            "/events": self._events,
            "/explain.json": self._explain,
            "/history.json": self._history,
            "/status.json": self._status,
        }
        # The other files are the same on every node, and a browser asks for them without the token.
        return files | {path: partial(self._guarded, route) for path, route in guarded.items()}

    def note(self, _fact: Fact) -> None:
        self._changed.set()

    async def _guarded(self, route: Route, request: Request) -> Reply:
        if refusal := await self._refusal(request):
            return Reply(f"{refusal}\n".encode(), 401)
        return await route(request)

    async def _file(self, path: Path, _request: Request) -> Reply:
        return Reply(await self._thread.call(path.read_bytes, what=path.name), type=TYPES[path.suffix])

    async def _status(self, _request: Request) -> Reply:
        return Reply(await self._make(), type=JSON)

    async def _explain(self, request: Request) -> Reply:
        try:
            query = parse_qs(request.query, max_num_fields=8)
            count = int(query.get("count", ["1"])[0])
            question = {"resource": query.get("resource", [""])[0], "count": max(0, min(count, 1 << 20))}
            answer = await self._daemon.questions.explain(question, itself())
            return Reply(await self._thread.call(lambda: to_json(answer()), what="explain"), type=JSON)
        except (FairleadError, ValueError) as error:
            return Reply(to_json({"error": str(error)}), 400, JSON)

    async def _history(self, request: Request) -> Reply:
        daemon = self._daemon
        try:
            query = parse_qs(request.query, max_num_fields=8)
            device = find_device(daemon.engine.inventory, query.get("device", [""])[0])
        except (FairleadError, ValueError) as error:
            return Reply(to_json({"error": str(error)}), 400, JSON)
        resources = [each.resource for each in daemon.supervisor.endpoints.values()]
        elsewhere = daemon.cluster.actual_devices() if daemon.cluster is not None else {}
        facts = daemon.journal.tail()

        def make() -> bytes:
            own = history_of(device, slots_on(device, resources, elsewhere), facts)
            return to_json({"device": device.id, "facts": [row_of(fact) for fact in own]})

        return Reply(await self._thread.call(make, what="the history of a device"), type=JSON)

    # --- Live -----------------------------------------------------------------------------------------------------

    async def _events(self, _request: Request) -> Reply:
        return Reply(b"retry: 2000\n\n", type="text/event-stream", stream=self._stream())

    async def _stream(self) -> AsyncIterator[bytes]:
        """Documents, not differences: a reader that was away has missed nothing."""
        if self._making is None:
            self._document = Latest(b"")
            self._making = asyncio.create_task(self._keep_making(self._document), name="page")
        self._readers += 1
        try:
            async for made in self._document.follow():
                if made:
                    yield b"data: " + made + b"\n\n"
        finally:
            self._readers -= 1
            if not self._readers and self._making is not None:
                self._making.cancel()
                self._making = None

    async def _keep_making(self, document: Latest[bytes]) -> None:
        while True:
            self._changed.clear()
            try:
                document.set(await self._make())
            except Exception as error:  # noqa: BLE001 - the pages that are open wait for the next one
                self._on_error("/events", error)
                self._changed.clear()
            stop_alarm = self._daemon.clock.alarm(REFRESH_S, self._changed.set)
            try:
                await self._changed.wait()
            finally:
                stop_alarm()
            await self._daemon.clock.sleep(PAUSE_S)

    async def _make(self) -> bytes:
        daemon = self._daemon
        snapshot = take_snapshot(daemon, await daemon.questions.holders())
        facts = daemon.journal.tail(FACTS)
        return await self._thread.call(_document, snapshot, facts, what="the document of the page")


def _document(now: Snapshot, facts: list[Fact]) -> bytes:
    inventory = now.inventory
    few = len(inventory.devices) <= DEVICES_LINKED
    document: dict[str, Any] = {
        "status": make_status(now),
        "links": [[*pair, score] for pair, score in inventory.links.items()] if few else [],
        "facts": [row_of(fact) for fact in facts],
    }
    return to_json(document)


def slots_on(device: Device, resources: Sequence[Resource], elsewhere: Mapping[Held, DeviceId]) -> set[Held]:
    """The slots that stand for the device. `elsewhere`: those that a container holds for another device than theirs."""
    own = {(each.name, slot.id) for each in resources for slot in each.slots_of.get(device.id, ())}
    return {held for held in own if elsewhere.get(held, device.id) == device.id} | {
        held for held, actual in elsewhere.items() if actual == device.id
    }


def history_of(device: Device, slots: AbstractSet[Held], facts: Sequence[Fact]) -> list[Fact]:
    """The last facts of a device, newest first. Of a grant the journal names a few slots, and counts the others."""
    cordoned = {device.id, device.parent}  # a cordon on a device is one on its partitions too

    def is_own(fact: Fact) -> bool:
        keys = fact.keys
        names = cordoned if fact.kind in CORDONS else {device.id}
        if (keys.get("device") or "") in names or not names.isdisjoint(_listed(keys.get("devices"))):
            return True
        return any((keys.get("resource"), slot) in slots for slot in _listed(keys.get("slots")))

    return list(islice(filter(is_own, reversed(facts)), HISTORY))


def _listed(value: Any) -> list[str]:
    return value if isinstance(value, list) else []
