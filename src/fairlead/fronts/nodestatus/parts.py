"""What the parts of the node-status front share that tell of faults: how a code is written, times, and their loop."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from fnmatch import fnmatchcase

from fairlead.cluster.cluster import Cluster
from fairlead.kit.calls import explain
from fairlead.kit.supervise import SupervisedLoop
from fairlead.model.ports import Record

_NUMBER = re.compile(r"[0-9]+$")
Note = Callable[[str, str], None]


def short_code(code: str) -> str:
    """The number at the end of a code, such as 79 of xid-79; the code itself where there is none."""
    found = _NUMBER.search(code)
    return found[0] if found else code


def is_one_of(code: str, globs: tuple[str, ...]) -> bool:
    return any(fnmatchcase(code, glob) for glob in globs)


def rfc3339(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def make_loop(
    topic: str,
    turn: Callable[[], Awaitable[str | None]],
    cluster: Cluster,
    record: Record,
    note: Note,
    due: asyncio.Event,
) -> SupervisedLoop:
    """A turn whenever it is due; a failure is a problem under this topic, and is tried again."""
    return SupervisedLoop(
        topic,
        turn,
        clock=cluster.client.clock,
        rng=cluster.client.rng,
        report=lambda problem: note(topic, problem),
        record=record,
        due=due,
        describe=lambda error: f"{topic} of the node: {explain(error)}",
    )
