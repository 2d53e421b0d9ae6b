"""Plugins written with the library, on a true node: the README's ten lines, word for word; and one that uses CDI."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.node.cluster import Cluster
from tests.node.daemon import Fairlead
from tests.node.rig import settings
from tests.node.rig.node import start_kubelet, stop_kubelet

LED = "example.com/led"
WIDGET = "example.com/widget"
NAMES = ("ledtest0", "ledtest1")

WIDGETS = """
import fairlead


class Widgets(fairlead.Plugin):
    resource = "example.com/widget"

    def discover(self):
        return [fairlead.Device("w0"), fairlead.Device("w1")]

    def edits(self, grant):
        return fairlead.Edits(cdi=tuple(f"example.com/widget={device.id}" for device in grant.devices))


fairlead.run(Widgets())
"""


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


@pytest.fixture
def spec() -> Iterator[None]:
    """Tells the runtime what the two widgets put into a container."""

    def device(name: str) -> dict[str, Any]:
        node = {"path": f"/dev/cdi-{name}", "type": "c", "major": 1, "minor": 5}
        return {"name": name, "containerEdits": {"env": [f"CDI_DEVICE={name}"], "deviceNodes": [node]}}

    file = settings.CDI / "widgets.json"
    kind = {"cdiVersion": "0.6.0", "kind": "example.com/widget"}
    file.write_text(json.dumps({**kind, "devices": [device("w0"), device("w1")]}))
    try:
        yield
    finally:
        file.unlink()


def test_a_container_sees_its_cdi_device_and_no_other(
    cluster: Cluster, fairlead: Callable[[dict[str, Any]], Fairlead], spec: None, tmp_path: Path
):
    program = tmp_path / "widgets.py"
    program.write_text(WIDGETS)
    fairlead({}).run(str(program))
    cluster.wait_numbers(WIDGET, 2, 2)
    pod = cluster.run_pod("cdi", {WIDGET: 1}, script="env; ls /dev; echo -- end; exec sleep 1000000")
    (held,) = cluster.ids(pod)
    assert [name for name in pod.prints() if name.startswith("cdi-")] == [f"cdi-{held}"]
    assert pod.env()["CDI_DEVICE"] == held
