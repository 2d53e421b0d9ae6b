"""Nodes whose CDI specifications were recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from fairlead.backends.nvidia.spec import Options
from fairlead.kit.decoding import convert

VECTORS = json.loads((Path(__file__).parents[3] / "vectors/nvidia_injection/cdi.json").read_text())
CASES = VECTORS["cases"]


def options_below(root: Path, recorded: dict[str, Any]) -> Options:
    options = convert(recorded, Options, "recorded")
    mount = f"{root}{options.driver_root_mount}".rstrip("/")
    return replace(
        options,
        host_root=str(root),
        driver_root_mount=mount,
        cdi=replace(options.cdi, directory=f"{root}/var/run/cdi"),
    )


def recorded(case: dict[str, Any]) -> dict[str, dict[str, Any]]:
    specs: dict[str, dict[str, Any]] = json.loads(json.dumps(case["specs"]))
    for spec in specs.values():
        spec["containerEdits"] = VECTORS["common"][spec.pop("common")]
    return specs
