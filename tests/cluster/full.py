"""`make cluster-test-full`: 5,000 nodes and 20,000 pods; and the nodes that 600 pods take, with and without extender.

Prints tables for docs/guide/scheduler.md, and fails if a device was over-committed at any time. What it takes of
time depends on what else the machine does: the load is printed beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from fairlead.cluster.kinds import PODS
from tests import toolchain
from tests.cluster.judge import GPUSHARE, NATIVE, Ledger
from tests.cluster.plane import Plane, control_plane, pod

LOOK_S, SAY_S = 0.5, 15.0
PARTS = ("extender", "kube-scheduler", "kube-apiserver", "etcd", "kwok")
# kube-scheduler as it is without a configuration.
PLAIN = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
TICK = os.sysconf("SC_CLK_TCK")


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.full", description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=20_000)
    parser.add_argument("--only", choices=("scale", "packing"), help="one of the two tables")
    asked = parser.parse_args(words)
    try:
        good = True
        if asked.only != "packing":
            good &= asyncio.run(_on_a_plane(lambda plane: _scale(plane, asked.nodes, asked.pods)))
        if asked.only != "scale":
            print("\n| 600 pods of 4 to 40 units, 1,000 nodes with 8 GPUs of 80 | nodes used | pods a second |")
            print("|---|---|---|")
            print(f"| ideal: the sum, divided | {_ideal(_sizes(600))} | |")
            good &= asyncio.run(_on_a_plane(lambda plane: _packing(plane, with_extender=True)))
            good &= asyncio.run(_on_a_plane(lambda plane: _packing(plane, with_extender=False)))
    except (toolchain.ToolchainMissingError, toolchain.BuildFailedError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted: nothing is left behind", file=sys.stderr)
        return 130
    return 0 if good else 1


async def _on_a_plane(work: Callable[[Plane], Awaitable[bool]]) -> bool:
    with tempfile.TemporaryDirectory(prefix="fl-") as home:
        async with control_plane(Path(home)) as plane:
            return await work(plane)


def _sizes(count: int) -> list[int]:
    rng = random.Random(1)
    return [rng.randint(4, 40) for _ in range(count)]


def _ideal(sizes: list[int]) -> int:
    return math.ceil(sum(sizes) / (GPUSHARE.devices * GPUSHARE.units))


# --- Many nodes, many pods --------------------------------------------------------------------------------------------


async def _scale(plane: Plane, nodes: int, pods: int) -> bool:
    begun_s = time.monotonic()
    load = [os.getloadavg()[0]]
    await plane.add_nodes(f"node-{number:05}" for number in range(nodes))
    written_s = time.monotonic() - begun_s
    _say(f"{nodes:,} nodes are written in {written_s:.0f} s")
    await plane.start_kwok()
    await plane.begin()
    ledger = await plane.follow(GPUSHARE, NATIVE)
    sizes = _sizes(pods)
    begun_s, before = time.monotonic(), _cpu(plane)
    made = [pod(f"p{place:05}", {GPUSHARE.resource: size}) for place, size in enumerate(sizes)]
    creating = asyncio.create_task(plane.create(PODS, made, "default"))
    bound_s = await _reached(plane, ledger.bound, pods, "bound") - begun_s
    running_s = await _reached(plane, ledger.running, pods, "running") - begun_s
    await creating
    load.append(os.getloadavg()[0])
    cpu, pss = _cpu(plane), {name: _pss_mb(plane, name) for name in PARTS}
    print(f"\n| {nodes:,} nodes, {pods:,} pods of 4 to 40 units | |\n|---|---|")
    print(f"| first pod created → last one bound | {bound_s:.0f} s ({pods / bound_s:.0f} pods a second) |")
    print(f"| → last one Running | {running_s:.0f} s |")
    print(f"| nodes used, and the ideal | {len(ledger.nodes_used()):,}, {_ideal(sizes):,} |")
    print(f"| states in which a device was over-committed, or annotations were wrong | {len(ledger.faults)} |")
    print(f"| CPU for each pod: {', '.join(PARTS)} | {_each(cpu, before, pods)} ms |")
    print(f"| PSS: {', '.join(PARTS)} | {', '.join(f'{pss[name]:,.0f}' for name in PARTS)} MB |")
    print(f"| load of the machine, before and after | {load[0]:.1f}, {load[1]:.1f} |", flush=True)
    released_s = await _release(plane, ledger)
    print(f"| all deleted, and every device of every node given again to one pod a node | {released_s:.0f} s |")
    for fault in ledger.faults[:20]:
        print(fault, file=sys.stderr)
    return not ledger.faults


async def _release(plane: Plane, ledger: Ledger) -> float:
    """On 500 of the nodes: had one unit stayed booked there, one pod would wait."""
    begun_s = time.monotonic()
    used = sorted(ledger.nodes_used())[:500]
    await plane.delete(*(one["metadata"]["name"] for one in ledger.named()))
    await _reached(plane, lambda: -len(ledger.pods), 0, "gone")
    limits, labels = {GPUSHARE.resource: GPUSHARE.devices * GPUSHARE.units}, {GPUSHARE.count: str(GPUSHARE.devices)}
    made = [pod(f"all-of-{name}", limits, labels, nodeSelector={"name": name}) for name in used]
    await plane.create(PODS, made, "default")
    await _reached(plane, ledger.running, len(made), "running again")
    return time.monotonic() - begun_s


# --- Nodes used -------------------------------------------------------------------------------------------------------


async def _packing(plane: Plane, *, with_extender: bool) -> bool:
    """The default scheduler knows totals: what it does to single devices is not judged, only how it spreads."""
    await plane.add_nodes(f"node-{number:05}" for number in range(1000))
    ledger = await plane.follow(*((GPUSHARE, NATIVE) if with_extender else ()))
    await (plane.begin() if with_extender else plane.start_scheduler(PLAIN))
    sizes = _sizes(600)
    begun_s = time.monotonic()
    made = [pod(f"p{place:05}", {GPUSHARE.resource: size}) for place, size in enumerate(sizes)]
    await plane.create(PODS, made, "default")
    took_s = await _reached(plane, ledger.bound, len(sizes), "bound") - begun_s
    name = "kube-scheduler with the extender" if with_extender else "kube-scheduler alone, default settings"
    print(f"| {name} | {len(ledger.nodes_used())} | {len(sizes) / took_s:.0f} |", flush=True)
    return not ledger.faults


# --- Around them ------------------------------------------------------------------------------------------------------


async def _reached(plane: Plane, count: Callable[[], int], wanted: int, what: str) -> float:
    """When it was."""
    said_s = time.monotonic()
    while (found := count()) < wanted:
        for process in plane.processes.values():
            process.check()
        if time.monotonic() - said_s > SAY_S:
            said_s = time.monotonic()
            _say(f"{what}: {abs(found):,} of {wanted:,}, load {os.getloadavg()[0]:.1f}")
        await asyncio.sleep(LOOK_S)
    return time.monotonic()


def _cpu(plane: Plane) -> Mapping[str, float]:
    """Seconds of each program."""
    found = {}
    for name in PARTS:
        fields = Path(f"/proc/{plane.processes[name].pid}/stat").read_text().rpartition(")")[2].split()
        found[name] = (int(fields[11]) + int(fields[12])) / TICK
    return found


def _each(after: Mapping[str, float], before: Mapping[str, float], pods: int) -> str:
    return ", ".join(f"{(after[name] - before[name]) / pods * 1e3:.1f}" for name in PARTS)


def _pss_mb(plane: Plane, name: str) -> float:
    lines = Path(f"/proc/{plane.processes[name].pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:"))


def _say(text: str) -> None:
    print(f"· {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
