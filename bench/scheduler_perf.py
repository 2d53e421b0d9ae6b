"""What the extender costs kube-scheduler, by Kubernetes' own benchmark: scheduler_perf with it and without it.

scheduler_perf is not changed (`tests/cluster/go/schedulerperf`). It has the API server and the scheduler in its own
process, creates nodes and pods, and tells how many pods were bound a second. Both runs have the same nodes, pods and
settings, except for the extender: without one, memory of GPUs is an extended resource as any other.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
from asyncio.subprocess import DEVNULL
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from bench.process import PluginFailedError
from bench.rows import OURS, Results, Row, Sheet, Target
from tests import toolchain
from tests.cluster.judge import GPUSHARE
from tests.cluster.plane import free_ports, node, pod

from fairlead.cli.scheduler import configuration
from fairlead.config.schedulerspec import ResourceSpec, SchedulerSpec, System

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.measure import Effort

ALONE = "kube-scheduler alone"
SPEC = SchedulerSpec(resources=(ResourceSpec(System.GPUSHARE),))
BEFORE = (4, 12, 28, 40)  # what pods ask for that are there already
SIZE = 10  # what those ask for that are counted
LIMIT_S = 900.0
Extender = dict[str, Any]  # what its configuration has besides


@dataclass(frozen=True, slots=True)
class Workload:
    nodes: int
    before: int  # pods of each size that are there when it begins
    pods: int  # that are counted


THOUSAND, ONE, FIVE_THOUSAND = "thousand", "one", "five_thousand"
PLAN: tuple[tuple[Workload, dict[str, Extender | None]], ...] = (
    (Workload(1000, 50, 2000), {ALONE: None, THOUSAND: {}, ONE: {"nodes": 1}}),
    (Workload(5000, 50, 1000), {ALONE: None, FIVE_THOUSAND: {}}),
)
SHEET = Sheet(
    "scheduler-perf",
    "Kubernetes' scheduler_perf: pods with memory of GPUs, with the extender and without",
    (ALONE,),
    (
        Row(THOUSAND, "1,000 nodes: pods bound", "a second", 0),
        Row(ONE, "the same, one node in each answer", "a second", 0),
        Row(FIVE_THOUSAND, "5,000 nodes: pods bound", "a second", 0),
    ),
    tuple(Target(key, ALONE, at_least=0.85) for key in (THOUSAND, FIVE_THOUSAND)),
)


def missing() -> str | None:
    try:
        for name in ("etcd", "scheduler-perf"):
            toolchain.build(name)
    except toolchain.ToolchainMissingError as error:
        return str(error)
    return None


async def run(effort: Effort, say: Callable[[str], None]) -> Results:
    """Round by round. The first of a round is the last of the next."""
    results = Results(SHEET)
    for number in range(effort.rounds):
        for work, forms in PLAN:
            taken = {}
            for form, extender in list(forms.items())[:: 1 if number % 2 else -1]:
                who = ALONE if extender is None else f"with the extender {extender or ''}".rstrip()
                say(f"scheduler_perf, {work.nodes:,} nodes, {who}: {number + 1} of {effort.rounds}")
                with tempfile.TemporaryDirectory(prefix="fl-", dir="/tmp") as home:
                    taken[form] = await measure(Path(home), work, extender)
                say(f"{taken[form]:.0f} pods a second")
            alone = taken.pop(ALONE)
            for key, found in taken.items():
                results.add(OURS, {key: found})
                results.add(ALONE, {key: alone})
    return results


async def measure(home: Path, work: Workload, extender: Extender | None) -> float:
    """Pods bound a second, as scheduler_perf has it: the mean of its samples, one a second."""
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    _write(home, work, url, extender)
    (home / "etcd").symlink_to(toolchain.build("etcd"))
    modules = toolchain.run([toolchain.find_go()[0], "env", "GOMODCACHE"], toolchain.CLUSTER_ROOT).stdout.strip()
    env = {
        **os.environ,
        "PATH": f"{home}:{os.environ['PATH']}",
        # Its API server reads certificates beside its sources, and paths in our programs begin with the module.
        "TEST_SRCDIR": modules,
        "TEST_WORKSPACE": ".",
        "TMPDIR": str(home),
    }
    if extender is not None:
        words = [sys.executable, "-m", "fairlead", "scheduler", "--config", str(home / "extender.json")]
        env |= {
            "EXTENDER": json.dumps(words),
            "EXTENDER_READY": f"{url}/readyz",
            "KUBECONFIG": str(home / "kubeconfig"),
        }
    flags = ("-test.run=^$", "-test.bench=.", "-test.benchtime=1x", "-data-items-dir=.")
    words = [str(toolchain.build("scheduler-perf")), *flags]
    with (home / "output.log").open("wb") as log:
        running = await asyncio.create_subprocess_exec(
            *words, cwd=home, env=env, stdin=DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
        try:
            status = await asyncio.wait_for(running.wait(), LIMIT_S)
        except BaseException:
            os.killpg(running.pid, signal.SIGKILL)  # with its etcd and its extender, which it would leave behind
            await running.wait()
            raise
    if status != 0:
        tail = "\n".join((home / "output.log").read_text(errors="replace").splitlines()[-20:])
        raise PluginFailedError(f"scheduler_perf ended with {status}:\n{tail}")
    return _throughput(home)


def _write(home: Path, work: Workload, url: str, extender: Extender | None) -> None:
    settings: dict[str, Any] = yaml.safe_load(configuration(SPEC, url, "default-scheduler"))
    if extender is None:
        del settings["extenders"]
    listen = {"listen": [url.removeprefix("http://")], "resources": [{"system": "gpushare"}], **(extender or {})}
    files = {
        "extender.json": listen,
        "scheduler.yaml": settings,
        "node.yaml": _unnamed(node("node", GPUSHARE.offer)),
        **{f"pod-{size}.yaml": _unnamed(pod("pod", {GPUSHARE.resource: size})) for size in (*BEFORE, SIZE)},
        "performance-config.yaml": [_case(work)],
    }
    for name, content in files.items():
        (home / name).write_text(json.dumps(content))  # JSON is YAML


def _case(work: Workload) -> dict[str, Any]:
    return {
        "name": "Sharing",
        "schedulerConfigPath": "scheduler.yaml",
        "labels": ["performance"],
        "workloadTemplate": [
            {"opcode": "createNodes", "count": work.nodes, "nodeTemplatePath": "node.yaml"},
            *(_pods(size, work.before) for size in BEFORE),
            {**_pods(SIZE, work.pods), "collectMetrics": True},
        ],
        "workloads": [{"name": f"{work.nodes}Nodes"}],
    }


def _pods(size: int, count: int) -> dict[str, Any]:
    return {"opcode": "createPods", "count": count, "podTemplatePath": f"pod-{size}.yaml"}


def _unnamed(thing: dict[str, Any]) -> dict[str, Any]:
    """A template: every object that is made of it gets a name of its own, in a namespace of its own."""
    meta = {key: value for key, value in thing["metadata"].items() if key not in ("name", "namespace")}
    return {**thing, "metadata": {**meta, "generateName": f"{thing['metadata']['name']}-"}}


def _throughput(home: Path) -> float:
    (file,) = home.glob("BenchmarkPerfScheduling_benchmark_*.json")
    items = json.loads(file.read_text())["dataItems"]
    (found,) = [item["data"]["Average"] for item in items if item["labels"]["Metric"] == "SchedulingThroughput"]
    return float(found)
