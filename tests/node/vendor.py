"""A container runtime of NVIDIA's kind: it gives the driver to containers that ask for it by their environment.

The node's handler `nvidia` is this program. As the real one it edits the container's description, and leaves the rest
to runc.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.node.nvidia import ZERO, make_harmless
from tests.node.rig.api import Api, RefusedError
from tests.node.rig.needs import PACKAGES
from tests.node.rig.places import VENDOR_RUNTIME
from tests.nvml import Driver, Node
from tests.nvml.library import compiled_or_skip
from tests.peers.nvidia.place import CONTROL

CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
CLASS = "nvidia"
LIBRARY = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"
ASKS = "NVIDIA_VISIBLE_DEVICES"
_PROGRAM = """\
#!{python} -IS
import json, os, sys
told = json.loads({told!r})
if "create" in sys.argv:
    path = os.path.join(sys.argv[sys.argv.index("--bundle") + 1], "config.json")
    with open(path) as file:
        spec = json.load(file)
    env = dict(pair.split("=", 1) for pair in spec["process"]["env"])
    asked = env.get(told["asks"], "void").split(",")
    nodes = [node for name, node in told["gpus"].items() if name in asked or asked == ["all"]]
    if nodes or asked == ["all"]:
        for source, target in told["mounts"].items():
            options = ["rbind", "ro", "nosuid", "nodev"]
            spec["mounts"].append(dict(destination=target, source=source, type="bind", options=options))
        number = dict(type="c", major={major}, minor={minor})
        devices = [dict(path=node, fileMode=0o666, **number) for node in nodes]
        spec["linux"]["devices"] = spec["linux"].get("devices", []) + devices
        spec["linux"]["resources"].setdefault("devices", []).append(dict(allow=True, access="rw", **number))
        with open(path, "w") as file:
            json.dump(spec, file)
os.execv({runc!r}, [{runc!r}, *sys.argv[1:]])
"""


@contextmanager
def installed(driver: Driver, directory: Path) -> Iterator[Node]:
    """The driver, its runtime, and the class by which pods name it."""
    compiled_or_skip()
    api = Api()
    with driver.installed(directory) as machine:
        make_harmless(machine.root / "dev")
        _write(machine)
        api.call("POST", CLASSES, {"metadata": {"name": CLASS}, "handler": CLASS})
        try:
            yield machine
        finally:
            with suppress(RefusedError):
                api.call("DELETE", f"{CLASSES}/{CLASS}")
            # The program stays: without it containers that are still there could not be ended.


def _write(machine: Node) -> None:
    told: dict[str, Any] = {
        "asks": ASKS,
        "gpus": {gpu.uuid: f"/dev/nvidia{gpu.minor}" for gpu in machine.driver.gpus},
        "mounts": {str(machine.library): LIBRARY, str(machine.control): CONTROL},
    }
    number = {"major": os.major(ZERO), "minor": os.minor(ZERO)}
    text = _PROGRAM.format(python=sys.executable, told=json.dumps(told), runc=str(PACKAGES["runc"]), **number)
    VENDOR_RUNTIME.write_text(text)
    VENDOR_RUNTIME.chmod(0o755)
