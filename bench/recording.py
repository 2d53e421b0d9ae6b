"""What a recorder costs a daemon: memory, Allocate and idle CPU, with `record.file` unset and set.

Owns the two ways to run it. What is wanted: SHEET. The daemon is compared with itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from bench import contestants, measure
from bench.rows import OURS, Results, Row, Sheet, Target

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from bench.contestants import Contestant
    from bench.measure import Effort, OpenKubelet, Stage

OFF, ON = "off", "recorded"
WAYS = {OFF: "without a recorder", ON: "with one"}
TURNS, SPELLS = 10, 6  # a few calls each, in turn: the oftener they alternate, the less other work counts
SHEET = Sheet(
    "recording",
    "our daemon without and with a recorder",
    (),
    (
        *(Row(f"pss_{way}", f"PSS, {title}", "MB", 2) for way, title in WAYS.items()),
        Row("more", "PSS on top", "MB", 2),
        *(Row(f"p50_{way}", f"Allocate p50, {title}", "ms", 3) for way, title in WAYS.items()),
        *(Row(f"p99_{way}", f"Allocate p99, {title}", "ms", 3) for way, title in WAYS.items()),
        Row("times", "Allocate p50, with one over without", "x", 3),
        *(Row(f"idle_{way}", f"idle CPU, {title}", "% of a core", 3) for way, title in WAYS.items()),
    ),
    (Target("more", None, at_most=1.0), Target("times", None, at_most=1.05)),
)


async def run(effort: Effort, open_kubelet: OpenKubelet, say: Callable[[str], None]) -> Results:
    results = Results(SHEET)
    with tempfile.TemporaryDirectory(prefix="fl-", dir="/tmp") as home:
        file = str(Path(home, "flight.rec"))
        field = {OFF: contestants.ours(name=OFF), ON: contestants.ours(name=ON, record={"file": file})}
        say("warming up: without and with a recorder")  # who compiles byte code keeps megabytes of that
        async with _all(field, open_kubelet) as stages:
            await _calls(stages, measure.QUICK)
        for number in range(effort.rounds):
            say(f"without and with a recorder, side by side: {number + 1} of {effort.rounds}")
            async with _all(field, open_kubelet) as stages:
                numbers = await _calls(stages, effort)
                pss_mb = {way: measure.footprint(stage)["pss"] for way, stage in stages.items()}
                memory = {f"pss_{way}": value for way, value in pss_mb.items()}
                results.add(OURS, {**numbers, **memory, "more": pss_mb[ON] - pss_mb[OFF]})
        async with _all(field, open_kubelet) as stages:
            await asyncio.sleep(measure.SETTLE_S)
            for number in range(effort.idle_windows):
                say(f"idling for {effort.idle_s:.0f} s, {number + 1} of {effort.idle_windows}")
                idle = await measure.idle_cpu(list(stages.values()), effort.idle_s)
                results.add(OURS, {f"idle_{way}": percent for way, percent in idle.items()})
    return results


async def _calls(stages: Mapping[str, Stage], effort: Effort) -> dict[str, float]:
    """In turn, a few calls each, so that both have the same share of whatever else the machine does."""
    p50_ms: dict[str, list[float]] = {way: [] for way in WAYS}
    p99_ms: dict[str, list[float]] = {way: [] for way in WAYS}
    ids = {way: await stage.ids() for way, stage in stages.items()}
    count, warmup = max(1, effort.calls // TURNS), effort.warmup_calls // TURNS
    for number in range(SPELLS * TURNS):
        order = list(stages.items())[:: 1 if number % 2 else -1]
        for way, stage in order:
            asked = await stage.ask("allocate", ids=ids[way][:1], count=count, warmup=warmup, timeout_s=120.0)
            p50_ms[way].append(asked["spread"]["p50_us"] / 1e3)
            p99_ms[way].append(asked["spread"]["p99_us"] / 1e3)
    return {
        **{f"p50_{way}": statistics.median(sample) for way, sample in p50_ms.items()},
        **{f"p99_{way}": statistics.median(sample) for way, sample in p99_ms.items()},
        "times": statistics.median(a / b for a, b in zip(p50_ms[ON], p50_ms[OFF], strict=True)),
    }


@contextlib.asynccontextmanager
async def _all(field: Mapping[str, Contestant], open_kubelet: OpenKubelet) -> AsyncIterator[dict[str, Stage]]:
    async with contextlib.AsyncExitStack() as stack:
        yield {
            way: await stack.enter_async_context(measure.staged(contestant, open_kubelet))
            for way, contestant in field.items()
        }
