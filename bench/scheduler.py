"""The scheduler extender beside a true API server: a filter over all nodes, a start with all pods, binds, memory; and
what it costs a true kube-scheduler (`scheduler_throughput.py`).

Owns the cluster that is written down: nodes with eight GPUs, and pods on them. What is wanted: SHEET. The figures of
gpushare's extender cannot be taken here (its module cannot be had); they are 477 and 695 ms for a filter, 5.8 s for a
start, 1,159 MB, and 2.5 binds a second.
"""

from __future__ import annotations

import asyncio
import json
import random
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import scheduler_throughput
from bench.process import rollup
from bench.rows import OURS, Results, Row, Sheet, Target
from tests import toolchain
from tests.cluster.judge import GPUSHARE
from tests.cluster.plane import Plane, control_plane, node, pod

from fairlead.cluster.kinds import NODES, PODS

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.measure import Effort

DEVICES, UNITS, MEMORY = GPUSHARE.devices, GPUSHARE.units, GPUSHARE.resource
ALONE = "kube-scheduler alone"
SHEET = Sheet(
    "scheduler",
    "the scheduler extender: 5,000 nodes with 8 GPUs, 20,000 pods",
    (ALONE,),
    (
        Row("filter_p50", "filter over all nodes, p50", "ms"),
        Row("filter_p99", "filter over all nodes, p99", "ms"),
        Row("refused_p50", "filter that fits nowhere, p50", "ms"),
        Row("start", "start → ready", "s"),
        Row("pss", "PSS", "MB", 1),
        Row("binds", "binds", "a second", 0),
        Row("pods", "kube-scheduler, 1,000 nodes: pods bound", "a second", 0),
    ),
    (
        Target("filter_p50", None, at_most=5),
        Target("filter_p99", None, at_most=25),
        Target("start", None, at_most=5),
        Target("pss", None, at_most=80),
        Target("binds", None, at_least=100),
        Target("pods", ALONE, at_least=0.85),
    ),
)


def missing() -> str | None:
    try:
        for name in ("etcd", "kube-apiserver", "kube-scheduler"):
            toolchain.build(name)
    except toolchain.ToolchainMissingError as error:
        return str(error)
    return None


async def run(effort: Effort, say: Callable[[str], None], nodes: int = 5000, pods: int = 20_000) -> Results:
    """`nodes`, `pods`: fewer for a look."""
    results = Results(SHEET)
    names = [f"node-{number:05}.zone.example.internal" for number in range(nodes)]
    with tempfile.TemporaryDirectory(prefix="fl-", dir="/tmp") as home:
        async with control_plane(Path(home)) as plane:
            say(f"writing {nodes:,} nodes and {pods:,} pods down")
            await plane.create(NODES, [node(name, GPUSHARE.offer) for name in names])
            await plane.create(PODS, list(_held(names, pods)), "default")
            for number in range(effort.rounds):
                say(f"the extender: {number + 1} of {effort.rounds}")
                results.add(OURS, await _round(plane, names, effort.calls // 4, number))
    with tempfile.TemporaryDirectory(prefix="fl-", dir="/tmp") as home:
        async with control_plane(Path(home)) as plane:
            await plane.create(NODES, [node(name, GPUSHARE.offer) for name in names[:1000]])
            for ours, alone in await scheduler_throughput.run(plane, min(pods, 1000), effort.rounds, say):
                results.add(OURS, {"pods": ours})
                results.add(ALONE, {"pods": alone})
    return results


def _held(names: list[str], count: int) -> list[dict[str, Any]]:
    rng = random.Random(1)
    made = []
    for number in range(count):
        one = pod(f"held-{number:05}", {MEMORY: rng.randint(4, 15)}, nodeName=names[number % len(names)])
        one["metadata"]["annotations"] = {GPUSHARE.index: str(number // len(names) % DEVICES)}
        made.append(one)
    return made


async def _round(plane: Plane, names: list[str], calls: int, number: int) -> dict[str, float]:
    begin = time.perf_counter()
    await plane.start_extender({"resources": [{"system": "gpushare"}]})
    numbers = {"start": time.perf_counter() - begin}
    client = Caller(plane.extender_port)
    await client.open()
    rng = random.Random(number)
    fits = [await client.filter(pod(f"ask-{one}", {MEMORY: rng.randint(4, 40)}), names) for one in range(calls)]
    refused = [await client.filter(pod("big", {MEMORY: UNITS + 1}), names) for _ in range(20)]
    numbers |= {"filter_p50": _at(fits, 0.5), "filter_p99": _at(fits, 0.99), "refused_p50": _at(refused, 0.5)}
    numbers["pss"] = rollup(plane.processes["extender"].pid)["Pss"] / 1024
    numbers["binds"] = await _binds(plane, names, number)
    client.close()
    plane.processes["extender"].end()
    return numbers


async def _binds(plane: Plane, names: list[str], number: int, count: int = 200, at_once: int = 16) -> float:
    waiting = [pod(f"bind-{number}-{one}", {MEMORY: 4}) for one in range(count)]
    made = await plane.create(PODS, waiting, "default")
    left = [(one.name, one.uid, names[place]) for place, one in enumerate(made)]
    begin = time.perf_counter()

    async def work() -> None:
        client = Caller(plane.extender_port)
        await client.open()
        while left:
            name, uid, to = left.pop()
            body = {"PodName": name, "PodNamespace": "default", "PodUID": uid, "Node": to}
            answer = await client.ask("bind", body)
            if answer["Error"]:
                raise OSError(f"{name} was not bound: {answer['Error']}")
        client.close()

    await asyncio.gather(*(work() for _ in range(at_once)))
    return count / (time.perf_counter() - begin)


class Caller:
    """One connection that is kept, as kube-scheduler keeps it."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def open(self) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port, limit=2**24)

    async def filter(self, thing: dict[str, Any], names: list[str]) -> float:
        """How long it took, in ms, from the first byte out to the last byte in."""
        thing["metadata"]["uid"] = f"uid-{thing['metadata']['name']}"
        raw = json.dumps({"Pod": thing, "Nodes": None, "NodeNames": names}).encode()
        begin = time.perf_counter()
        await self._send("filter", raw)
        return (time.perf_counter() - begin) * 1e3

    async def ask(self, verb: str, body: Any) -> Any:
        return json.loads(await self._send(verb, json.dumps(body).encode()))

    async def _send(self, verb: str, raw: bytes) -> bytes:
        head = f"POST /scheduler/{verb} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(raw)}\r\n\r\n"
        self._writer.write(head.encode() + raw)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        length = next(line for line in answer.split(b"\r\n") if line.lower().startswith(b"content-length:"))
        return await self._reader.readexactly(int(length.partition(b":")[2]))

    def close(self) -> None:
        self._writer.close()


def _at(numbers: list[float], share: float) -> float:
    ordered = sorted(numbers)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]
