"""The CDI specs, compared with those that NVIDIA's own library wrote for the same files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.backends.nvidia.cdi import CASES, VECTORS, options_below, recorded
from tests.unit.backends.nvidia.tree import look_of, plant, read_made_up

from fairlead.backends.nvidia.cdi.specs import make_specs
from fairlead.backends.nvidia.hostnodes import find_host_nodes
from fairlead.backends.nvidia.snapshot import Platform
from fairlead.inject import cdi


def make(root: Path, case: dict[str, Any]) -> dict[str, dict[str, Any]]:
    gpus, tree = VECTORS["gpus"][case["gpus"]], VECTORS["trees"][case["tree"]]
    plant(root, tree, gpus)
    options = options_below(root, case["options"])
    host_nodes = find_host_nodes(options, Platform.NVML, read_made_up)
    specs = make_specs(options, look_of(gpus, tree["version"]), host_nodes, read_made_up)
    return {cdi.file_name(spec.kind): json.loads(cdi.encode(spec)) for spec in specs}


def drop_host_paths(spec: dict[str, Any]) -> None:
    """Difference `host-path`: a node that has the same path on the host and in the container needs one path."""
    for part in (spec, *spec["devices"]):
        for node in part["containerEdits"].get("deviceNodes", []):
            if node.get("hostPath") == node["path"]:
                del node["hostPath"]


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_the_specs_are_those_that_nvidia_writes(case: dict[str, Any], tmp_path: Path) -> None:
    ours, theirs = make(tmp_path, case), recorded(case)
    assert ours.keys() == theirs.keys()
    gpus = VECTORS["gpus"][case["gpus"]]
    cut = {gpu["uuid"] for gpu in gpus if gpu.get("mig_enabled")} | {
        str(gpu["index"]) for gpu in gpus if gpu.get("mig_enabled")
    }
    for name, spec in ours.items():
        expected = theirs[name]
        drop_host_paths(expected)
        if name.endswith("-gpu.json"):
            if case["options"]["mig"] == "none":
                # Difference `whole-gpu`: what Allocate names can be resolved.
                named = {device["name"] for device in spec["devices"]}
                assert {gpu["uuid"] for gpu in gpus} <= named or {str(gpu["index"]) for gpu in gpus} <= named
                spec["devices"] = [device for device in spec["devices"] if device["name"] not in cut]
            # Difference `missing-node`: the nodes of a GPU or an instance are named also while they are missing.
            for device in spec["devices"]:
                nodes = device["containerEdits"]["deviceNodes"]
                device["containerEdits"]["deviceNodes"] = [node for node in nodes if "major" in node]
        # Difference `version`: with fewer host paths an older version may do.
        assert spec.pop("cdiVersion") <= expected.pop("cdiVersion")
        assert spec == expected
