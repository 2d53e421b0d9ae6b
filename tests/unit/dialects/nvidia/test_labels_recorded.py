"""Labels: what NVIDIA's gpu-feature-discovery wrote, over all recordings, is what ours writes on the same driver."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.clock import FakeClock
from tests.nvml import from_recording
from tests.vectors import drivers, gfd

from fairlead.dialects.nvidia.labels import loop
from fairlead.model.errors import FairleadError

CASES = {name: case for name, case in gfd().items() if case.api_state is None and "node-feature" not in name}
# A difference that is meant: its reason, and the labels it touches.
MODEL = frozenset({"product", "memory", "family", "compute.major", "compute.minor"})
OTHERWISE = {
    "003-default-rtx4090x2": ("the PCI class is known without a NUMA node", frozenset({"mode"})),
    "012-default-mixed-models": ("of several models the most numerous, not one by chance", MODEL),
    "013-default-titanx-k80": ("of several models the first of equals, not one by chance", MODEL),
    "054-mig-single-mixed-models": ("of several models the most numerous, not one by chance", MODEL),
    "104-name-long": ("a value that Kubernetes would refuse is cut to 63 characters", frozenset({"product"})),
    "117-fault-DeviceGetMemoryInfo-999": ("another GPU of the model knows its memory", frozenset({"memory"})),
    "119-fault-DeviceGetCudaComputeCapability-999": ("one GPU that fails costs its own labels only", None),
    "120-fault-DeviceGetPciInfo-999": ("a GPU without a PCI address is not counted", frozenset({"count", "mode"})),
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
    _, touched = OTHERWISE.get(name, ("", frozenset()))
    if touched is None:
        assert ours
        return
    beside = {f"nvidia.com/gpu.{word}" for word in touched}
    assert {key: ours[key] for key in ours.keys() - beside} == {key: theirs[key] for key in theirs.keys() - beside}
    assert not touched or ours != theirs  # a difference that is over is taken from the list
