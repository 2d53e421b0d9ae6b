"""Labels: what NVIDIA's gpu-feature-discovery wrote, over all recordings, is what ours writes on the same driver."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.clock import FakeClock
from tests.nvml import from_recording
from tests.recorded.differences import LABEL_DIFFERENCES
from tests.vectors import drivers, gfd

from fairlead.model.errors import FairleadError
from fairlead.programs.labels import loop

CASES = {name: case for name, case in gfd().items() if case.api_state is None and "node-feature" not in name}
# A difference that is meant, and the labels it touches: docs/guide/nvidia.md has the reasons.
MODEL = frozenset({"product", "memory", "family", "compute.major", "compute.minor"})
OTHERWISE = {
    "003-default-rtx4090x2": ("mode", frozenset({"mode"})),
    "012-default-mixed-models": ("models", MODEL),
    "013-default-titanx-k80": ("models", MODEL),
    "054-mig-single-mixed-models": ("models", MODEL),
    "104-name-long": ("cut", frozenset({"product"})),
    "117-fault-DeviceGetMemoryInfo-999": ("one-fails", frozenset({"memory"})),
    "119-fault-DeviceGetCudaComputeCapability-999": ("one-fails", None),
    "120-fault-DeviceGetPciInfo-999": ("one-fails", frozenset({"count", "mode"})),
}


class Kept:
    def __init__(self) -> None:
        self.labels: dict[str, str] = {}

    async def write(self, labels: dict[str, str]) -> None:
        self.labels = dict(labels)

    async def withdraw(self) -> None:
        pass


def discover(name: str, directory: Path) -> dict[str, str]:
    case = CASES[name]
    driver = from_recording(drivers()[case.driver])
    config = directory / "config.yaml"
    config.write_text(case.config_file or "")
    args = [word.replace("/config/config.yaml", str(config)) for word in case.argv[1:]]
    with driver.installed(directory / "machine") as node, node.loaded():
        args += [f"--host-root={node.root}", "--driver-root-ctr-path=/", "--lenient"]
        if driver.sysfs:
            (node.root / "sys/bus/pci/devices").mkdir(parents=True, exist_ok=True)
        if "--machine-type-file" not in " ".join(args) and "machineTypeFile" not in (case.config_file or ""):
            args.append(f"--machine-type-file={node.root}/sys/class/dmi/id/product_name")
        settings = loop.read_settings(args, case.env)
        assert isinstance(settings, loop.Settings)
        kept = Kept()
        asyncio.run(loop.run(settings, kept, FakeClock(), asyncio.Event(), lambda _: None))  # type: ignore[arg-type]  # a mapping
        return kept.labels


@pytest.mark.parametrize("name", CASES)
def test_labels(name: str, tmp_path: Path):
    recorded = CASES[name].result
    if recorded.exit_code and name not in OTHERWISE:
        with pytest.raises(FairleadError):
            discover(name, tmp_path)
        return
    ours, theirs = discover(name, tmp_path), recorded.labels or {}
    difference, touched = OTHERWISE.get(name, ("models", frozenset()))
    assert difference in LABEL_DIFFERENCES
    if touched is None:
        assert ours
        return
    beside = {f"nvidia.com/gpu.{word}" for word in touched}
    assert {key: ours[key] for key in ours.keys() - beside} == {key: theirs[key] for key in theirs.keys() - beside}
    assert not touched or ours != theirs  # a difference that is over is taken from the list
