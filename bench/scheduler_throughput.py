"""What the extender costs kube-scheduler: pods bound a second with it and without it, same settings, same pods.

Not Kubernetes' own scheduler_perf (`scheduler_perf.py`): that one has an API server of its own inside the test, and
creates pods while it measures. Here all pods wait before kube-scheduler starts, and binds are timed by the API server's
watch of pods.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any

import yaml
from tests.cluster.judge import GPUSHARE, Ledger
from tests.cluster.plane import Plane, pod

from fairlead.cli.scheduler import configuration
from fairlead.cluster.kinds import PODS
from fairlead.config.schedulerspec import ResourceSpec, SchedulerSpec, System

if TYPE_CHECKING:
    from collections.abc import Callable

SPEC = SchedulerSpec(resources=(ResourceSpec(System.GPUSHARE),))


async def measure(plane: Plane, pods: int, *, with_extender: bool) -> float:
    """Pods bound a second. The plane has its nodes, and no pods; it is left as it was."""
    rng = random.Random(1)
    made = [pod(f"p{number:05}", {GPUSHARE.resource: rng.randint(4, 40)}) for number in range(pods)]
    await plane.create(PODS, made, "default")
    times = Binds()
    await plane.follow_by(times)
    await plane.until(lambda: len(times.pods) == pods, "the watch has shown all pods")
    url = f"http://127.0.0.1:{plane.extender_port}"
    settings: dict[str, Any] = yaml.safe_load(configuration(SPEC, url, "default-scheduler"))
    if with_extender:
        await plane.start_extender({"resources": [{"system": "gpushare"}]})
    else:
        del settings["extenders"]
    await plane.start_scheduler(yaml.safe_dump(settings))
    await plane.until(lambda: len(times.at_s) == pods, "all pods are bound", 900)
    plane.processes["kube-scheduler"].end()
    if with_extender:
        plane.processes["extender"].end()
    await plane.delete(*(one["metadata"]["name"] for one in times.named()))
    await plane.until(lambda: not times.pods, "all pods are gone")
    return (pods - 1) / (max(times.at_s.values()) - min(times.at_s.values()))


class Binds(Ledger):
    """When each pod was seen on a node first, by uid."""

    def __init__(self) -> None:
        super().__init__()
        self.at_s: dict[str, float] = {}

    def put(self, item: dict[str, Any]) -> None:
        if item["spec"].get("nodeName"):
            self.at_s.setdefault(item["metadata"]["uid"], time.perf_counter())
        super().put(item)


async def run(plane: Plane, pods: int, rounds: int, say: Callable[[str], None]) -> list[tuple[float, float]]:
    """With and without it, round by round. The first of a round is the second of the next."""
    found = []
    for number in range(rounds):
        order = (True, False) if number % 2 == 0 else (False, True)
        taken = {}
        for with_extender in order:
            say(f"{pods:,} pods {'with' if with_extender else 'without'} the extender: {number + 1} of {rounds}")
            taken[with_extender] = await measure(plane, pods, with_extender=with_extender)
        found.append((taken[True], taken[False]))
    return found
