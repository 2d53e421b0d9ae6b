"""`fairlead gpushare`: what an admission costs, with one pod that waits and with a crowd of them.

Owns the machines, the crowd and what is asked. The API server and the kubelet's pod-resources run in a process of their
own (cluster.py). What is wanted: SHEET.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import measure
from bench.cluster import Cluster
from bench.contestants import Contestant
from bench.process import PluginFailedError
from bench.rows import OURS, Results, Row, Sheet, Target
from tests.nvml import Driver, gpus
from tests.system.desk import GPUSHARE, NODE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.measure import Effort, OpenKubelet, Stage
    from tests.nvml import Node

ALONE = "one pod"
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
        Row("allocate_mib_p50", "1,024 units: Allocate p50", "ms"),
        Row("admit_mib_p50", "1,024 units: preferred + Allocate p50", "ms"),
        Row("answered", f"{IN_A_ROW} pods in a row, answered", "pods/s", 0),
        Row("marked", f"{IN_A_ROW} pods in a row, answered and marked", "pods/s", 0),
        Row("cpu", f"{IN_A_ROW} pods in a row, CPU of the plugin", "ms/pod"),
        Row("pss", "PSS", "MB", 1),
    ),
    (
        Target("allocate_p50", ALONE, at_most=2),
        Target("admit_p50", ALONE, at_most=2),
        Target("allocate_mib_p50", ALONE, at_most=2),
        Target("admit_mib_p50", ALONE, at_most=2),
        Target("marked", None, at_least=25),
    ),
)


@dataclass(frozen=True, slots=True)
class Load:
    """A machine, and what is asked of it."""

    unit: str
    unit_bytes: int
    cards: int
    card_units: int
    asked: int

    @property
    def driver(self) -> Driver:
        return Driver(gpus=gpus("H100", self.cards, memory_total=self.card_units * self.unit_bytes))

    def crowd(self, seed: int) -> list[dict[str, Any]]:
        """All were promised their cards later than those that are asked for. Some ask for just as much."""
        choose = random.Random(seed)
        pods = [{"name": f"waits-{number}", "node": NODE} for number in range(HERE)]
        pods += [{"name": f"other-{number}", "node": f"n-{number % 100}x"} for number in range(ELSEWHERE)]
        return [
            {
                **pod,
                "amount": self.asked if number % 8 == 0 else choose.randint(1, 2 * self.asked),
                "card": choose.randrange(self.cards),
                "time": 10**18 + number,
            }
            for number, pod in enumerate(pods)
        ]


LARGE = Load("GiB", 1 << 30, cards=8, card_units=80, asked=8)
FINE = Load("MiB", 1 << 20, cards=1, card_units=24 * 1024, asked=1024)  # many ids in each call


async def run(effort: Effort, open_kubelet: OpenKubelet, say: Callable[[str], None]) -> Results:
    results = Results(SHEET)
    for number in range(effort.rounds):
        for name in (OURS, ALONE) if number % 2 else (ALONE, OURS):
            say(f"assignment: {number + 1} of {effort.rounds}: {name if name is ALONE else 'the crowd'}")
            for load in (LARGE, FINE):
                seed = number if name is OURS else None
                results.add(name, await _run(load, seed, effort, open_kubelet))
    return results


async def _run(load: Load, seed: int | None, effort: Effort, open_kubelet: OpenKubelet) -> dict[str, float]:
    """`seed`: of the crowd; None: there is none."""
    # In /tmp itself, as the plugin's directory: sockets lie in it.
    with (
        tempfile.TemporaryDirectory(prefix="fl-", dir="/tmp") as root,
        load.driver.installed(Path(root, "machine")) as machine,
    ):
        async with Cluster(Path(root)) as cluster:
            if seed is not None:
                await cluster.ask("put", pods=load.crowd(seed))
            async with measure.staged(_contestant(load, cluster, machine), open_kubelet) as stage:
                return await _Round(load, stage, cluster).numbers(effort)


def _contestant(load: Load, cluster: Cluster, machine: Node) -> Contestant:
    env = {**machine.env, "KUBECONFIG": str(cluster.kubeconfig), "NODE_NAME": NODE}
    variables = [f"{key}={value}" for key, value in env.items()]

    def launch(directory: Path) -> Sequence[str | Path]:
        words: list[str | Path] = ["gpushare", f"--memory-unit={load.unit}", "--plugin-dir", directory]
        words += ["--status-socket", directory.parent / "s.sock", "--pod-resources", cluster.pod_resources]
        return ["env", *variables, Path(sys.executable).with_name("fairlead"), *words]

    return Contestant(OURS, GPUSHARE.resource, launch)


class _Round:
    """Pods come, are admitted and go. A kubelet gives an id to one container at a time, and so does this."""

    def __init__(self, load: Load, stage: Stage, cluster: Cluster) -> None:
        self._load = load
        self._stage = stage
        self._cluster = cluster
        self._times = itertools.count(10**9)
        self._of: list[list[str]] = []  # the ids of each card

    async def numbers(self, effort: Effort) -> dict[str, float]:
        load = self._load
        ids = await self._stage.ids()
        if len(ids) != load.cards * load.card_units:
            raise PluginFailedError(f"{len(ids):,} units were listed, not {load.cards * load.card_units:,}")
        self._of = [ids[card * load.card_units :][: load.card_units] for card in range(load.cards)]
        memory = measure.footprint(self._stage)["pss"]  # before the calls: they leave lines in the journal
        if load is FINE:
            allocate, admit = await self._one_by_one(effort)
            return {"allocate_mib_p50": statistics.median(allocate), "admit_mib_p50": statistics.median(admit)}
        numbers = {"pss": memory}
        for key, sample in zip(("allocate", "admit"), await self._one_by_one(effort), strict=True):
            numbers |= {f"{key}_p50": statistics.median(sample), f"{key}_p99": sample[int(len(sample) * 0.99)]}
        return numbers | await self._in_a_row()

    async def _one_by_one(self, effort: Effort) -> tuple[list[float], list[float]]:
        count = WARM_UP + max(20, effort.calls // 10)
        every = [i for mine in self._of for i in mine]
        allocate = [await self._admit_one(f"a-{number}", number, None) for number in range(count)]
        admit = [await self._admit_one(f"p-{number}", number, every) for number in range(count)]
        return sorted(allocate[WARM_UP:]), sorted(admit[WARM_UP:])

    async def _admit_one(self, name: str, number: int, available: Sequence[str] | None) -> float:
        """A pod that comes, is admitted, and goes. How long the admission took, in milliseconds."""
        card = number % self._load.cards
        await self._put([(name, card)])
        await asyncio.sleep(SEEN_S)
        ids = self._of[card][: self._load.asked]
        took_ms = await self._admit(available) if available else await self._allocate(ids)
        await self._cluster.ask("hold", pod=name, ids=ids)
        await self._cluster.ask("drop", pods=[name])
        return took_ms

    async def _in_a_row(self) -> dict[str, float]:
        asked = self._load.asked
        pods = [(f"row-{number}", number % self._load.cards) for number in range(IN_A_ROW)]
        await self._put(pods)
        await asyncio.sleep(10 * SEEN_S)
        free = [list(ids) for ids in self._of]
        begun_ns, cpu_ns = (await self._cluster.ask("now"))["at_ns"], self._stage.plugin.cpu_ns()
        for name, card in pods:
            ids = free[card][:asked]  # the first that are free: what is preferred
            await self._admit([i for left in free for i in left])
            del free[card][:asked]
            await self._cluster.ask("hold", pod=name, ids=ids)
        answered_ns = (await self._cluster.ask("now"))["at_ns"]
        marked_ns = (await self._cluster.ask("marked", pods=[name for name, _ in pods]))["at_ns"]
        return {
            "answered": IN_A_ROW / ((answered_ns - begun_ns) / 1e9),
            "marked": IN_A_ROW / ((marked_ns - begun_ns) / 1e9),
            "cpu": (self._stage.plugin.cpu_ns() - cpu_ns) / IN_A_ROW / 1e6,
        }

    async def _put(self, pods: Sequence[tuple[str, int]]) -> None:
        amount = self._load.asked
        made = [{"name": name, "amount": amount, "card": card, "time": next(self._times)} for name, card in pods]
        await self._cluster.ask("put", pods=made)

    async def _allocate(self, ids: Sequence[str]) -> float:
        asked = await self._stage.ask("allocate", ids=list(ids), count=1, timeout_s=PATIENCE_S)
        return float(asked["spread"]["p50_us"]) / 1e3

    async def _admit(self, available: Sequence[str]) -> float:
        asked = await self._stage.ask(
            "admit", available=list(available), size=self._load.asked, count=1, timeout_s=PATIENCE_S
        )
        return float(asked["spread"]["p50_us"]) / 1e3
