"""The suite: how it is built, which specs of it are run, and on how many nodes."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from tests import toolchain

MODULE = Path(__file__).parent / "go"
KUBERNETES = "k8s.io/kubernetes"


@dataclass(frozen=True, slots=True)
class Spec:
    """One test of the suite that uses the sample plugin."""

    name: str
    about_s: int  # how long it takes, more or less: the longest begin, so that nobody waits for one at the end

    @property
    def focus(self) -> str:
        """The pattern that chooses it. It is matched against the texts of a spec and all that it stands in."""
        return re.escape(self.name).replace("\\ ", " ")


_KEEPS = "Keeps device plugin assignments"
SPECS = (
    # device_plugin_test.go
    Spec("Can schedule a pod that requires a device", 45),
    Spec("can make a CDI device accessible in a container", 15),
    Spec(f"{_KEEPS} across pod restarts (no kubelet restart, no device plugin restart)", 135),
    Spec(f"{_KEEPS} across kubelet restarts (no pod restart, no device plugin restart)", 50),
    Spec(f"{_KEEPS} across pod and kubelet restarts (no device plugin restart)", 110),
    Spec("will not attempt to admit the succeeded pod after the kubelet restart and device plugin removed", 95),
    Spec(f"{_KEEPS} after the device plugin has restarted (no kubelet restart, pod restart)", 50),
    Spec(f"{_KEEPS} after kubelet restart and device plugin restart (no pod restart)", 60),
    Spec("[OrphanedPods] Ensures pods consuming devices deleted while kubelet is down are cleaned up correctly", 20),
    Spec("Can schedule a pod with a restartable init container", 45),
    Spec(
        "Does not keep device plugin assignments across node reboots if fails admission (no pod restart, no device "
        "plugin re-registration)",
        30,
    ),
    # device_manager_test.go
    Spec(
        "should deploy pod consuming devices first but fail with admission error after kubelet restart in case "
        "device plugin hasn't re-registered",
        25,
    ),
    # podresources_test.go
    Spec("should return proper podresources the same as before the restart of kubelet", 30),
)
# What a plugin that never registers a second time must not get past, and what it must fail with.
TELLING = SPECS[3]
TELLING_WORDS = "expected resource to be available after restart"


def build() -> Path:
    major, minor = _version().removeprefix("v").split(".")[:2]
    known = {"gitVersion": _version(), "gitMajor": major, "gitMinor": minor}
    stamp = " ".join(f"-X k8s.io/component-base/version.{key}={value}" for key, value in known.items())
    return toolchain.make("e2e_node", toolchain.Program(MODULE, ".", "edits.json", stamp, stage=stage))


def stage(go: str) -> Path:
    """The package as it is in the module cache, with our few changes, in a module of its own.

    A changed copy of this one package, so that everything that it is made of is compiled once for all programs.
    """
    told = toolchain.run([go, "list", "-m", "-f", "{{.Dir}}", KUBERNETES], MODULE)
    if told.returncode != 0:
        raise toolchain.BuildFailedError(f"{KUBERNETES} is not in the module cache: {told.stderr.strip()}")
    place = toolchain.cache_dir() / f"e2e_node-{_version()}"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    for source in [MODULE / "go.mod", MODULE / "go.sum", *Path(told.stdout.strip(), "test", "e2e_node").glob("*.go")]:
        (place / source.name).write_bytes(source.read_bytes())
    for edit in json.loads((MODULE / "edits.json").read_text()):
        text = (place / edit["file"]).read_text()
        if text.count(edit["from"]) != 1:
            raise toolchain.BuildFailedError(f"{edit['file']} does not have {edit['from']!r} once; see {MODULE}")
        (place / edit["file"]).write_text(text.replace(edit["from"], edit["to"]))
    return place


def _version() -> str:
    return toolchain.required(MODULE, KUBERNETES)
