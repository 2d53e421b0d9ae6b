"""GPUs as options want them: by their minor numbers, cut as expected, with nodes that are there."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from fairlead.backends.nvidia.devices import Discovered, gpu_of, make_devices, reach
from fairlead.backends.nvidia.shape import node_paths, shape
from fairlead.backends.nvidia.snapshot import Gpu, MigDevice, Platform, Snapshot
from fairlead.backends.nvidia.spec import MigStrategy, Options, Scope
from fairlead.kit.decoding import convert
from fairlead.model.inventory import NO_LINKS, Links
from fairlead.model.names import DeviceId

MINOR: dict[str, Any] = {"naming": "minor", "ways": [], "nodes": True}
PARTS: dict[str, Any] = {**MINOR, "mig": "mixed", "partition": {"profile": "3g.20gb", "count": 2}}


def gpu(index: int, *profiles: str, mig: bool | None = None) -> Gpu:
    migs = tuple(
        MigDevice(f"MIG-{index}-{n}", n, n + 1, 0, profile, gi_cap=10 * n + 2, ci_cap=10 * n + 3)
        for n, profile in enumerate(profiles)
    )
    on = bool(profiles) if mig is None else mig
    return Gpu(f"GPU-{index}", index, index + 3, mig_capable=True, mig_enabled=on, migs=migs)


def shaped(
    *gpus: Gpu, missing: frozenset[str] = frozenset(), links: Links = NO_LINKS, **options: Any
) -> tuple[Discovered, Links]:
    chosen: Options = convert(options, Options, "test")
    snapshot = Snapshot(Platform.NVML, gpus, driver_version="550.1")
    return shape(make_devices(snapshot, chosen.mig), snapshot, links, chosen, missing)


def ids(found: Discovered) -> list[str]:
    return [device.id for device in found.devices]


def test_gpus_and_instances_are_named_by_their_minor_numbers() -> None:
    found, _ = shaped(gpu(0), gpu(2, "1g.5gb", "2g.10gb"), **MINOR, mig="mixed")
    assert ids(found) == ["nvidia3", "nvidia5/gi1", "nvidia5/gi2"]
    whole, part, _ = found.devices
    assert (whole.attributes["gpu"], whole.attributes["driverVersion"]) == ("GPU-0", "550.1")
    assert (part.parent, part.attributes["gpu"], part.attributes["uuid"]) == ("nvidia5", "GPU-2", "MIG-2-0")


def test_what_the_driver_reports_by_uuid_reaches_them() -> None:
    found, _ = shaped(gpu(0), gpu(2, "1g.5gb", "2g.10gb"), **MINOR, mig="mixed")

    def reached(uuid: str, gi: int | None = None, scope: Scope = Scope.INSTANCE) -> list[str]:
        return [device.id for device in reach(found.devices, uuid, gi, scope=scope)]

    assert [gpu_of(device) for device in found.devices] == ["GPU-0", "GPU-2", "GPU-2"]
    assert reached("GPU-0") == ["nvidia3"]
    assert reached("GPU-2", gi=2) == ["nvidia5/gi2"]
    assert reached("GPU-2") == reached("GPU-2", gi=1, scope=Scope.GPU) == ["nvidia5/gi1", "nvidia5/gi2"]
    assert reached("GPU-9") == []
    assert reached("", scope=Scope.NODE) == ids(found)


def test_links_are_between_the_names() -> None:
    links = Links({(DeviceId("GPU-0"), DeviceId("GPU-1")): 100, (DeviceId("GPU-0"), DeviceId("GPU-9")): 5})
    _, named = shaped(gpu(0), gpu(1), links=links, **MINOR)
    assert dict(named.items()) == {("nvidia3", "nvidia4"): 100}


def test_a_gpu_that_is_not_cut_as_expected_is_named_and_the_others_are_offered() -> None:
    found, _ = shaped(gpu(0, "3g.20gb", "3g.20gb"), gpu(1), gpu(2, mig=True), gpu(3, "3g.20gb"), **PARTS)
    assert ids(found) == ["nvidia3/gi1", "nvidia3/gi2"]
    problems = [text for text in found.problems if "is not partitioned as expected" in text]
    assert [text.partition(" ")[0] for text in problems] == ["nvidia4", "nvidia5", "nvidia6"]
    assert "MIG is off" in problems[0]
    assert "found: no instance" in problems[1]


def test_instances_of_another_profile_are_not_offered() -> None:
    found, _ = shaped(gpu(0, "3g.20gb", "4g.20gb"), **PARTS)
    assert ids(found) == []
    assert "2 of 3g.20gb were expected, found: 3g.20gb, 4g.20gb" in found.problems[-1]


def test_without_nvml_the_number_of_instances_counts() -> None:
    assert ids(shaped(gpu(0, "", ""), **PARTS)[0]) == ["nvidia3/gi1", "nvidia3/gi2"]
    assert ids(shaped(gpu(0, ""), **PARTS)[0]) == []


def test_a_share_of_a_gpu_brings_the_nodes_of_its_instances() -> None:
    found, _ = shaped(gpu(0, "3g.20gb"), **MINOR, instanceNodes=True)
    (device,) = found.devices
    caps = ["/dev/nvidia-caps/nvidia-cap2", "/dev/nvidia-caps/nvidia-cap3"]
    assert (device.id, [node.path for node in device.nodes]) == ("nvidia3", ["/dev/nvidia3", *caps])


def test_a_device_whose_node_is_missing_is_named_and_not_offered() -> None:
    found, _ = shaped(gpu(0), gpu(1), missing=frozenset({"/dev/nvidia4"}), **MINOR)
    assert ids(found) == ["nvidia3"]
    assert found.problems == ("nvidia4 is not offered: there is no /dev/nvidia4",)


def test_where_a_runtime_makes_the_nodes_a_missing_one_does_not_matter() -> None:
    assert ids(shaped(gpu(0), missing=frozenset({"/dev/nvidia3"}), naming="minor")[0]) == ["nvidia3"]


def test_the_nodes_of_gpus_that_are_lost_are_looked_for_too() -> None:
    snapshot = Snapshot(Platform.NVML, (gpu(0),), (replace(gpu(1, "1g.5gb"), index=1),))
    caps = ["/dev/nvidia-caps/nvidia-cap2", "/dev/nvidia-caps/nvidia-cap3"]
    assert node_paths(snapshot) == ["/dev/nvidia3", "/dev/nvidia4", *caps]
    assert make_devices(snapshot, MigStrategy.NONE).problems == ()
