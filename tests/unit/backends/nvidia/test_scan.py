"""Scans of a simulated driver: what comes, what goes, what fails."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.nvml import Driver, Gpu, Node, gpus
from tests.nvml.models import linked
from tests.nvml.models import partitioned as cut
from tests.unit.backends.nvidia.drivers import installed, opened, switched

from fairlead.backends.nvidia import NvidiaBackend, library
from fairlead.backends.nvidia.errors import DriverAbsent, GpusFailed, MigMismatch
from fairlead.engine.validate import check_findings


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with installed(Driver(gpus=gpus("A100", 4)), tmp_path) as node:
        yield node


async def ids(backend: NvidiaBackend) -> list[str]:
    return [device.id for device in (await backend.discover()).devices]


def uuids(those: tuple[Gpu, ...]) -> list[str]:
    return [gpu.uuid for gpu in those]


async def test_a_gpu_that_is_plugged_in_or_pulled_is_seen_without_a_restart(node: Node) -> None:
    eight = gpus("A100", 8)
    async with opened(node) as backend:
        assert await ids(backend) == uuids(node.driver.gpus)
        node.become(replace(node.driver, gpus=eight))
        assert await ids(backend) == uuids(eight)
        node.become(replace(node.driver, gpus=eight[:2]))
        assert await ids(backend) == uuids(eight[:2])


async def test_a_scan_of_an_unchanged_machine_starts_no_new_session(node: Node) -> None:
    """Starting NVML anew switches GPUs off and on where nobody else holds them."""
    async with opened(node) as backend:
        before = await ids(backend)
        node.fault("nvmlInit", 999)
        assert await ids(backend) == before


async def test_mig_is_cut_anew_without_a_restart(node: Node) -> None:
    whole = node.driver.gpus
    async with opened(node, mig="mixed") as backend:
        assert await ids(backend) == uuids(whole)
        parts = cut(whole[0], "3g.20gb", "3g.20gb")
        node.become(replace(node.driver, gpus=(parts, *whole[1:])))
        found = (await backend.discover()).devices
        assert [device.index for device in found] == ["0:0", "0:1", "1", "2", "3"]
        assert [device.attributes.get("profile") for device in found[:2]] == ["3g.20gb", "3g.20gb"]
        parts = cut(whole[0], "7g.40gb")
        node.become(replace(node.driver, gpus=(parts, *whole[1:])))
        found = (await backend.discover()).devices
        assert [device.attributes.get("profile") for device in found] == ["7g.40gb", None, None, None]


async def test_single_is_refused_for_a_mixture_and_works_when_it_is_mended(node: Node) -> None:
    whole = node.driver.gpus
    async with opened(node, mig="single") as backend:
        node.become(replace(node.driver, gpus=(cut(whole[0], "7g.40gb"), *whole[1:])))
        with pytest.raises(MigMismatch, match="same migEnabled value"):
            await backend.discover()
        node.become(replace(node.driver, gpus=tuple(cut(gpu, "7g.40gb") for gpu in whole)))
        assert len(await ids(backend)) == 4


@pytest.mark.parametrize(
    ("function", "code"),
    [
        ("nvmlDeviceGetHandleByIndex", 15),
        ("nvmlDeviceGetName", 15),
        ("nvmlDeviceGetUUID", 999),
        ("nvmlDeviceGetMinorNumber", 3),
        ("nvmlDeviceGetPciInfo", 999),
        ("nvmlDeviceGetCudaComputeCapability", 999),
        ("nvmlDeviceGetMigMode", 999),
    ],
)
async def test_a_gpu_that_cannot_be_read_costs_itself_only(node: Node, function: str, code: int) -> None:
    all_four = uuids(node.driver.gpus)
    async with opened(node) as fresh:
        node.fault(function, code, gpu=1)
        found = await fresh.discover()
        assert [device.id for device in found.devices] == [all_four[0], *all_four[2:]]
        assert len(found.problems) == 1
        assert found.problems[0].startswith(f"GPU 1: {function}")


async def test_a_gpu_that_was_seen_stays_in_its_place_when_it_is_lost(node: Node) -> None:
    all_four = uuids(node.driver.gpus)
    async with opened(node) as backend:
        before = await backend.discover()
        node.lose(1)
        for _ in range(3):
            found = await backend.discover()
            assert [device.id for device in found.devices] == all_four
            assert found.links == before.links
            assert "lost" in found.problems[0]
        node.find(1)
        assert (await backend.discover()).problems == ()


async def test_when_no_gpu_can_be_read_the_scan_fails_and_says_why(node: Node) -> None:
    async with opened(node) as backend:
        node.fault("nvmlDeviceGetMinorNumber", 3)
        with pytest.raises(GpusFailed, match="GPU 0: nvmlDeviceGetMinorNumber: Not Supported"):
            await backend.discover()


async def test_unknown_memory_is_no_reason_to_lose_a_gpu(node: Node) -> None:
    async with opened(node) as backend:
        node.fault("nvmlDeviceGetMemoryInfo", 3)
        found = await backend.discover()
        assert [device.memory_bytes for device in found.devices] == [0] * 4


@pytest.mark.parametrize("text", ["", "garbage", "0x1", "1_0", "99999999999", "9" * 10_000])
async def test_a_numa_node_that_is_none_is_reported_and_not_known(node: Node, text: str) -> None:
    for device in (node.root / "sys/bus/pci/devices").iterdir():
        (device / "numa_node").write_text(text)
    async with opened(node) as backend:
        found = check_findings(await backend.discover())
    assert [device.numa_nodes for device in found.devices] == [()] * 4
    assert sum("is no number of a node" in problem for problem in found.problems) == 4


async def test_a_display_gpu_is_not_offered_and_keeps_its_number(node: Node) -> None:
    display = replace(node.driver.gpus[1], name="NVIDIA DGX Display")
    node.become(replace(node.driver, gpus=(node.driver.gpus[0], display, *node.driver.gpus[2:])))
    async with opened(node) as backend:
        assert [device.index for device in (await backend.discover()).devices] == ["0", "2", "3"]


async def test_a_uuid_that_is_none_is_a_problem_of_its_gpu(node: Node) -> None:
    odd = replace(node.driver.gpus[0], uuid="nonsense")
    node.become(replace(node.driver, gpus=(odd, *node.driver.gpus[1:])))
    async with opened(node) as backend:
        found = await backend.discover()
        assert len(found.devices) == 3
        assert "'nonsense'" in found.problems[0]


async def test_no_gpu_at_all_is_an_answer(node: Node) -> None:
    async with opened(node) as backend:
        node.become(replace(node.driver, gpus=()))
        assert await ids(backend) == []


# --- No driver ----------------------------------------------------------------------------------------------------


async def test_a_driver_that_comes_late_is_found(tmp_path: Path) -> None:
    there = Driver(gpus=gpus("A100", 2))
    with installed(there, tmp_path) as node:
        node.unload()
        async with opened(node) as backend:
            for _ in range(2):
                with pytest.raises(DriverAbsent, match=r"NVML error 9.*kernel module nvidia is not loaded"):
                    await backend.discover()
            node.become(there)
            assert await ids(backend) == uuids(there.gpus)


async def test_a_library_that_is_not_there_is_named_with_the_places_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "NAME", "libnvidia-ml.so.none")
    with installed(Driver(library_path=None), tmp_path) as node:
        async with opened(node) as backend:
            with pytest.raises(DriverAbsent, match=r"libnvidia-ml.so.none was not found: not in usr/lib64, .*Install"):
                await backend.discover()


def test_a_library_that_cannot_be_loaded_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "NAME", "libnvidia-ml.so.none")
    place = tmp_path / "usr/lib64/libnvidia-ml.so.none"
    place.parent.mkdir(parents=True)
    place.write_bytes(b"\x7fELF nonsense")
    with pytest.raises(DriverAbsent, match=rf"cannot be loaded: {place}: .*architecture"):
        library.load(str(tmp_path))


async def test_a_broken_library_does_not_hide_a_good_one(node: Node) -> None:
    place = node.root / "usr/lib64/libnvidia-ml.so.1"
    place.parent.mkdir(parents=True)
    place.write_bytes(b"nonsense")
    async with opened(node) as backend:
        assert len(await ids(backend)) == 4


@pytest.mark.parametrize(
    ("code", "help_"), [(18, "different versions"), (4, "may not open"), (17, "NVRM"), (999, "nvidia-smi")]
)
async def test_a_driver_that_does_not_start_is_explained(node: Node, code: int, help_: str) -> None:
    node.fault("nvmlInit", code)
    async with opened(node) as backend:
        with pytest.raises(DriverAbsent, match=help_):
            await backend.discover()
        node.mend()
        assert len(await ids(backend)) == 4


# --- Links --------------------------------------------------------------------------------------------------------


async def test_links_are_read_once_for_a_set_of_gpus(node: Node) -> None:
    those = linked(node.driver.gpus, {(0, 1): 2, (2, 3): 1})
    node.become(replace(node.driver, gpus=those, levels=((0, 2, 20),)))
    async with opened(node) as backend:
        first = (await backend.discover()).links
        one, two, three, four = uuids(those)
        scores = [first.between(one, two), first.between(three, four), first.between(one, three)]
        assert scores == [210, 110, 40]
        node.fault("nvmlDeviceGetTopologyCommonAncestor", 999)
        assert (await backend.discover()).links == first


async def test_a_gpu_without_topology_has_no_score_and_the_others_have_theirs(node: Node) -> None:
    node.fault("nvmlDeviceGetTopologyCommonAncestor", 3, gpu=1)
    async with opened(node) as backend:
        links = (await backend.discover()).links
        one, two, three, _ = uuids(node.driver.gpus)
        assert links.between(two, three) == 0
        assert links.between(one, three) > 0


async def test_gpus_on_nvswitches_are_better_together_than_on_pcie(node: Node) -> None:
    those = (*switched(node.driver.gpus[:3], 12), node.driver.gpus[3])
    node.become(replace(node.driver, gpus=those))
    async with opened(node) as backend:
        links = (await backend.discover()).links
        one, two, _, lone = uuids(those)
        assert links.between(one, two) == 1210
        assert links.between(one, lone) == 10


async def test_many_scans_at_once_do_no_harm(node: Node) -> None:
    async with opened(node) as backend:
        found = await asyncio.gather(*(backend.discover() for _ in range(8)))
        assert all(one == found[0] for one in found)
