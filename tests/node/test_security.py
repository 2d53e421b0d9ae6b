"""How much each mode may do, by the kernel's word: the table of the guide, read from containers that run.

The guide is docs/guide/deploy.md. What the manifests say is compared elsewhere; here it is in force.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.chart import helm
from tests.node import charted, vendor
from tests.node.cluster import Cluster
from tests.node.living import living
from tests.node.rig import door
from tests.node.rig.api import Api
from tests.node.rig.steps import NodeFailedError, until
from tests.nvml import Driver, gpus
from tests.nvml import Node as Machine

SYS_ADMIN = 1 << 21
MOUNTS = ("/var/lib/kubelet/pod-resources", "/host/sys", "/host/dev", "/sys", "/etc/nvidia")  # where there: read-only


@dataclass(frozen=True, slots=True)
class Level:
    """What /proc says of a process."""

    capabilities: int
    gains_no_more: bool  # no privilege escalation
    filtered: bool  # by the runtime's seccomp profile
    root_is_read_only: bool = True
    writable: tuple[str, ...] = ()  # of those that are read-only by the guide


# A container has no more than the node itself, which may lack some.
ALL = int(re.findall(r"^CapEff:\s*(\w+)", Path("/proc/self/status").read_text(), re.MULTILINE)[0], 16)
RESTRICTED = Level(0, gains_no_more=True, filtered=True)
ADMIN = Level(SYS_ADMIN, gains_no_more=False, filtered=True)
# The runtime filters no calls of a privileged container, and gives it a /sys that it may write, whatever its pod says.
PRIVILEGED = Level(ALL, gains_no_more=False, filtered=False, writable=("/sys",))

MOUNTED = replace(PRIVILEGED, writable=())  # the host's is in its place

GENERIC = {"devices": [{"name": "null", "groups": [{"paths": [{"path": "/dev/null"}]}]}]}
SMARTER = {"devices": [{"devicematch": "^null$", "nummaxdevices": 1}]}
# By the name of a release: its values, and the level of the last container of each of its components.
TOGETHER: Mapping[str, tuple[dict[str, Any], dict[str, Level]]] = {
    "nvidia": ({"gfd": {"enabled": True}}, {"plugin": RESTRICTED, "gfd": ADMIN}),
    "amd": ({"amd": {"labeller": {"enabled": True}}}, {"plugin": PRIVILEGED, "amd-labeller": MOUNTED}),
    "gke": ({}, {"plugin": PRIVILEGED}),
    "generic": ({"generic": GENERIC}, {"plugin": RESTRICTED}),
    "smarter": ({"smarter": SMARTER}, {"plugin": RESTRICTED}),
    "gpushare": ({}, {"plugin": RESTRICTED}),
    "volcano": ({}, {"plugin": RESTRICTED}),
    "doslab": ({}, {"plugin": RESTRICTED}),
    "fairlead": ({}, {"plugin": RESTRICTED}),
}
# Each alone: they serve the same resource.
VARIANTS: Mapping[str, tuple[dict[str, Any], Level]] = {
    "mig": ({"migStrategy": "mixed"}, ADMIN),
    "volumes": ({"deviceListStrategy": "volume-mounts"}, ADMIN),
    "nodes": ({"compatWithCPUManager": True}, PRIVILEGED),
}


class Releases:
    def __init__(self, api: Api, machine: Machine) -> None:
        self._api = api
        self._machine = machine
        self._made: list[str] = []

    def install(self, name: str, dialect: str, more: Mapping[str, Any]) -> None:
        """On every node, whatever its labels."""
        own = charted.values("example.com/secured", 1)["fairlead"] if dialect == "fairlead" else {}
        needs_driver = dialect in {"nvidia", "gpushare", "volcano", "doslab"}
        given = {
            "dialect": dialect,
            "image": charted.image(),
            "affinity": None,
            "runtimeClassName": vendor.CLASS if needs_driver else None,
            **({"fairlead": own} if own else {}),
            **({"gke": {"driverDir": str(self._machine.root)}} if dialect == "gke" else {}),
            **more,
        }
        self._made.append(name)
        charted.run_helm("install", name, str(helm.CHART), values=given)

    def remove(self) -> None:
        while self._made:
            charted.run_helm("uninstall", self._made.pop())
        until(lambda: not charted.pods(self._api), "their pods are gone", 90.0)

    def wait_level(self, name: str, component: str, expected: Level) -> None:
        last: list[Level | None] = []

        def look() -> bool:
            last[:] = [self._level(name, component)]
            return last == [expected]

        try:
            until(look, f"{name}, {component} runs as {expected}", 60.0, 0.2)
        except NodeFailedError as error:
            raise NodeFailedError(f"{error}; the kernel says {last}") from None

    def _level(self, name: str, component: str) -> Level | None:
        for pod in charted.pods(self._api):
            labels = pod["metadata"]["labels"]
            if (labels["app.kubernetes.io/instance"], charted.component_of(pod)) == (name, component):
                program = pod["spec"]["containers"][-1]["name"]
                found = [one for one in living() if (one.pod, one.container) == (pod["metadata"]["name"], program)]
                return _level_of(found[0].pid) if found else None
        return None


def _level_of(pid: int) -> Level | None:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        mounts = [line.split() for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines()]
    except OSError:  # it has ended
        return None
    status = {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}
    read_only = {fields[4]: "ro" in fields[5].split(",") for fields in mounts}
    return Level(
        int(status["CapEff"], 16),
        gains_no_more=status["NoNewPrivs"] == "1",
        filtered=status["Seccomp"] == "2",
        root_is_read_only=read_only["/"],
        writable=tuple(path for path in MOUNTS if not read_only.get(path, True)),
    )


@pytest.fixture
def releases(cluster: Cluster, space: Api, image: str, tmp_path: Path) -> Iterator[Releases]:
    with ExitStack() as stack:
        machine = stack.enter_context(vendor.installed(Driver(gpus=gpus("A100", 1)), tmp_path / "gpus"))
        stack.enter_context(door.to_api_server())
        made = Releases(space, machine)
        stack.callback(made.remove)
        yield made


def test_each_mode_runs_with_what_the_guide_says_and_no_more(releases: Releases):
    for name, (more, _) in TOGETHER.items():
        releases.install(name, name, more)
    for name, (_, levels) in TOGETHER.items():
        for component, level in levels.items():
            releases.wait_level(name, component, level)


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_a_value_needs_is_granted_by_it(releases: Releases, variant: str):
    more, level = VARIANTS[variant]
    releases.install(variant, "nvidia", more)
    releases.wait_level(variant, "plugin", level)
