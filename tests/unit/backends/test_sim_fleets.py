"""Fleets: what devices and links come of what people write."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.amd import machines
from tests.amd.tree import scratch
from tests.clock import FakeClock
from tests.unit.backends.amd.trees import scan as scan_amd
from tests.unit.backends.sink import Notes

from fairlead.backends.sim import SimBackend, fleets, open_backend
from fairlead.model.errors import ConfigError
from fairlead.model.inventory import Findings
from fairlead.model.names import parse_slot_id

AMD = {
    "mi210x8": machines.mi210(),
    "mi300x8": machines.mi300x(),
    "mi300x8-cpx": machines.mi300x("CPX", "NPS4"),
    "mi300x8-cpx-63": machines.mi300x("CPX", "NPS4", missing=("amdgpu_xcp_56",)),
    "mi308x8-cpx": machines.mi308(),
    "mi300x-vm": machines.virtual(),
    "vega2": machines.vegas(),
}


def backend(**options: Any) -> SimBackend:
    return open_backend(options, FakeClock())


async def scan(*groups: dict[str, Any], name: str = "test") -> Findings:
    return await backend(fleet={"name": name, "devices": list(groups)}).discover()


def score(findings: Findings, one: int, other: int) -> int:
    return findings.links.between(findings.devices[one].id, findings.devices[other].id)


async def test_every_ready_made_fleet_opens_and_has_a_description() -> None:
    infos = fleets()
    others = {"h100x8", "dgx1v", "pcie16", "mi210x4", "mixed", "small"}
    assert {info.name for info in infos} == others | AMD.keys()
    for info in infos:
        found = (await backend(fleet=info.name).discover()).devices
        assert len(found) == info.devices == len({device.id for device in found})
        assert info.description
        assert "\n" not in info.description
        for device in found:
            parse_slot_id(device.id)


async def test_ids_are_the_same_at_every_start_and_differ_between_fleets() -> None:
    first, again = await scan({"count": 3}), await scan({"count": 3})
    other = await scan({"count": 3}, name="other")
    assert first == again
    assert not {device.id for device in first.devices} & {device.id for device in other.devices}


async def test_h100x8_looks_like_the_real_node() -> None:
    found = await backend(fleet="h100x8").discover()
    assert [device.index for device in found.devices] == list("01234567")
    assert all(re.fullmatch(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", device.id) for device in found.devices)
    assert [device.numa_nodes for device in found.devices] == [(0,)] * 4 + [(1,)] * 4
    assert {device.memory_bytes for device in found.devices} == {80 * 2**30}
    assert (score(found, 0, 3), score(found, 0, 4)) == (1820, 1810)
    assert len({device.pci_address for device in found.devices}) == 8


async def test_dgx1v_adds_nvlinks_to_the_bus() -> None:
    found = await backend(fleet="dgx1v").discover()
    assert score(found, 0, 1) == 150  # one link, one switch
    assert score(found, 0, 3) == 230  # two links, one host bridge
    assert score(found, 0, 4) == 210  # two links across sockets
    assert score(found, 0, 5) == 10
    # The best split into four pairs and the whole node, as known for this machine.
    assert sum(score(found, *pair) for pair in ((0, 3), (1, 2), (4, 7), (5, 6))) == 920
    assert sum(score(found, one, other) for other in range(8) for one in range(other)) == 3000


async def test_pcie16_is_a_tree_of_two_levels_on_two_sockets() -> None:
    found = await backend(fleet="pcie16").discover()
    assert [score(found, 0, other) for other in (1, 2, 4, 8)] == [50, 40, 30, 10]


@pytest.mark.parametrize("name", AMD)
async def test_amd_machines_are_as_the_amd_backend_finds_them(name: str) -> None:
    with scratch() as root:
        true = await scan_amd(root, AMD[name])
    sim = backend(fleet=name)
    await _begin(sim)
    made = await sim.discover()
    assert _facts(made) == _facts(true)
    assert Counter(score for _, score in made.links.items()) == Counter(score for _, score in true.links.items())
    pci = {device.id for device in true.devices if device.id == device.pci_address}
    assert pci <= {device.id for device in made.devices}
    assert all(re.fullmatch(r"amdgpu_xcp_\d+", device.id) for device in made.devices if device.id not in pci)


async def _begin(sim: SimBackend) -> None:
    """What the timeline has for the first moment has happened."""
    watch = asyncio.create_task(sim.watch(Notes()))
    await asyncio.sleep(0)
    watch.cancel()
    await asyncio.gather(watch, return_exceptions=True)


def _facts(found: Findings) -> list[tuple[object, ...]]:
    told = ("kind", "gfx", "profile", "computePartition", "memoryPartition")
    return [
        (
            device.pci_address,
            device.numa_nodes,
            device.model.split(" cpx_")[0],
            *(device.attributes.get(name) for name in told),
        )
        for device in sorted(found.devices, key=lambda device: device.pci_address)
    ]


async def test_a_partition_of_a_machine_may_be_missing() -> None:
    sim = backend(fleet="mi300x8-cpx-63")
    whole = (await sim.discover()).devices
    await _begin(sim)
    left = (await sim.discover()).devices
    assert (len(whole), len(left)) == (64, 63)
    assert {device.id for device in whole} - {device.id for device in left} == {"amdgpu_xcp_55"}
    assert Counter(Counter(device.parent for device in left).values()) == {8: 7, 7: 1}


async def test_mi210x4_has_two_pairs_and_ids_as_the_driver_names_them() -> None:
    found = await backend(fleet="mi210x4").discover()
    assert found.devices[0].id == found.devices[0].pci_address == "0000:19:00.0"
    assert (score(found, 0, 1), score(found, 1, 2), score(found, 2, 3)) == (320, 10, 320)


async def test_a_partitioned_device_is_offered_in_parts_only() -> None:
    whole = {"count": 2, "model": "A100", "numa": [0, 1], "attributes": {"room": "b"}, "nodes": ["/dev/nvidia{i}"]}
    parts = [{"profile": "1g.10gb", "count": 3, "memory": "10GiB", "nodes": ["/dev/cap{i}"]}, {"profile": "3g.40gb"}]
    found = await scan({**whole, "partitions": parts})
    assert [device.index for device in found.devices] == ["0:0", "0:1", "0:2", "0:3", "1:0", "1:1", "1:2", "1:3"]
    assert len({device.parent for device in found.devices}) == 2
    part = found.devices[5]
    assert part.id.startswith("MIG-")
    assert (part.model, part.memory_bytes, part.numa_nodes) == ("A100 1g.10gb", 10 * 2**30, (1,))
    assert [node.path for node in part.nodes] == ["/dev/nvidia1", "/dev/cap1"]
    assert part.attributes == {"room": "b", "profile": "1g.10gb"}
    assert score(found, 0, 1) == 60
    assert score(found, 0, 4) == 0


async def test_parts_are_joined_as_their_wholes_are() -> None:
    found = await scan({"count": 2, "links": {"pairs": {"0-1": 7}}, "partitions": [{"profile": "half", "count": 2}]})
    assert score(found, 0, 2) == score(found, 1, 3) == 7


async def test_patterns_name_devices_addresses_and_nodes() -> None:
    node = {"path": "/dev/acc{n}", "container": "/dev/acc0", "permissions": "r"}
    found = await scan({"count": 2}, {"count": 2, "id": "acc-{n}-{i:02x}", "pci": "0000:{i:02x}:00.0", "nodes": [node]})
    device = found.devices[3]
    assert (device.id, device.pci_address, device.index) == ("acc-3-01", "0000:01:00.0", "3")
    assert (device.nodes[0].path, device.nodes[0].container_path, device.nodes[0].permissions) == (
        "/dev/acc3",
        "/dev/acc0",
        "r",
    )


async def test_numa_is_one_for_all_one_each_or_blocks() -> None:
    async def nodes(numa: object) -> list[tuple[int, ...]]:
        return [device.numa_nodes for device in (await scan({"count": 4, "numa": numa})).devices]

    assert await nodes(1) == [(1,)] * 4
    assert await nodes([0, 1]) == [(0,), (0,), (1,), (1,)]
    assert await nodes([3, 2, 1, 0]) == [(3,), (2,), (1,), (0,)]
    assert [device.numa_nodes for device in (await scan({})).devices] == [()]


async def test_a_matrix_gives_each_score() -> None:
    found = await scan({"count": 3, "links": {"matrix": [[0, 5, 1], [5, 0, 9], [1, 9, 0]]}})
    assert (score(found, 0, 1), score(found, 0, 2), score(found, 1, 2)) == (5, 1, 9)


@pytest.mark.parametrize(("text", "size"), [("80GiB", 80 * 2**30), ("1.5 KiB", 1536), ("2gb", 2 * 10**9), (7, 7)])
async def test_sizes(text: object, size: int) -> None:
    assert (await scan({"memory": text})).devices[0].memory_bytes == size


async def test_a_fleet_may_stand_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text("devices:\n- {count: 2, id: 'card-{n}-{fleet}'}\n")
    assert [d.id for d in (await backend(fleet=str(path)).discover()).devices] == ["card-0-lab", "card-1-lab"]


def devices(*groups: Any) -> dict[str, Any]:
    return {"fleet": {"devices": list(groups)}}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fleet": "h100x9"}, "sim: fleet: no fleet 'h100x9'; did you mean 'h100x8'? Known: dgx1v, h100x8,"),
        ({"flet": "small"}, "sim: unknown key 'flet'; did you mean 'fleet'? Known: fleet, speed, timeline"),
        ({"fleet": 3}, "sim: fleet: expected text or a mapping, got 3"),
        ({"fleet": {}}, "sim: fleet: the key 'devices' is missing"),
        ({"speed": 0}, "sim: speed: expected a number > 0.0, got 0"),
        ({"fleet": "/nowhere/f.yaml"}, "/nowhere/f.yaml: cannot be read: No such file or directory"),
        (devices({"cnt": 8}), "sim: fleet.devices[0]: unknown key 'cnt'; did you mean 'count'?"),
        (devices({}, {"count": "a"}), "sim: fleet.devices[1].count: expected a whole number, got 'a'"),
        (devices({"count": 0}), "sim: fleet.devices[0].count: expected a whole number >= 1, got 0"),
        (devices({"memory": "80G"}), "sim: fleet.devices[0].memory: expected a size, such as 80GiB"),
        (devices({"memory": -1}), "sim: fleet.devices[0].memory: expected a size"),
        (devices({"id": "{uid}"}), "devices[0].id: '{uid}' uses {uid}; did you mean 'uuid'?"),
        (devices({"id": "{uuid:d}"}), "devices[0].id: '{uuid:d}' formats {uuid} with 'd', which does not fit it"),
        (devices({"id": "x" * 64}), "it has 64 characters; 63 is the limit"),
        (devices({"id": "a", "count": 2}), "several devices have the id 'a'; use {n} or {uuid} in the id"),
        (devices({"links": "nvswich"}), "devices[0].links: unknown scheme 'nvswich'; did you mean 'nvswitch'?"),
        (devices({"links": {"scheme": "pcie-tree", "blocks": {"swich": 2}}}), "did you mean 'switch'?"),
        (devices({"links": {"scheme": "numa", "matrix": [[0]]}}), "give a scheme or a matrix, not both"),
        (devices({"count": 2, "links": {"matrix": [[0]]}}), "it needs 2 rows of 2 scores"),
        (devices({"count": 2, "links": {"matrix": [[0, 1], [2, 0]]}}), "0 to 1 differs from 1 to 0"),
        (devices({"count": 2, "links": {"pairs": {"0+1": 1}}}), "'0+1' is not a pair"),
        (devices({"count": 2, "links": {"pairs": {"0-2": 1}}}), "its devices are 0 to 1"),
        (devices({"count": 2, "pci": ["0000:01:00.0"]}), "pci: 1 addresses for 2 devices"),
        (devices({"count": 3, "numa": [0, 1]}), "numa: 2 nodes do not divide 3 devices"),
        (devices({"numa": -1}), "numa: -1 is not a node"),
        (devices({"nodes": ["dev/x"]}), "nodes: 'dev/x' is not an absolute path"),
    ],
)
def test_a_mistake_is_named_with_its_place_its_value_and_a_way_out(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        backend(**options)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("devices: [", ": line "),
        ("devices: []\ndevices: []\n", "line 2, column 1: the key 'devices' is given twice"),
        ("devices:\n- {cuont: 1}\n", "devices[0]: unknown key 'cuont'; did you mean 'count'?"),
        ("", "expected a mapping, got nothing"),
        ("? [a, b]\n: 1\n", "a list or a mapping stands as a key"),
        ("a: !!timestamp 2024-13-45\n", "unknown key 'a'"),
        ("[" * 5000, "line "),
        ("a: \x00", "the character U+0000 is not allowed"),
    ],
)
def test_a_mistake_in_a_file_is_named_with_the_file(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "fleet.yml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        backend(fleet=str(path))
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_bytes(b"\xff\xfe\xfd")
    with pytest.raises(ConfigError, match="cannot be read"):
        backend(fleet=str(path))


@pytest.mark.parametrize("group", [{"count": 1024}, {"count": 1024, "partitions": [{"profile": "x", "count": 1024}]}])
def test_a_fleet_of_a_few_lines_cannot_take_all_memory(group: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="devices with their partitions; 16,384 is the limit"):
        backend(fleet={"devices": [group] * 20})
