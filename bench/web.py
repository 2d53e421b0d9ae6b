"""What probes, metrics and the page cost a daemon: memory, Allocate and idle CPU, with HTTP off and on.

Owns the three ways to run it and those who ask. What is wanted: SHEET. The daemon is compared with itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from bench import contestants, measure
from bench.cluster import Cluster
from bench.process import READY_S, PluginFailedError
from bench.rows import OURS, Results, Row, Sheet, Target

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from bench.contestants import Contestant
    from bench.measure import Effort, OpenKubelet, Stage

T = TypeVar("T")
OFF, PROBED, PAGE = "off", "probed", "page"
WAYS = {
    OFF: "HTTP off",
    PROBED: "probes and metrics",
    PAGE: "probes, metrics, page open",
}
ON = (PROBED, PAGE)
PROBE_S, SCRAPE_S = 1.0, 3.0
PROBES = ("/healthz", "/readyz")
FILES = ("/", "/page.css", "/page.js", "/words.js", "/mark.svg")
# Calls come in spells, each followed by a pause in which the page is told of them; within a spell all take turns.
SPELLS, TURNS, PAUSE_S = 4, 5, 3.0
DOCUMENTS = 5  # that a page has received at the least, before memory is looked at
HOST = "127.0.0.1"
LINE_MAX_BYTES = 1 << 24  # a document is one line
SHEET = Sheet(
    "web",
    "our daemon with HTTP off, with probes and metrics, and with the page open",
    (),
    (
        *(Row(f"pss_{way}", f"PSS, {title}", "MB", 2) for way, title in WAYS.items()),
        *(Row(f"more_{way}", f"PSS on top, {WAYS[way]}", "MB", 2) for way in ON),
        *(Row(f"p50_{way}", f"Allocate p50, {title}", "ms", 3) for way, title in WAYS.items()),
        *(Row(f"p99_{way}", f"Allocate p99, {title}", "ms", 3) for way, title in WAYS.items()),
        *(Row(f"times_{way}", f"Allocate p50, {WAYS[way]}, over off", "x", 3) for way in ON),
        *(Row(f"idle_{way}", f"idle CPU, {title}", "% of a core", 3) for way, title in WAYS.items()),
    ),
    (
        Target(f"more_{PROBED}", None, at_most=0.6),
        Target(f"more_{PAGE}", None, at_most=2.0),
        Target(f"times_{PROBED}", None, at_most=1.1),
        Target(f"times_{PAGE}", None, at_most=1.1),
    ),
)


@dataclass(slots=True)
class Seen:
    """What those who ask have received."""

    probes: int = 0
    scrapes: int = 0
    documents: int = 0


@dataclass(frozen=True, slots=True)
class Daemon:
    stage: Stage
    seen: Seen


async def run(effort: Effort, open_kubelet: OpenKubelet, say: Callable[[str], None]) -> Results:
    results = Results(SHEET)
    with tempfile.TemporaryDirectory(prefix="fl-", dir="/tmp") as home:
        async with Cluster(Path(home)) as cluster:
            field = {way: _contestant(way, cluster) for way in WAYS}
            say("warming up: HTTP off and on")  # who compiles byte code keeps megabytes of that; nothing is measured
            async with _all(field, open_kubelet) as daemons:
                await _calls(daemons, measure.QUICK)
            for number in range(effort.rounds):
                say(f"HTTP off and on, side by side: {number + 1} of {effort.rounds}")
                async with _all(_turned(field, number), open_kubelet) as daemons:
                    numbers = await _calls(daemons, effort)
                    results.add(OURS, numbers | _memory(daemons))
            async with _all(field, open_kubelet) as daemons:
                await asyncio.sleep(measure.SETTLE_S)
                for number in range(effort.idle_windows):
                    say(f"idling for {effort.idle_s:.0f} s, {number + 1} of {effort.idle_windows}")
                    idle = await measure.idle_cpu([each.stage for each in daemons.values()], effort.idle_s)
                    results.add(OURS, {f"idle_{way}": percent for way, percent in idle.items()})
    return results


def _contestant(way: str, cluster: Cluster) -> Contestant:
    http: dict[str, Any] = {} if way == OFF else {"http": {"listen": f"{HOST}:0"}}
    return contestants.ours(name=way, pod_resources=str(cluster.pod_resources), **http)


def _turned(ways: Mapping[str, T], number: int) -> dict[str, T]:
    """Each is first, middle and last in turn."""
    shift, items = number % len(ways), list(ways.items())
    return dict(items[shift:] + items[:shift])


async def _calls(daemons: Mapping[str, Daemon], effort: Effort) -> dict[str, float]:
    """In turn, a few calls each, so that all have the same share of whatever else the machine does."""
    p50_ms: dict[str, list[float]] = {way: [] for way in WAYS}
    p99_ms: dict[str, list[float]] = {way: [] for way in WAYS}
    ids = {way: await each.stage.ids() for way, each in daemons.items()}
    count, warmup = max(1, effort.calls // TURNS), effort.warmup_calls // TURNS
    for number in range(SPELLS * TURNS):
        for way, each in _turned(daemons, number).items():
            asked = await each.stage.ask("allocate", ids=ids[way][:1], count=count, warmup=warmup, timeout_s=120.0)
            p50_ms[way].append(asked["spread"]["p50_us"] / 1e3)
            p99_ms[way].append(asked["spread"]["p99_us"] / 1e3)
        if number % TURNS == TURNS - 1:
            await asyncio.sleep(PAUSE_S)
    times = {way: statistics.median(a / b for a, b in zip(p50_ms[way], p50_ms[OFF], strict=True)) for way in ON}
    return {
        **{f"p50_{way}": statistics.median(sample) for way, sample in p50_ms.items()},
        **{f"p99_{way}": statistics.median(sample) for way, sample in p99_ms.items()},
        **{f"times_{way}": value for way, value in times.items()},
    }


def _memory(daemons: Mapping[str, Daemon]) -> dict[str, float]:
    """Of all at one moment, after the same calls: pages that they share with other programs count alike in each."""
    pss_mb = {}
    for way, each in daemons.items():
        seen = each.seen
        if (way in ON and not (seen.probes and seen.scrapes)) or (way == PAGE and seen.documents < DOCUMENTS):
            raise PluginFailedError(f"{WAYS[way]}: only {seen} came\n{each.stage.plugin.tail()}")
        pss_mb[way] = measure.footprint(each.stage)["pss"]
    return {f"pss_{way}": value for way, value in pss_mb.items()} | {
        f"more_{way}": pss_mb[way] - pss_mb[OFF] for way in ON
    }


# --- Those who ask ----------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def _all(field: Mapping[str, Contestant], open_kubelet: OpenKubelet) -> AsyncIterator[dict[str, Daemon]]:
    """Side by side, each with those who ask it."""
    async with contextlib.AsyncExitStack() as stack:
        daemons = {}
        for way, contestant in field.items():
            stage = await stack.enter_async_context(measure.staged(contestant, open_kubelet))
            daemons[way] = Daemon(stage, await stack.enter_async_context(_watched(way, stage)))
        yield daemons


@contextlib.asynccontextmanager
async def _watched(way: str, stage: Stage) -> AsyncIterator[Seen]:
    seen, tasks = Seen(), []
    if way != OFF:
        port = await _port(stage)
        tasks = [asyncio.create_task(work) for work in (_probe(port, seen), _scrape(port, seen))]
        if way == PAGE:
            tasks.append(asyncio.create_task(_read_page(port, seen)))
    try:
        yield seen
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _port(stage: Stage) -> int:
    """As its log says it: the daemon chose a free one."""
    async with asyncio.timeout(READY_S):
        while (found := re.search(r"\bport=(\d+)", stage.plugin.log.read_text(errors="replace"))) is None:
            stage.plugin.check()
            await asyncio.sleep(0.05)
    return int(found[1])


async def _probe(port: int, seen: Seen) -> None:
    while True:
        for path in PROBES:
            await _get(port, path)
        seen.probes += 1
        await asyncio.sleep(PROBE_S)


async def _scrape(port: int, seen: Seen) -> None:
    while True:
        await _get(port, "/metrics")
        seen.scrapes += 1
        await asyncio.sleep(SCRAPE_S)


async def _read_page(port: int, seen: Seen) -> None:
    """As a browser does: the page, its files, and then every document."""
    for path in FILES:
        await _get(port, path)
    reader, writer = await _ask(port, "/events")
    try:
        while line := await reader.readline():
            seen.documents += line.startswith(b"data: ")
        raise PluginFailedError(f"the page was closed after {seen.documents} documents")
    finally:
        writer.close()


async def _get(port: int, path: str) -> None:
    reader, writer = await _ask(port, path, "Connection: close")
    try:
        answer = await reader.read()
        if b" 200 " not in answer[:16]:
            raise PluginFailedError(f"{path}: {answer[:200]!r}")
    finally:
        writer.close()


async def _ask(port: int, path: str, *fields: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection(HOST, port, limit=LINE_MAX_BYTES)
    writer.write("\r\n".join([f"GET {path} HTTP/1.1", f"Host: {HOST}", *fields, "", ""]).encode())
    return reader, writer
