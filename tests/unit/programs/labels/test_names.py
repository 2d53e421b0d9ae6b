"""Labels and the plugin read one config file: what the labels say is what the plugin offers, strict and lenient."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlead.backends.nvidia.devices import make_devices
from fairlead.backends.nvidia.snapshot import Gpu, MigAttributes, MigDevice, Platform, Snapshot
from fairlead.backends.nvidia.spec import MigStrategy
from fairlead.config.load import build
from fairlead.dialects.configfile import BadFile
from fairlead.dialects.nvidia.command import read_command_line
from fairlead.model.inventory import Inventory
from fairlead.policy.offering.rules import make_offering
from fairlead.programs.labels import loop
from fairlead.programs.labels.catalogue import Facts, make_labels
from fairlead.programs.labels.names import find_offered

A100, L40 = "NVIDIA A100-SXM4-40GB", "NVIDIA L40S"


def gpu(index: int, name: str = A100, *profiles: str) -> Gpu:
    migs = tuple(
        MigDevice(
            f"MIG-{index}-{number}", number, number + 1, 0, profile, MigAttributes(memory_mib=4864), gi_cap=1, ci_cap=2
        )
        for number, profile in enumerate(profiles)
    )
    return Gpu(f"GPU-{index}", index, index, name=name, cc="8.0", mig_enabled=bool(profiles), migs=migs)


def snapshot(*gpus: Gpu) -> Snapshot:
    return Snapshot(Platform.NVML, gpus, driver_version="550.54.15", cuda_version=12040)


FOUR = snapshot(*map(gpu, range(4)))
MIXED_MODELS = snapshot(gpu(0), gpu(1), gpu(2, L40))
CUT = snapshot(gpu(0, A100, "1g.5gb", "1g.5gb", "2g.10gb"), gpu(1))


def words(*flags: str, file: str, directory: Path) -> list[str]:
    (directory / "config.yaml").write_text(file)
    return [*flags, f"--config-file={directory}/config.yaml"]


def label(found: Snapshot, args: list[str]) -> dict[str, str]:
    settings = loop.read_settings([*args, "--use-node-feature-api=false"], {})
    assert isinstance(settings, loop.Settings)
    offered = find_offered(found, settings.mig_strategy, settings.selections)
    labels, _ = make_labels(Facts(found), settings.mig_strategy, settings.sharing, offered)
    return {name.removeprefix("nvidia.com/"): value for name, value in labels.items()}


def slots(found: Snapshot, args: list[str]) -> dict[str, int]:
    """What the plugin offers of each resource."""
    config = read_command_line([*args, "--mps-root=/mps"], {}).translate().config
    devices = make_devices(found, MigStrategy(config["backends"][0].get("mig", "none"))).devices
    resources = make_offering(Inventory(devices), build(config, "test").rules).resources
    return {made.name.removeprefix("nvidia.com/"): len(made.slots) for made in resources}


def told(labels: dict[str, str]) -> dict[str, int]:
    """The same, as the labels tell it. Those of shared devices may go by the name from before they were shared."""
    names = {name.removesuffix(".replicas") for name in labels if name.endswith(".replicas")}
    found = {name: int(labels[f"{name}.count"]) * int(labels[f"{name}.replicas"]) for name in names}
    return {name: count for name, count in found.items() if count}


SHARED = "sharing: {timeSlicing: {renameByDefault: %s, resources: [{name: gpu, replicas: 4%s}]}}"


def test_a_name_of_ones_own_is_dropped_by_both_lenient_programs(tmp_path: Path):
    args = words("--lenient", file=SHARED % ("false", ", rename: slices"), directory=tmp_path)
    assert slots(FOUR, args) == {"gpu": 16} == told(label(FOUR, args))
    assert label(FOUR, args)["gpu.product"] == "NVIDIA-A100-SXM4-40GB-SHARED"
    settings = loop.read_settings([*args, "--use-node-feature-api=false"], {})
    assert isinstance(settings, loop.Settings)
    assert settings.notes == ("sharing.timeSlicing.resources[0]: rename is not in force, as in NVIDIA's plugin",)


def test_a_name_of_ones_own_is_in_force_by_default(tmp_path: Path):
    args = words(file=SHARED % ("false", ", rename: slices"), directory=tmp_path)
    assert slots(FOUR, args) == {"slices": 16}
    labels = label(FOUR, args)
    assert labels["gpu.product"] == "NVIDIA-A100-SXM4-40GB"  # as gpu-feature-discovery says of a renamed resource
    assert (labels["gpu.replicas"], labels["gpu.sharing-strategy"]) == ("4", "time-slicing")


@pytest.mark.parametrize("devices", ["[0, 2]", "2", '["GPU-1", 3]'])
def test_some_gpus_are_shared_and_the_others_are_not(devices: str, tmp_path: Path):
    file = SHARED % ("true", f", devices: {devices}")
    if "GPU-" in devices:
        file = file.replace("GPU-1", "GPU-00000000-0000-0000-0000-000000000001")
    one = gpu(1)
    found = snapshot(
        gpu(0), Gpu("GPU-00000000-0000-0000-0000-000000000001", 1, 1, name=one.name, cc="8.0"), gpu(2), gpu(3)
    )
    args = words(file=file, directory=tmp_path)
    assert slots(found, args) == {"gpu": 2, "gpu.shared": 8} == told(label(found, args))
    labels = label(found, args)
    assert (labels["gpu.sharing-strategy"], labels["gpu.shared.sharing-strategy"]) == ("none", "time-slicing")
    lenient = [*args, "--lenient"]
    assert slots(found, lenient) == {"gpu.shared": 16}
    assert told(label(found, lenient)) == {"gpu": 16}


def test_where_a_pod_may_get_a_shared_gpu_the_labels_say_shared(tmp_path: Path):
    args = words(file=SHARED % ("false", ", devices: [0]"), directory=tmp_path)
    assert slots(FOUR, args) == {"gpu": 7}
    labels = label(FOUR, args)
    assert labels["gpu.product"].endswith("-SHARED")
    assert (labels["gpu.count"], labels["gpu.replicas"], labels["gpu.sharing-strategy"]) == ("4", "4", "time-slicing")


def test_names_by_model_are_those_of_the_labels(tmp_path: Path):
    file = "resources: {gpus: [{pattern: '*L40*', name: l40}]}"
    args = words(file=file, directory=tmp_path)
    assert slots(MIXED_MODELS, args) == {"gpu": 2, "l40": 1} == told(label(MIXED_MODELS, args))
    assert label(MIXED_MODELS, args)["l40.product"] == "NVIDIA-L40S"
    lenient = [*args, "--lenient"]
    assert slots(MIXED_MODELS, lenient) == {"gpu": 3}
    assert "l40.count" not in label(MIXED_MODELS, lenient)


def test_no_gpu_goes_by_a_name_that_none_has(tmp_path: Path):
    args = words(file="resources: {gpus: [{pattern: '*', name: big}]}", directory=tmp_path)
    assert slots(FOUR, args) == {"big": 4} == told(label(FOUR, args))
    labels = label(FOUR, args)
    assert (labels["gpu.count"], labels["gpu.replicas"]) == ("0", "0")
    assert labels["gpu.product"] == "NVIDIA-A100-SXM4-40GB"  # what the machine has stays known


def test_names_by_profile_are_those_of_the_labels(tmp_path: Path):
    file = (
        "resources: {mig: [{pattern: 2g.10gb, name: half}]}\n"
        "sharing: {timeSlicing: {resources: [{name: mig-1g.5gb, replicas: 3}]}}"
    )
    args = words("--mig-strategy=mixed", file=file, directory=tmp_path)
    assert slots(CUT, args) == {"gpu": 1, "half": 1, "mig-1g.5gb": 6}
    labels = label(CUT, args)
    assert (labels["half.count"], labels["half.replicas"]) == ("1", "1")
    assert (labels["mig-1g.5gb.count"], labels["mig-1g.5gb.replicas"]) == ("2", "3")
    assert "mig-2g.10gb.count" not in labels


def test_a_lost_gpu_does_not_move_the_choice(tmp_path: Path):
    args = words(file=SHARED % ("true", ", devices: 1"), directory=tmp_path)
    lost = Snapshot(Platform.NVML, FOUR.gpus[1:], FOUR.gpus[:1], driver_version="550.54.15", cuda_version=12040)
    assert slots(lost, args) == {"gpu": 3, "gpu.shared": 4}
    assert told(label(lost, args)) == {"gpu": 3}


@pytest.mark.parametrize(
    "block",
    ["{name: gpus, replicas: 2}", "{name: gpu, replicas: 2}, {name: gpu, replicas: 3}"],
)
def test_what_the_plugin_refuses_in_the_file_the_labels_refuse(block: str, tmp_path: Path):
    args = words(file=f"sharing: {{timeSlicing: {{resources: [{block}]}}}}", directory=tmp_path)
    with pytest.raises(BadFile) as plugin:
        read_command_line(args, {}).translate()
    with pytest.raises(BadFile) as labels:
        loop.read_settings([*args, "--use-node-feature-api=false"], {})
    assert str(plugin.value) == str(labels.value)
