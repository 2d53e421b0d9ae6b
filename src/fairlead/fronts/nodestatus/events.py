"""Events on the node for faults as they are reported: one object for each text, with a count.

What comes faster than a person reads is counted and written later: a driver that reports without end costs the API
server a request now and then.
"""

from __future__ import annotations

import asyncio

from msgspec import Struct

from fairlead.cluster.client import AnyObject
from fairlead.cluster.cluster import Cluster
from fairlead.cluster.errors import NotFound
from fairlead.cluster.kinds import EVENTS, NODES
from fairlead.cluster.patches import MergePatch
from fairlead.fronts.nodestatus.parts import Note, is_one_of, make_loop, rfc3339, short_code
from fairlead.model.ports import Record

NAMESPACE = "default"  # where events of what has no namespace are
BURST = 25  # requests at once, and then one every:
EVERY_S = 12.0
TEXTS_MAX = 64  # that are known, or wait


class EventTerms(Struct, frozen=True):
    reason: str
    component: str
    message: str  # {code}, and {number} for the number at its end
    codes: tuple[str, ...]  # globs


class _Posted(Struct, frozen=True):
    name: str
    count: int


class NodeEvents:
    """Run it as a task; tell it of every fault."""

    def __init__(self, cluster: Cluster, terms: EventTerms, record: Record, note: Note) -> None:
        self._cluster, self._terms, self._record = cluster, terms, record
        self._clock = cluster.client.clock
        self._waiting: dict[str, int] = {}  # by text, how often
        self._moment: set[str] = set()  # texts of this turn of the loop: one event of a driver reaches many devices
        self._posted: dict[str, _Posted] = {}
        self._uid: str | None = None
        self._tokens, self._tokens_s = float(BURST), self._clock.monotonic()
        self._due = asyncio.Event()
        self._loop = make_loop("events", self._post_all, cluster, record, note, self._due)

    def report(self, code: str) -> None:
        if not is_one_of(code, self._terms.codes):
            return
        text = self._terms.message.replace("{code}", code).replace("{number}", short_code(code))
        if text in self._moment:
            return
        if not self._moment:
            asyncio.get_running_loop().call_soon(self._moment.clear)
        self._moment.add(text)
        if text not in self._waiting and len(self._waiting) >= TEXTS_MAX:
            self._record("event-dropped", reason=text)
            return
        self._waiting[text] = self._waiting.get(text, 0) + 1
        self._due.set()

    async def run(self) -> None:
        await self._loop.run()

    async def _post_all(self) -> None:
        while self._waiting:
            await self._take_turn()
            text, count = next(iter(self._waiting.items()))
            await self._post(text, count)
            if left := self._waiting.pop(text) - count:  # that came meanwhile
                self._waiting[text] = left

    async def _take_turn(self) -> None:
        now_s = self._clock.monotonic()
        self._tokens = min(float(BURST), self._tokens + (now_s - self._tokens_s) / EVERY_S)
        self._tokens_s = now_s
        if self._tokens < 1:
            await self._clock.sleep((1 - self._tokens) * EVERY_S)
            self._tokens, self._tokens_s = 1.0, self._clock.monotonic()
        self._tokens -= 1

    async def _post(self, text: str, count: int) -> None:
        known, client, now_s = self._posted.get(text), self._cluster.client, self._clock.now()
        if known is not None:
            total = known.count + count
            change = MergePatch({"count": total, "lastTimestamp": rfc3339(now_s)})
            try:
                await client.patch(EVENTS, known.name, change, AnyObject, namespace=NAMESPACE)
            except NotFound:  # the API server keeps events for an hour
                del self._posted[text]
            else:
                self._posted[text] = _Posted(known.name, total)
                return
        node = await self._cluster.name()
        if self._uid is None:
            self._uid = (await client.get(NODES, node, AnyObject)).metadata.uid
        name = f"{node}.{int(now_s * 1e9):x}"
        await client.create(EVENTS, self._event(node, name, text, count, now_s), AnyObject, namespace=NAMESPACE)
        if len(self._posted) >= TEXTS_MAX:
            self._posted.pop(next(iter(self._posted)))
        self._posted[text] = _Posted(name, count)

    def _event(self, node: str, name: str, text: str, count: int, now_s: float) -> dict[str, object]:
        now = rfc3339(now_s)
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": node, "uid": self._uid or ""},
            "reason": self._terms.reason,
            "message": text,
            "type": "Warning",
            "source": {"component": self._terms.component},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": count,
        }
