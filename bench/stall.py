"""How long a list keeps the true kubelet busy: on the node of tests/node, with all listed slots held by one pod.

Owns the sizes and how the time is read: from our publishing a list to the kubelet's word that it has processed it. What
the list of a node without pods takes is taken off. Beside it stands what the model (policy/offering/stall.py) says.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.rows import OURS, Results, Row, Sheet, Target

from fairlead.policy.offering.stall import PAIR_S, stall_s

if TYPE_CHECKING:
    from bench.measure import Effort

SIZES = (512, 1024, 2048, 4096, 8192)
FLIPS = 3
PATIENCE_S = 120.0
HEALTH = {"probeInterval": "50ms", "hold": "50ms", "probation": "50ms", "cleanProbes": 1, "suspect": "60s"}
PROCESSED = re.compile(
    r'^I(\d{4} [\d:.]+) .*"Processed device updates for resource".* resourceName="([^"]+)" .*healthyCount=(\d+)',
    re.MULTILINE,
)

SHEET = Sheet(
    "kubelet",
    "the true kubelet, busy with a list of slots that one pod holds",
    (),
    (
        *(Row(f"stall_{size}", f"{size:,} slots, all held", "s", 3) for size in SIZES),
        Row("pair", "of that, a slot and a held id", "ns", 1),
    ),
    (
        Target("stall_2048", None, at_most=stall_s(2048, 2048)),
        Target("pair", None, at_most=1e9 * PAIR_S),
    ),
)


def missing() -> str:
    """Why there is no node to measure on; empty if there is one."""
    from tests.node.rig import needs  # noqa: PLC0415 - only this group needs a node
    from tests.node.rig.steps import NodeMissingError  # noqa: PLC0415 - as above

    try:
        needs.check()
    except NodeMissingError as reason:
        return str(reason)
    return ""


def run(effort: Effort, say: Callable[[str], None]) -> Results:
    results = Results(SHEET)
    with _node() as cluster:
        for number in range(min(effort.rounds, 2)):
            numbers: dict[str, float] = {}
            for size in SIZES:
                say(f"the kubelet with {size:,} slots held: {number + 1}")
                numbers[f"stall_{size}"] = _busy_s(cluster, f"example.com/stall-{number}-{size}", size)
            numbers["pair"] = numbers[f"stall_{SIZES[-1]}"] / SIZES[-1] ** 2 * 1e9
            results.add(OURS, numbers)
    return results


def _busy_s(cluster: Any, resource: str, size: int) -> float:
    from tests.node.daemon import Fairlead  # noqa: PLC0415 - only this group needs a node

    fleet = {"name": "card", "devices": [{"count": 1, "vendor": "sim", "memory": f"{size}MiB"}]}
    config = {
        "backends": [{"kind": "sim", "fleet": fleet}],
        "rules": [{"resource": resource, "memory": {"unit": "1MiB"}}],
        "health": HEALTH,
    }
    with tempfile.TemporaryDirectory() as root, ExitStack() as stack:
        daemon = Fairlead(Path(root), config)
        daemon.start()
        stack.callback(daemon.end)
        cluster.wait_numbers(resource, size, size, patience_s=PATIENCE_S)
        idle_s = min(_flips_s(daemon, resource, size))
        cluster.run_pod(f"holds-{size}", {resource: size})
        try:
            busy_s = min(_flips_s(daemon, resource, size))
        finally:
            cluster.remove_pods()
    return busy_s - idle_s


def _flips_s(daemon: Any, resource: str, size: int) -> Iterator[float]:
    """The card fails and recovers: each time every slot changes."""
    for _ in range(FLIPS):
        for order, healthy in (("fail", 0), ("recover", size)):
            began = time.time()
            daemon.order(order, "0", *(("code=smoke", "kind=needs-reset") if order == "fail" else ()))
            sent = daemon.wait_fact("published", after=began, resource=resource)
            yield _processed(resource, healthy, sent) - sent


def _processed(resource: str, healthy: int, after: float) -> float:
    """When the kubelet said that it has taken the list in."""
    from tests.node.rig.places import LOGS  # noqa: PLC0415 - only this group needs a node
    from tests.node.rig.steps import until  # noqa: PLC0415 - as above

    def seen() -> list[float]:
        found = PROCESSED.findall((LOGS / "kubelet.log").read_text(errors="replace"))
        times = [_when(at) for at, name, count in found if name == resource and int(count) == healthy]
        return [at for at in times if at >= after]

    return until(seen, f"the kubelet has processed {resource}", PATIENCE_S, 0.05)[0]


def _when(text: str) -> float:
    year = datetime.now(UTC).year
    return datetime.strptime(f"{year}{text} +0000", "%Y%m%d %H:%M:%S.%f %z").timestamp()


@contextmanager
def _node() -> Iterator[Any]:
    """A node that is up is used and left alone."""
    from tests.node.cluster import Cluster  # noqa: PLC0415 - only this group needs a node
    from tests.node.rig import node as rig  # noqa: PLC0415 - as above
    from tests.node.rig import process  # noqa: PLC0415 - as above

    with process.alone():
        found = rig.is_up()
        if not found:
            rig.up()
        try:
            yield Cluster()
        finally:
            if not found:
                rig.down()
