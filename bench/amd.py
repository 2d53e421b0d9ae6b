"""AMD GPUs: which devices a request gets, how long they take to be found, and what the daemon costs with 64 partitions.

Owns the made-up machines. What is wanted: SHEET. AMD's own plugin is not run here; its times are in bench/README.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench import measure
from bench.contestants import Contestant
from bench.rows import OURS, Results, Row, Sheet, Target
from tests.amd.machines import Gpu, Machine, mi300x
from tests.amd.tree import write

from fairlead.backends.amd.devices import make_findings
from fairlead.backends.amd.host import read_host
from fairlead.kit.hostroot import HostRoot
from fairlead.model.inventory import Inventory
from fairlead.model.names import ResourceName
from fairlead.model.resource import Resource, Strategy, Terms
from fairlead.policy.offering.rules import Rule, make_offering
from fairlead.policy.placement.place import place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bench.measure import Effort, OpenKubelet

    from fairlead.model.inventory import Findings

RESOURCE = "amd.com/gpu"
SCANS = 5
ASKS = {"6/16": (16, 6), "8/16": (16, 8), "62/63": (63, 62), "12/64": (64, 12)}  # of so many, so many
SHEET = Sheet(
    "amd",
    "AMD GPUs: 16 whole ones, or 8 in 8 partitions each",
    (),
    (
        Row("6/16", "preferred, 6 of 16 GPUs", "ms", 2),
        Row("8/16", "preferred, 8 of 16 GPUs", "ms", 2),
        Row("62/63", "preferred, 62 of 63 partitions", "ms", 2),
        Row("12/64", "preferred, 12 of 64 partitions", "ms", 2),
        Row("discovery", "discovery of 64 partitions", "ms"),
        Row("start_registered", "start → registered", "ms", 0),
        Row("pss", "PSS", "MB", 1),
        Row("rss", "RSS", "MB", 1),
        Row("idle_cpu", "idle CPU", "% of a core", 3),
    ),
    (
        *(Target(name, None, at_most=5) for name in ASKS),
        Target("discovery", None, at_most=50),
        Target("idle_cpu", None, at_most=0.1),
    ),
)


def sixteen() -> Machine:
    """Sixteen GPUs in four hives of four."""
    gpus = (Gpu(f"0000:{0x05 + 8 * n:02x}:00.0", 128 + n, str(n // 8), hive=1 + n // 4) for n in range(16))
    return Machine(tuple(gpus))


@contextlib.contextmanager
def written(machine: Machine) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="fl-", dir="/tmp") as home:
        yield write(Path(home), machine)


def contestant(root: Path) -> Contestant:
    def launch(directory: Path) -> Sequence[str | Path]:
        own = directory.parent
        places = [f"--plugin-dir={directory}", f"--status-socket={own}/s.sock", f"--pod-resources={own}/none.sock"]
        return [Path(sys.executable).with_name("fairlead"), "amd", f"--host-root={root}", *places]

    return Contestant(OURS, RESOURCE, launch)


async def run(effort: Effort, open_kubelet: OpenKubelet, say: Callable[[str], None]) -> Results:
    results = Results(SHEET)
    with written(sixteen()) as whole, written(mi300x("CPX", "NPS1")) as cut:
        found = {16: scan(whole), 64: scan(cut)}
        found[63] = found[64]
        for number in range(effort.rounds):
            say(f"AMD GPUs: {number + 1} of {effort.rounds}")
            results.add(OURS, {name: preferred_ms(found[of], of, size) for name, (of, size) in ASKS.items()})
            results.add(OURS, {"discovery": min(_time_ms(scan, cut) for _ in range(SCANS))})
            results.add(OURS, await measure.start_times(contestant(cut), open_kubelet, effort))
        async with measure.staged(contestant(cut), open_kubelet) as stage:
            results.add(OURS, measure.footprint(stage))
            await asyncio.sleep(measure.SETTLE_S)
            for number in range(effort.idle_windows):
                say(f"idling for {effort.idle_s:.0f} s, {number + 1} of {effort.idle_windows}")
                results.add(OURS, {"idle_cpu": (await measure.idle_cpu([stage], effort.idle_s))[OURS]})
    return results


def scan(root: Path) -> Findings:
    return make_findings(read_host(HostRoot(str(root))))


def preferred_ms(found: Findings, of: int, size: int) -> float:
    """The first time that it is asked: nothing of an answer is known yet. The best of a few, as for all short times."""
    return min(_ask(found, of, size) for _ in range(SCANS))


def _ask(found: Findings, of: int, size: int) -> float:
    rule = Rule(resource=ResourceName(RESOURCE), terms=Terms(strategy=Strategy.CLOSEST))
    resource: Resource
    (resource,) = make_offering(Inventory(found.devices, found.links), [rule]).resources
    slots = [slot.id for slot in resource.slots]
    place(resource, slots, [], 1)  # what is known of a resource is worked out once
    return _time_ms(place, resource, slots[:of], [], size)


def _time_ms(act: Callable[..., object], *given: object) -> float:
    begin = time.perf_counter()
    act(*given)
    return (time.perf_counter() - begin) * 1e3
