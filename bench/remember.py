"""A daemon that starts again on a slow driver: with what it knew of the same boot, and without.

Owns the driver and the starts. What is wanted: SHEET. The daemon is compared with itself.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import measure
from bench.contestants import Contestant
from bench.rows import OURS, Results, Row, Sheet, Target
from tests.nvml import Driver, gpus
from tests.nvml.node import CONTROL
from tests.unit.backends.nvidia.drivers import options

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.measure import Effort, OpenKubelet
    from tests.nvml import Node

SLOW_S = 2  # each call; a first scan makes two
RESOURCE = "nvidia.com/gpu"
WAYS = {"known": "devices of the same boot known", "unknown": "nothing known (scan.remember: false)"}
SHEET = Sheet(
    "remember",
    f"our daemon, started again on a driver whose nvmlInit takes {SLOW_S} s, twice in a scan",
    (),
    (
        *(Row(f"registered_{way}", f"start → registered, {title}", "ms", 0) for way, title in WAYS.items()),
        *(Row(f"listed_{way}", f"start → first list, {title}", "ms", 0) for way, title in WAYS.items()),
        Row("earlier", "first list earlier by", "ms", 0),
    ),
    (Target("earlier", None, at_least=1500.0 * SLOW_S),),
)


async def run(effort: Effort, open_kubelet: OpenKubelet, say: Callable[[str], None]) -> Results:
    results = Results(SHEET)
    with (
        tempfile.TemporaryDirectory(prefix="fl-", dir="/tmp") as home,
        Driver(gpus=gpus("H100", 8)).installed(Path(home)) as node,
    ):
        for number in range(effort.rounds):
            numbers: dict[str, float] = {}
            for way, title in WAYS.items():
                say(f"a slow driver, {title}: {number + 1} of {effort.rounds}")
                numbers |= await _again(way, node, open_kubelet)
            numbers["earlier"] = numbers["listed_unknown"] - numbers["listed_known"]
            results.add(OURS, numbers)
    return results


async def _again(way: str, node: Node, open_kubelet: OpenKubelet) -> dict[str, float]:
    """The second start in a plugin directory: a daemon has scanned a quick driver there, and ended."""
    contestant = _contestant(node, remember=way == "known")
    with tempfile.TemporaryDirectory(prefix="fl-", dir="/tmp") as home:
        node.mend()
        async with measure.staged(contestant, open_kubelet, home=home):
            pass
        node.slow("nvmlInit", SLOW_S * 1000)
        async with measure.staged(contestant, open_kubelet, home=home) as stage:
            start_ns = stage.plugin.started_ns
            registered_ms = (stage.registered_ns - start_ns) / 1e6
            listed_ms = (stage.listed["frame_ns"] - start_ns) / 1e6
    return {f"registered_{way}": registered_ms, f"listed_{way}": listed_ms}


def _contestant(node: Node, *, remember: bool) -> Contestant:
    def launch(directory: Path) -> Sequence[str | Path]:
        home = directory.parent
        config: dict[str, Any] = {
            "backends": [{"kind": "nvidia", **options(node)}],
            "rules": [{"resource": RESOURCE}],
            "kubelet": {"directory": str(directory), "podResources": ""},
            "status": {"socket": str(home / "s.sock")},
            "scan": {"remember": remember},
        }
        file = home / "config.json"
        file.write_text(json.dumps(config))
        ours = Path(sys.executable).with_name("fairlead")
        return ["env", f"{CONTROL}={node.control}", ours, "run", "--config", file]

    return Contestant(OURS, RESOURCE, launch)
