"""GPUs by their device nodes alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.nvml import Driver, Node, gpus
from tests.nvml.models import partitioned
from tests.unit.backends.nvidia.drivers import installed

from fairlead.backends.nvidia.errors import DriverAbsent
from fairlead.backends.nvidia.nodes import INSTANCES_MAX, read_nodes
from fairlead.backends.nvidia.snapshot import Platform

CUT = partitioned(gpus("A100", 1)[0], "3g.20gb", "3g.20gb")


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Node]:
    one, two = gpus("A100", 2)
    cards = (replace(one, minor=3, numa_node=1), replace(two, minor=0, numa_node=-1))
    with installed(Driver(gpus=cards), tmp_path) as node:
        if not node.has_device_nodes:
            pytest.skip("device nodes need root")
        yield node


def test_a_gpu_is_its_node_with_what_the_kernel_module_says(machine: Node) -> None:
    seen = read_nodes(str(machine.root))
    assert seen.platform is Platform.NODES
    assert [(gpu.uuid, gpu.minor, gpu.numa) for gpu in seen.gpus] == [("nvidia0", 0, None), ("nvidia3", 3, 1)]
    assert seen.gpus[0].name == machine.driver.gpus[1].name
    assert seen.driver_version == machine.driver.driver_version


def test_a_kernel_module_that_says_nothing_costs_only_what_it_would_say(machine: Node) -> None:
    for path in (machine.root / "proc/driver/nvidia/gpus").rglob("information"):
        path.write_bytes(b"\xff\0garbage\nDevice Minor: many\n")
    assert [(gpu.uuid, gpu.name) for gpu in read_nodes(str(machine.root)).gpus] == [("nvidia0", ""), ("nvidia3", "")]


@pytest.mark.parametrize("name", ["nvidiactl", "nvidia-uvm"])
def test_without_the_nodes_of_the_driver_it_is_waited_for(machine: Node, name: str) -> None:
    (machine.root / "dev" / name).unlink()
    with pytest.raises(DriverAbsent, match=f"there is no /dev/{name}"):
        read_nodes(str(machine.root))


def test_other_files_are_no_gpus(machine: Node) -> None:
    for name in ("nvidia7", "nvidia999", "nvidia0000", "nvidiaX", "nvidia-1"):
        (machine.root / "dev" / name).touch()
    assert [gpu.uuid for gpu in read_nodes(str(machine.root)).gpus] == ["nvidia0", "nvidia3"]


def test_mig_instances_are_read_from_the_capabilities(tmp_path: Path) -> None:
    with installed(Driver(gpus=(CUT,)), tmp_path) as node:
        if not node.has_device_nodes:
            pytest.skip("device nodes need root")
        (gpu,) = read_nodes(str(node.root)).gpus
    assert [(one.uuid, one.gi_cap, one.ci_cap) for one in gpu.migs] == [
        ("nvidia0/gi1", 12, 13),
        ("nvidia0/gi2", 21, 22),
    ]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(content=st.binary(max_size=200))
def test_any_capability_file_may_be_there(machine: Node, content: bytes) -> None:
    base = machine.root / "proc/driver/nvidia/capabilities/gpu0/mig"
    for number in (1, 2):
        (base / f"gi{number}").mkdir(parents=True, exist_ok=True)
    (base / "gi1/access").write_bytes(content)
    gpu = read_nodes(str(machine.root)).gpus[0]
    assert [one.gi for one in gpu.migs] == [1, 2]
    assert gpu.migs[1].gi_cap is None


def test_more_instances_than_there_can_be_are_not_looked_at(machine: Node) -> None:
    for number in range(2 * INSTANCES_MAX):
        (machine.root / f"proc/driver/nvidia/capabilities/gpu0/mig/gi{number}").mkdir(parents=True)
    seen = read_nodes(str(machine.root))
    assert len(seen.gpus[0].migs) == INSTANCES_MAX
    assert "128 MIG instances" in seen.problems[0]
