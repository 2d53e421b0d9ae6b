"""A recording of a daemon under the true kubelet comes out again: pods, a fault, restarts of both."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.node.cluster import Cluster
from tests.node.daemon import Fairlead, sim
from tests.node.rig.node import start_kubelet, stop_kubelet

Make = Callable[[dict[str, Any]], Fairlead]


def fairlead_says(*words: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "fairlead", *words, "--json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_what_was_answered_to_the_kubelet_is_answered_again(
    cluster: Cluster, fairlead: Make, resource: str, tmp_path: Path
):
    recording = tmp_path / "flight.rec"
    daemon = fairlead({**sim(resource, 4), "record": {"file": str(recording)}})
    daemon.start()
    listed = cluster.wait_offered(resource, 4)
    cluster.wait_numbers(resource, 4, 4, after=listed)
    kept = cluster.run_pod("kept", {resource: 2})
    short = cluster.run_pod("short", {resource: 1})
    held = cluster.ids(kept)
    free = next(slot for slot in (f"{resource.partition('/')[2]}-{number}" for number in range(4)) if slot not in held)
    daemon.order("fail", free, "xid=79")
    cluster.wait_offered(resource, 3)
    daemon.order("clear", free)
    cluster.wait_offered(resource, 4)
    short.delete()
    stop_kubelet()
    start_kubelet(wait=False)
    cluster.wait_offered(resource, 4)
    daemon.end()
    cluster.wait_offered(resource, 0)
    daemon.start()
    listed = cluster.wait_offered(resource, 4)
    cluster.wait_numbers(resource, 4, 4, after=listed)
    cluster.run_pod("later", {resource: 2})
    daemon.end()

    report = fairlead_says("replay", str(recording))
    assert report["differences"] == []
    assert report["same"]
    assert report["calls"] >= 6  # three pods, each with a preference
    assert report["lists"] >= 4
    decisions = fairlead_says("explain", "--recording", str(recording), "--slot", held[0])
    assert any(sorted(each["slots"]) == sorted(held) for each in decisions if each["call"] == "Allocate")
