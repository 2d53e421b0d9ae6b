"""What the kernel shows, as devices: whole GPUs, partitions, their nodes, and how well they are joined."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.amd import machines, tree
from tests.unit.backends.amd.trees import backend, by_id, scan, weight

from fairlead.backends.amd.devices import make_findings
from fairlead.backends.amd.host import DRIVER, DrmNodes, Host, PciFunction
from fairlead.backends.amd.topology import PCIE, XGMI, KfdNode, Topology, gfx_name
from fairlead.model.device import DeviceNode
from fairlead.model.errors import NotYet


@pytest.mark.parametrize(
    ("machine", "count"),
    [
        (machines.mi210(), 8),
        (machines.mi300x(), 8),
        (machines.mi308(), 32),
        (machines.vegas(), 2),
        (machines.virtual(), 8),
        (machines.mi300x("CPX", "NPS4", missing=("amdgpu_xcp_56",)), 63),
    ],
)
async def test_each_machine_has_all_of_its_devices(machine: machines.Machine, count: int, tmp_path: Path) -> None:
    found = await scan(tmp_path, machine)
    assert len(by_id(found)) == len(found.devices) == count
    assert found.problems == ()


async def test_a_whole_gpu(tmp_path: Path) -> None:
    gpu = by_id(await scan(tmp_path, machines.mi210()))["0000:63:00.0"]
    assert gpu.nodes == tuple(map(DeviceNode, ("/dev/kfd", "/dev/dri/card1", "/dev/dri/renderD128")))
    assert (gpu.vendor, gpu.model, gpu.index, gpu.numa_nodes) == ("amd", "AMD Instinct MI210", "0", (0,))
    assert (gpu.parent, gpu.pci_address, gpu.memory_bytes) == (None, "0000:63:00.0", 64 * machines.GIB)
    expected = {"kind": "gpu", "gfx": "gfx90a", "kfdNode": "2", "render": "128", "card": "1", "cuCount": "104"}
    assert expected.items() <= gpu.attributes.items()
    assert not {"profile", "computePartition"} & gpu.attributes.keys()


async def test_a_partition_has_the_gpu_that_it_is_cut_from(tmp_path: Path) -> None:
    devices = by_id(await scan(tmp_path, machines.mi308()))
    part = devices["amdgpu_xcp_13"]
    assert (part.parent, part.numa_nodes, part.memory_bytes) == ("0001:0b:00.0", (1,), 51539607552)
    assert part.nodes == tuple(map(DeviceNode, ("/dev/kfd", "/dev/dri/card34", "/dev/dri/renderD161")))
    expected = {"kind": "partition", "profile": "cpx_nps1", "computePartition": "cpx", "memoryPartition": "nps1"}
    assert expected.items() <= part.attributes.items()
    assert devices["0001:0b:00.0"].parent == "0001:0b:00.0"
    assert devices["amdgpu_xcp_15"].memory_bytes == 51522830336
    assert set(Counter(device.parent for device in devices.values()).values()) == {4}


async def test_a_whole_gpu_that_could_be_cut_is_whole(tmp_path: Path) -> None:
    gpu = by_id(await scan(tmp_path, machines.mi300x("SPX")))["0000:05:00.0"]
    assert (gpu.parent, gpu.attributes["kind"], gpu.attributes["profile"]) == (None, "gpu", "spx_nps1")
    assert gpu.memory_bytes == 192 * machines.GIB


async def test_devices_come_by_gpu_and_then_by_partition(tmp_path: Path) -> None:
    found = [device.id for device in (await scan(tmp_path, machines.mi308())).devices]
    assert found[:5] == ["0000:0a:00.0", "amdgpu_xcp_1", "amdgpu_xcp_2", "amdgpu_xcp_3", "0000:80:00.0"]


async def test_partitions_of_a_kernel_that_knows_no_numa_nodes_are_offered(tmp_path: Path) -> None:
    found = await scan(tmp_path, machines.virtual())
    assert {device.numa_nodes for device in found.devices} == {()}
    assert {device.parent for device in found.devices} == {"0000:00:08.0"}


async def test_two_gpus_of_an_old_kernel_are_two_gpus(tmp_path: Path) -> None:
    found = await scan(tmp_path, machines.vegas())
    assert [(device.id, device.parent, device.numa_nodes) for device in found.devices] == [
        ("0000:19:00.0", None, (0,)),
        ("0000:1a:00.0", None, (1,)),
    ]
    assert "gfx" not in found.devices[0].attributes
    assert (found.devices[0].model, found.devices[0].memory_bytes) == ("AMD Instinct MI25", 17163091968)
    assert weight(found, "0000:19:00.0", "0000:1a:00.0") == 90


async def test_a_domain_that_is_not_said_is_the_first(tmp_path: Path) -> None:
    machine = machines.virtual()
    found = await scan(tmp_path, machine.change(machine.gpus[0].address, domain=False))
    assert {device.parent for device in found.devices} == {"0000:00:08.0"}


async def test_weights_within_a_quad_and_across(tmp_path: Path) -> None:
    found = await scan(tmp_path, machines.mi210())
    pairs = Counter(weight(found, one.id, other.id) for one, other in combinations(found.devices, 2))
    assert pairs == {40: 12, 80: 16}


async def test_partitions_of_one_gpu_are_nearest(tmp_path: Path) -> None:
    found = await scan(tmp_path, machines.mi308())
    assert weight(found, "0000:0a:00.0", "amdgpu_xcp_1") == 30
    assert weight(found, "0000:0a:00.0", "amdgpu_xcp_4") == 40
    assert weight(found, "0000:0a:00.0", "amdgpu_xcp_24") == 50


async def test_a_link_that_one_end_shows_counts(tmp_path: Path) -> None:
    tree.write(tmp_path, machines.mi210())
    for links in ("io_links", "p2p_links"):
        tree.remove(tmp_path, f"{tree.NODES}/9/{links}")
    pairs = await scan(tmp_path)
    assert weight(pairs, "0000:a3:00.0", "0000:83:00.0") == 40
    assert weight(pairs, "0000:a3:00.0", "0000:63:00.0") == 80


async def test_an_unknown_link_is_the_worst(tmp_path: Path) -> None:
    tree.write(tmp_path, machines.mi210())
    for node in range(2, 10):
        tree.remove(tmp_path, f"{tree.NODES}/{node}/p2p_links")
    (tmp_path / tree.NODES / "2/io_links/1/properties").write_text("type 99\n")
    found = await scan(tmp_path)
    assert weight(found, "0000:63:00.0", "0000:e3:00.0") == 90
    assert weight(found, "0000:63:00.0", "0000:43:00.0") == 40  # node 3 shows the same link


async def test_compute_and_memory_modes_are_lower_case_without_blanks(tmp_path: Path) -> None:
    machine = machines.mi308().change("0000:0a:00.0", compute=" CpX ", memory="Nps1")
    assert by_id(await scan(tmp_path, machine))["amdgpu_xcp_1"].attributes["profile"] == "cpx_nps1"


async def test_a_gpu_without_memory_mode_has_partitions_all_the_same(tmp_path: Path) -> None:
    machine = replace(machines.mi308(), gpus=tuple(replace(gpu, memory="") for gpu in machines.mi308().gpus))
    found = await scan(tmp_path, machine)
    assert len(found.devices) == 32
    assert found.devices[1].attributes["computePartition"] == "cpx"
    assert "profile" not in found.devices[1].attributes


async def test_nodes_of_another_root_are_where_the_container_looks(tmp_path: Path) -> None:
    gpu = (await scan(tmp_path, machines.vegas(), devRoot="/run/amd/")).devices[0]
    assert gpu.nodes[0] == DeviceNode("/run/amd/dev/kfd", "/dev/kfd")


async def test_without_a_driver_the_scan_waits_for_it(tmp_path: Path) -> None:
    with pytest.raises(NotYet) as raised:
        await scan(tmp_path)
    assert str(raised.value).startswith(f"{tmp_path}{DRIVER} is missing: the kernel module amdgpu is not loaded. ")
    assert len((await scan(tmp_path, machines.vegas())).devices) == 2


async def test_without_kfd_the_scan_waits_for_it(tmp_path: Path) -> None:
    with pytest.raises(NotYet, match=r"topology/nodes is missing.*KFD"):
        await scan(tmp_path, replace(machines.mi210(), kfd=False))


async def test_a_driver_without_gpus_is_no_error(tmp_path: Path) -> None:
    found = await scan(tmp_path, machines.Machine(()))
    assert (found.devices, found.problems) == ((), ())


async def test_the_same_machine_is_the_same_twice(tmp_path: Path) -> None:
    tree.write(tmp_path, machines.mi308())
    amd = backend(tmp_path)
    assert await amd.discover() == await amd.discover()
    await amd.close()


@pytest.mark.parametrize(
    ("machine", "units"),
    [
        (machines.mi210(), "104"),
        (machines.mi308(), "20"),
        (machines.mi300x("CPX"), "38"),
        (machines.vegas(), "64"),
    ],
)
async def test_compute_units(machine: machines.Machine, units: str, tmp_path: Path) -> None:
    few = replace(machine, gpus=machine.gpus[:1])
    assert {device.attributes["cuCount"] for device in (await scan(tmp_path, few)).devices} == {units}


KINDS = st.sampled_from([None, 0, 1, 5, PCIE, XGMI, 99])


@given(st.lists(st.integers(0, 1), min_size=2, max_size=6), st.data())
def test_a_better_link_is_never_worse_and_none_is_worse_than_an_unknown_one(
    numa: list[int], data: st.DataObject
) -> None:
    count = len(numa)
    pairs = list(combinations(range(count), 2))
    kinds = {pair: data.draw(KINDS) for pair in pairs}
    nodes = {128 + n: KfdNode(n, 128 + n, f"0000:{n:02x}:00.") for n in range(count)}
    functions = tuple(PciFunction(DrmNodes(f"0000:{n:02x}:00.0", 128 + n), numa[n]) for n in range(count))
    links = {pair: kind for pair, kind in kinds.items() if kind is not None}
    found = make_findings(Host(functions, topology=Topology(nodes, links)))
    for one, other in pairs:
        names = functions[one].drm.id, functions[other].drm.id
        link = weight(found, *names) - (10 if numa[one] == numa[other] else 20) - 20  # two GPUs
        assert link == {XGMI: 10, PCIE: 40}.get(kinds[one, other] or 0, 50)
        assert found.links.between(*names) == found.links.between(*reversed(names)) > 0


@pytest.mark.parametrize(
    ("version", "name"), [(90010, "gfx90a"), (90402, "gfx942"), (100300, "gfx1030"), (90000, "gfx900"), (0, "")]
)
def test_gfx_names(version: int, name: str) -> None:
    assert gfx_name(version) == name
