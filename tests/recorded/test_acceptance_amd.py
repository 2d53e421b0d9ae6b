"""The cases that AMD's own tests and documentation pin, from a tree of files to resources and choices."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlead.backends.amd.devices import make_findings
from fairlead.backends.amd.host import read_host
from fairlead.backends.amd.topology import read_properties, read_topology
from fairlead.config.load import build
from fairlead.dialects.amd.command import read_command_line
from fairlead.kit.hostroot import HostRoot
from fairlead.model.inventory import Findings, Inventory
from fairlead.model.names import SlotId
from fairlead.model.resource import Resource
from fairlead.policy.offering.rules import Offering, make_offering
from fairlead.policy.placement.place import place
from tests.amd.machines import Machine, mi210, mi300x, mi308, unlinked, vegas
from tests.amd.tree import NODES, write

MIXED = "-resource_naming_strategy=mixed"
MISSING = mi300x("CPX", "NPS1", missing=("amdgpu_xcp_56",))


def find(root: Path) -> Findings:
    return make_findings(read_host(HostRoot(str(root))))


def offer(found: Findings, *words: str) -> Offering:
    rules = build(dict(read_command_line(words, {}).translate().config), "test").rules
    return make_offering(Inventory(found.devices, found.links), rules)


def counts(found: Findings, *words: str) -> dict[str, int]:
    return {resource.name.partition("/")[2]: len(resource.slots) for resource in offer(found, *words).resources}


@pytest.mark.parametrize(
    ("machine", "gpus", "nodes"), [(vegas(), 2, 3), (mi308(), 32, 34), (mi210(), 8, 10), (MISSING, 63, 65)]
)
def test_1_and_2_gpu_nodes_of_kfd(machine: Machine, gpus: int, nodes: int, tmp_path: Path):
    write(tmp_path, unlinked(machine))
    assert len(read_topology(HostRoot(str(tmp_path))).nodes) == gpus
    assert len(list((tmp_path / NODES).iterdir())) == nodes


def test_3_properties_of_a_node(tmp_path: Path):
    write(tmp_path, vegas())
    bank = read_properties(f"{tmp_path}/{NODES}/1/mem_banks/0/properties")
    assert (bank["size_in_bytes"], bank["flags"]) == (17163091968, 0)
    properties = read_properties(f"{tmp_path}/{NODES}/2/properties")
    assert (properties["simd_count"], properties["simd_id_base"]) == (256, 2147487744)
    assert "no_such_key" not in properties


def test_4_and_5_the_gpu_of_each_render_node(tmp_path: Path):
    """A kernel that does not say the domain has one: theirs finds no GPU at all."""
    write(tmp_path, vegas())
    addresses = {render: node.address for render, node in read_topology(HostRoot(str(tmp_path))).nodes.items()}
    assert addresses == {128: "0000:19:00.", 129: "0000:1a:00."}


def test_9_names_on_nodes_that_are_cut_alike(tmp_path: Path):
    write(tmp_path / "whole", mi210())
    write(tmp_path / "cut", unlinked(mi300x("CPX", "NPS4")))
    whole, cut = find(tmp_path / "whole"), find(tmp_path / "cut")
    assert counts(whole) == counts(whole, MIXED) == {"gpu": 8}
    assert (counts(cut), counts(cut, MIXED)) == ({"gpu": 64}, {"cpx_nps4": 64})
    assert counts(whole, "--name-by-model") == {"instinct-mi210": 8}
    assert counts(cut, "--name-by-model", MIXED) == {"instinct-mi300x-oam-cpx_nps4": 64}
    assert counts(whole, "--replicas=4") == {"gpu": 32}


def test_9_names_on_a_node_that_is_cut_differently(tmp_path: Path):
    machine = mi300x("CPX", "NPS1")
    for gpu in machine.gpus[:5]:
        machine = machine.change(gpu.address, compute="SPX", parts=1)
    write(tmp_path, unlinked(machine))
    found = find(tmp_path)
    assert counts(found, MIXED) == {"spx_nps1": 5, "cpx_nps1": 24}
    refused = offer(found)
    assert refused.resources == ()
    assert "(24 with cpx_nps1, 5 with spx_nps1)" in refused.needed[0]


@pytest.fixture
def quads(tmp_path: Path) -> Resource:
    (resource,) = offer(find(write(tmp_path, mi210()))).resources
    return resource


BUSES = ("63", "43", "03", "26", "e3", "c3", "83", "a3")  # test1 to test8 of AMD's own tests, by KFD node


def chosen(resource: Resource, available: str, must: str, size: int) -> set[str]:
    """By bus."""

    def slots(buses: str) -> list[SlotId]:
        return [SlotId(f"0000:{bus}:00.0") for bus in buses.split()]

    return {slot[5:7] for slot in place(resource, slots(available), slots(must), size).slots}


@pytest.mark.parametrize(("size", "buses"), [(1, "03"), (3, "03 26 43"), (5, "03 26 43 63 83")])
def test_10_whole_quads_first(quads: Resource, size: int, buses: str):
    """As AMD's program answers; its own tests number the GPUs by KFD node, and have the others of the same quad."""
    assert chosen(quads, " ".join(BUSES), "", size) == {*buses.split()}


def test_10_and_11_what_is_left_of_a_quad_goes_after_a_whole_one(quads: Resource):
    assert chosen(quads, "43 63 83 a3 c3 e3", "", 3) == {"83", "a3", "c3"}
    assert chosen(quads, " ".join(BUSES), "a3", 2) == {"83", "a3"}
    assert chosen(quads, "03 83 a3", "", 2) == {"83", "a3"}
