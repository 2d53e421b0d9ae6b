"""A condition of the node while faults of some kinds were seen since its boot: which ones, and of which boot.

The condition belongs to one boot: its message is the boot's id. One that is left from an earlier boot is removed. Only
this condition is written, by a patch that leaves the others alone.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable

from msgspec import Struct, field

from fairlead.cluster.client import AnyObject
from fairlead.cluster.cluster import Cluster
from fairlead.cluster.kinds import NODES
from fairlead.cluster.patches import StrategicPatch
from fairlead.fronts.nodestatus.parts import Note, is_one_of, make_loop, rfc3339, short_code
from fairlead.model.ports import Record

HEARTBEAT_S = 60.0
REASON_MAX = 4096  # characters of a reason that are read
CODES_MAX = 64  # in one condition; what comes after them changes nothing for its readers


class ConditionTerms(Struct, frozen=True):
    type: str
    codes: tuple[str, ...]  # globs


class Condition(Struct, frozen=True, rename="camel"):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class NodeInfo(Struct, frozen=True):
    boot_id: str = field(name="bootID", default="")


class Status(Struct, frozen=True, rename="camel"):
    conditions: tuple[Condition, ...] | None = None
    node_info: NodeInfo = NodeInfo()


class NodeState(Struct, frozen=True):
    status: Status = Status()


def read_reason(text: str) -> frozenset[str]:
    """The codes in a condition's reason. A reason that is not ours has none."""
    try:
        found = json.loads(text) if len(text) <= REASON_MAX else {}
    except (ValueError, RecursionError):
        return frozenset()
    codes = [code for code, seen in found.items() if seen is True] if isinstance(found, dict) else []
    return frozenset(sorted(codes)[:CODES_MAX])


def write_reason(codes: Iterable[str]) -> str:
    return json.dumps(dict.fromkeys(sorted(codes), True), separators=(",", ":"))


class NodeCondition:
    """Run it as a task; tell it of every fault."""

    def __init__(self, cluster: Cluster, terms: ConditionTerms, record: Record, note: Note) -> None:
        self._cluster, self._terms, self._record = cluster, terms, record
        self._clock = cluster.client.clock
        self._seen: set[str] = set()  # since this process began
        self._stands = False
        self._due = asyncio.Event()
        self._due.set()  # one of an earlier boot must go
        self._loop = make_loop(f"condition {terms.type}", self._reconcile, cluster, record, note, self._due)

    def report(self, code: str) -> None:
        name = short_code(code)
        if is_one_of(code, self._terms.codes) and name not in self._seen and len(self._seen) < CODES_MAX:
            self._seen.add(name)
            self._due.set()

    async def run(self) -> None:
        """Until cancelled. Leaves the condition: it is of the boot, not of this process."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._loop.run())
            tasks.create_task(self._beat())

    async def _beat(self) -> None:
        while True:
            await self._clock.sleep(HEARTBEAT_S)
            if self._stands:
                self._due.set()

    async def _reconcile(self) -> None:
        node = await self._cluster.name()
        status = (await self._cluster.client.get(NODES, node, NodeState)).status
        boot, kind = status.node_info.boot_id, self._terms.type
        known = next((one for one in status.conditions or () if one.type == kind), Condition())
        fresh = bool(known.type) and known.message == boot
        before = read_reason(known.reason) if fresh else frozenset()
        codes = before | self._seen
        self._stands = bool(codes)
        if codes:
            since = known.last_transition_time if fresh and known.status == "True" else None
            await self._patch(node, self._condition(codes, boot, since))
            if codes != before:
                self._record("condition-set", node=node, condition=kind, codes=sorted(codes))
        elif known.type:
            await self._patch(node, {"$patch": "delete", "type": kind})
            self._record("condition-removed", node=node, condition=kind, boot=known.message)

    def _condition(self, codes: frozenset[str], boot: str, since: str | None) -> dict[str, str]:
        now = rfc3339(self._clock.now())
        return {
            "type": self._terms.type,
            "status": "True",
            "reason": write_reason(codes),
            "message": boot,
            "lastHeartbeatTime": now,
            "lastTransitionTime": since or now,
        }

    async def _patch(self, node: str, condition: dict[str, str]) -> None:
        patch = StrategicPatch({"status": {"conditions": [condition]}})
        await self._cluster.client.patch(NODES, node, patch, AnyObject, subresource="status")
