"""The README's ten lines, word for word, on a true node."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.node.cluster import Cluster
from tests.node.daemon import Fairlead
from tests.node.rig.node import start_kubelet, stop_kubelet

LED = "example.com/led"
NAMES = ("ledtest0", "ledtest1")


@pytest.fixture
def leds() -> Iterator[None]:
    """Two of them in /dev, where the README looks. They are not real: they read zeros."""
    nodes = [Path("/dev") / name for name in NAMES]
    try:
        for node in nodes:
            os.mknod(node, stat.S_IFCHR | 0o666, os.makedev(1, 5))
        yield
    finally:
        for node in nodes:
            node.unlink(missing_ok=True)


def test_the_plugin_of_the_readme_serves_pods_and_survives_a_kubelet_restart(
    cluster: Cluster, fairlead: Callable[[dict[str, Any]], Fairlead], leds: None, tmp_path: Path
):
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    found = re.search(r"```python\n(.*?)```", readme, re.DOTALL)
    assert found is not None
    program = tmp_path / "leds.py"
    program.write_text(found[1])
    fairlead({}).run(str(program))
    cluster.wait_numbers(LED, 2, 2)
    script = "ls /dev; head -c 1 /dev/ledtest* | od -An -tx1; echo -- end; exec sleep 1000000"
    pod = cluster.run_pod("blinks", {LED: 1}, script=script)
    (held,) = cluster.ids(pod)
    assert [name for name in pod.prints() if name in NAMES] == [held]
    stop_kubelet()
    start_kubelet()
    cluster.wait_offered(LED, 2)
    assert cluster.ids(pod) == (held,)
