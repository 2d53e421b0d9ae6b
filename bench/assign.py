"""`fairlead gpushare`: what an admission costs, with one pod that waits and with a crowd of them.

Owns the machine, the crowd and what is asked. The API server and the kubelet's pod-resources run in a process of their
own (cluster.py). What is wanted: SHEET.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import measure
from bench.cluster import Cluster
from bench.contestants import Contestant
from bench.rows import OURS, Results, Row, Sheet, Target
from tests.nvml import Driver, gpus
from tests.nvml.library import CompilerMissingError, compiled
from tests.system.desk import GPUSHARE, NODE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.measure import Effort, OpenKubelet, Stage
    from tests.nvml import Node

ALONE = "one pod"
CARDS, CARD_GIB = 8, 80
ASKED = 8  # GiB
HERE, ELSEWHERE = 200, 5000
IN_A_ROW = 50
SEEN_S = 0.02  # for the watch to tell of a pod: the kubelet learns of it in the same way
WARM_UP = 5
PATIENCE_S = 60.0

SHEET = Sheet(
    "assign",
    f"`fairlead gpushare`: {HERE} pods wait on the node and {ELSEWHERE:,} on others, beside one pod alone",
    (ALONE,),
    (
        Row("allocate_p50", "Allocate p50", "ms"),
        Row("allocate_p99", "Allocate p99", "ms"),
        Row("admit_p50", "preferred + Allocate p50", "ms"),
        Row("admit_p99", "preferred + Allocate p99", "ms"),
        Row("answered", f"{IN_A_ROW} pods in a row, answered", "pods/s", 0),
        Row("marked", f"{IN_A_ROW} pods in a row, answered and marked", "pods/s", 0),
        Row("pss", "PSS", "MB", 1),
    ),
    (
        Target("allocate_p50", ALONE, at_most=2),
        Target("admit_p50", ALONE, at_most=2),
        Target("marked", None, at_least=25),
    ),
)


def missing() -> str | None:
    try:
        compiled()
    except CompilerMissingError as error:
        return str(error)
    return None


async def run(effort: Effort, open_kubelet: OpenKubelet, say: Callable[[str], None]) -> Results:
    results = Results(SHEET)
    driver = Driver(gpus=gpus("H100", CARDS, memory_total=CARD_GIB << 30))
    # In /tmp itself, as the plugin's directory: sockets lie in it.
    with (
        tempfile.TemporaryDirectory(prefix="fl-", dir="/tmp") as root,
        driver.installed(Path(root, "machine")) as machine,
    ):
        for number in range(effort.rounds):
            for name in (OURS, ALONE) if number % 2 else (ALONE, OURS):
                say(f"assignment: {number + 1} of {effort.rounds}: {name if name is ALONE else 'the crowd'}")
                async with Cluster(Path(tempfile.mkdtemp(prefix="c", dir=root))) as cluster:
                    if name is OURS:
                        await cluster.ask("put", pods=_crowd(number))
                    async with measure.staged(_contestant(cluster, machine), open_kubelet) as stage:
                        results.add(name, await _Round(stage, cluster).numbers(effort))
    return results


def _crowd(seed: int) -> list[dict[str, Any]]:
    """All were promised their cards later than those that are asked for. Some ask for just as much."""
    choose = random.Random(seed)
    pods = [{"name": f"waits-{number}", "node": NODE} for number in range(HERE)]
    pods += [{"name": f"other-{number}", "node": f"n-{number % 100}x"} for number in range(ELSEWHERE)]
    later = itertools.count(10**18)
    return [
        {**pod, "amount": choose.randint(1, 2 * ASKED), "card": choose.randrange(CARDS), "time": next(later)}
        for pod in pods
    ]


def _contestant(cluster: Cluster, machine: Node) -> Contestant:
    env = {**machine.env, "KUBECONFIG": str(cluster.kubeconfig), "NODE_NAME": NODE}
    variables = [f"{key}={value}" for key, value in env.items()]

    def launch(directory: Path) -> Sequence[str | Path]:
        words: list[str | Path] = ["gpushare", "--plugin-dir", directory]
        words += ["--status-socket", directory.parent / "s.sock", "--pod-resources", cluster.pod_resources]
        return ["env", *variables, Path(sys.executable).with_name("fairlead"), *words]

    return Contestant(OURS, GPUSHARE.resource, launch)


class _Round:
    """Pods come, are admitted and go. A kubelet gives an id to one container at a time, and so does this."""

    def __init__(self, stage: Stage, cluster: Cluster) -> None:
        self._stage = stage
        self._cluster = cluster
        self._times = itertools.count(10**9)
        self._of: list[list[str]] = []

    async def numbers(self, effort: Effort) -> dict[str, float]:
        ids = await self._stage.ids()
        self._of = [ids[card * CARD_GIB :][:CARD_GIB] for card in range(CARDS)]
        count = max(20, effort.calls // 10)
        # Memory first: the calls leave journal lines and connections.
        numbers = {"pss": measure.footprint(self._stage)["pss"]}
        for key, call in (("allocate", self._allocate), ("admit", self._admit)):
            taken = [await self._alone(f"{key}-{number}", number % CARDS, call) for number in range(WARM_UP + count)]
            sample = sorted(taken[WARM_UP:])
            numbers |= {f"{key}_p50": statistics.median(sample), f"{key}_p99": sample[int(len(sample) * 0.99)]}
        return numbers | await self._in_a_row()

    async def _alone(self, name: str, card: int, call: Callable[[int, Sequence[str]], Any]) -> float:
        await self._put([(name, card)])
        await asyncio.sleep(SEEN_S)
        ids = self._of[card][:ASKED]
        took_ms = await call(card, ids)
        await self._cluster.ask("hold", pod=name, ids=ids)
        await self._cluster.ask("drop", pods=[name])
        return float(took_ms)

    async def _in_a_row(self) -> dict[str, float]:
        pods = [(f"row-{number}", number % CARDS) for number in range(IN_A_ROW)]
        await self._put(pods)
        await asyncio.sleep(10 * SEEN_S)
        free = [list(ids) for ids in self._of]
        begun_ns = (await self._cluster.ask("now"))["at_ns"]
        for name, card in pods:
            ids = free[card][:ASKED]  # the first that are free: what is preferred
            await self._admit(card, [i for left in free for i in left])
            del free[card][:ASKED]
            await self._cluster.ask("hold", pod=name, ids=ids)
        answered_ns = (await self._cluster.ask("now"))["at_ns"]
        names = [name for name, _ in pods]
        marked_ns = (await self._cluster.ask("marked", pods=names))["at_ns"]
        return {
            "answered": IN_A_ROW / ((answered_ns - begun_ns) / 1e9),
            "marked": IN_A_ROW / ((marked_ns - begun_ns) / 1e9),
        }

    async def _put(self, pods: Sequence[tuple[str, int]]) -> None:
        made = [{"name": name, "amount": ASKED, "card": card, "time": next(self._times)} for name, card in pods]
        await self._cluster.ask("put", pods=made)

    async def _allocate(self, _card: int, ids: Sequence[str]) -> float:
        asked = await self._stage.ask("allocate", ids=list(ids), count=1, timeout_s=PATIENCE_S)
        return float(asked["spread"]["p50_us"]) / 1e3

    async def _admit(self, _card: int, ids: Sequence[str]) -> float:
        """Among all ids of the node, unless some are given."""
        available = list(ids) if len(ids) > ASKED else [i for mine in self._of for i in mine]
        asked = await self._stage.ask("admit", available=available, size=ASKED, count=1, timeout_s=PATIENCE_S)
        return float(asked["spread"]["p50_us"]) / 1e3
