"""Which GPUs and MIG instances are offered, and as what."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from fairlead.backends.nvidia.devices import make_devices
from fairlead.backends.nvidia.errors import GpusFailed, MigMismatch
from fairlead.backends.nvidia.snapshot import Gpu, MigAttributes, MigDevice, Platform, Snapshot
from fairlead.backends.nvidia.spec import MigStrategy

SMALL, LARGE = (
    MigAttributes(multiprocessors=14, gi_slices=1, ci_slices=1),
    MigAttributes(multiprocessors=42, gi_slices=3, ci_slices=3),
)


def whole(index: int) -> Gpu:
    return Gpu(f"GPU-{index}", index, index + 10, f"0000:{index:02x}:00.0", "NVIDIA A100", 40 * 2**30, "8.0", numa=1)


def cut(index: int, *slices: MigAttributes) -> Gpu:
    migs = tuple(
        MigDevice(f"MIG-{index}-{n}", n, n + 1, 0, f"{one.gi_slices}g.5gb+me", one, 5 * 2**30, 100 + n, 200 + n, "0:1")
        for n, one in enumerate(slices)
    )
    return replace(whole(index), mig_capable=True, mig_enabled=True, migs=migs)


def snapshot(*gpus: Gpu, lost: tuple[Gpu, ...] = ()) -> Snapshot:
    return Snapshot(Platform.NVML, gpus, lost)


def ids(seen: Snapshot, way: MigStrategy) -> list[str]:
    return [device.id for device in make_devices(seen, way).devices]


def test_a_whole_gpu_has_all_that_is_known_of_it() -> None:
    (device,) = make_devices(snapshot(whole(0)), MigStrategy.NONE).devices
    assert (device.id, device.index, device.vendor, device.model) == ("GPU-0", "0", "nvidia", "NVIDIA A100")
    assert (device.memory_bytes, device.pci_address, device.numa_nodes) == (40 * 2**30, "0000:00:00.0", (1,))
    assert [node.path for node in device.nodes] == ["/dev/nvidia10"]
    assert device.attributes == {"kind": "gpu", "computeCapability": "8.0", "minor": "10"}


def test_a_mig_instance_has_the_nodes_of_its_gpu_and_of_its_capabilities() -> None:
    (device,) = make_devices(snapshot(cut(2, SMALL)), MigStrategy.MIXED).devices
    assert (device.id, device.index, device.parent) == ("MIG-2-0", "2:0", "GPU-2")
    nodes = ["/dev/nvidia12", "/dev/nvidia-caps/nvidia-cap100", "/dev/nvidia-caps/nvidia-cap200"]
    assert [node.path for node in device.nodes] == nodes
    wanted = {"kind": "mig", "profile": "1g.5gb.me", "mig": "1g.5gb+me", "giId": "1", "ciId": "0", "placement": "0:1"}
    assert wanted.items() <= device.attributes.items()


def test_each_way_to_show_mig() -> None:
    seen = snapshot(whole(0), cut(1, SMALL, LARGE))
    assert ids(seen, MigStrategy.NONE) == ["GPU-0", "GPU-1"]
    assert ids(seen, MigStrategy.MIXED) == ["GPU-0", "MIG-1-0", "MIG-1-1"]
    assert ids(snapshot(cut(0, SMALL), cut(1, SMALL, SMALL)), MigStrategy.SINGLE) == ["MIG-0-0", "MIG-1-0", "MIG-1-1"]
    assert ids(snapshot(whole(0), whole(1)), MigStrategy.SINGLE) == ["GPU-0", "GPU-1"]


@pytest.mark.parametrize(
    ("gpus", "sentence"),
    [
        ((cut(0, SMALL), cut(1)), "device 1 has no MIG devices configured"),
        ((cut(0, SMALL, LARGE),), "more than one MIG device type present on node"),
        ((whole(0), cut(1, SMALL)), "all devices on the node must be configured with the same migEnabled value"),
    ],
)
def test_single_refuses_a_mixture_and_says_what_to_do(gpus: tuple[Gpu, ...], sentence: str) -> None:
    with pytest.raises(MigMismatch, match=sentence) as caught:
        make_devices(snapshot(*gpus), MigStrategy.SINGLE)
    assert "use mig: mixed" in str(caught.value)


def test_mixed_tells_of_a_gpu_that_is_not_cut() -> None:
    discovered = make_devices(snapshot(cut(0, SMALL), cut(1)), MigStrategy.MIXED)
    assert [device.id for device in discovered.devices] == ["MIG-0-0"]
    assert "device 1 has no MIG devices configured" in discovered.problems[0]


def test_an_instance_without_its_capability_is_not_offered_and_harms_no_other() -> None:
    bare = replace(cut(1, SMALL), migs=tuple(replace(mig, gi_cap=None) for mig in cut(1, SMALL).migs))
    discovered = make_devices(snapshot(cut(0, SMALL), bare), MigStrategy.MIXED)
    assert [device.id for device in discovered.devices] == ["MIG-0-0"]
    missing = "missing MIG GPU instance capability path: /proc/driver/nvidia/capabilities/gpu11/mig/gi1/access"
    assert discovered.problems == (missing,)
    with pytest.raises(GpusFailed, match=missing):
        make_devices(snapshot(bare), MigStrategy.MIXED)
    assert ids(snapshot(bare), MigStrategy.NONE) == ["GPU-1"]


def test_a_lost_gpu_keeps_its_place() -> None:
    assert ids(snapshot(whole(0), whole(2), lost=(whole(1),)), MigStrategy.NONE) == ["GPU-0", "GPU-1", "GPU-2"]


def test_machines_of_other_kinds_have_one_device() -> None:
    (soc,) = make_devices(Snapshot(Platform.TEGRA), MigStrategy.NONE).devices
    assert (soc.id, soc.index, soc.nodes) == ("tegra", "0", ())
    (windows,) = make_devices(Snapshot(Platform.WSL, (whole(0), whole(1))), MigStrategy.NONE).devices
    assert (windows.id, windows.index, [node.path for node in windows.nodes]) == ("all", "all", ["/dev/dxg"])
    assert make_devices(Snapshot(Platform.WSL), MigStrategy.NONE).devices == ()
