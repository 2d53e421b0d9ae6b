"""Sysfs that is missing, unreadable, half-written, garbage, a loop or huge: one device is named, the others serve."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.amd import machines, tree
from tests.unit.backends.amd.trees import backend, by_id, scan, weight

from fairlead.backends.amd import sysfs
from fairlead.engine.validate import check_findings, check_verdict
from fairlead.kit.clock import SystemClock
from fairlead.model.errors import BackendError

BAD, GOOD = "0000:63:00.0", [gpu.address for gpu in machines.mi210().gpus[1:]]
PCI = f"sys/devices/pci0000:63/{BAD}"
KFD = f"{tree.NODES}/2"
Damage = Callable[[Path], None]


def gone(path: Path) -> None:
    """Not there."""


def empty(path: Path) -> None:
    path.touch()


def garbage(path: Path) -> None:
    path.write_bytes(b"\x00\xff\xfegarbage\n" * 3)


def half(path: Path) -> None:
    path.write_text("cpu_cores_co")


def huge(path: Path) -> None:
    path.write_bytes(b"x" * 10_000_000)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def directory(path: Path) -> None:
    path.mkdir()


def fifo(path: Path) -> None:
    os.mkfifo(path)


ALL = [gone, empty, garbage, half, huge, endless, loop, directory, fifo]


def damage(root: Path, path: str, how: Damage) -> None:
    tree.write(root, machines.mi210())
    tree.remove(root, path)
    how(root / path)


@pytest.mark.parametrize("how", ALL)
async def test_the_numa_node_of_one_gpu(how: Damage, tmp_path: Path) -> None:
    damage(tmp_path, f"{PCI}/numa_node", how)
    found = await scan(tmp_path)
    assert [device.id for device in found.devices if not device.numa_nodes] == [BAD]
    assert len(found.devices) == 8
    assert found.problems == () or (BAD in found.problems[0] and "numa_node" in found.problems[0])
    assert bool(found.problems) == (how not in (gone, empty, fifo))  # those are what a kernel without NUMA shows


@pytest.mark.parametrize("how", ALL)
async def test_the_compute_mode_of_one_gpu(how: Damage, tmp_path: Path) -> None:
    tree.write(tmp_path, machines.mi308())
    path = "sys/devices/pci0000:80/0000:80:00.0/current_compute_partition"
    tree.remove(tmp_path, path)
    how(tmp_path / path)
    found = await scan(tmp_path)
    without = [device.id for device in found.devices if "computePartition" not in device.attributes]
    assert without == ["0000:80:00.0", "amdgpu_xcp_4", "amdgpu_xcp_5", "amdgpu_xcp_6"]
    assert len(found.devices) == 32
    assert len(found.problems) == (how not in (gone, empty, fifo))
    assert all("0000:80:00.0" in problem for problem in found.problems)


async def test_how_a_gpu_is_cut_stands_while_the_kernel_does_not_say(tmp_path: Path) -> None:
    """As during a reset of the GPU. Its partitions would be another resource, which pods could get a second time."""
    tree.write(tmp_path, machines.mi308())
    amd = backend(tmp_path)
    before = await amd.discover()
    path = tmp_path / "sys/devices/pci0000:80/0000:80:00.0/current_compute_partition"
    path.unlink()
    path.mkdir()
    meanwhile = await amd.discover()
    assert meanwhile.devices == before.devices
    assert meanwhile.problems == ("0000:80:00.0: current_compute_partition: Is a directory. It is offered as before",)
    path.rmdir()
    path.write_text("SPX\n")
    after = await amd.discover()
    assert {device.attributes["computePartition"] for device in after.devices} == {"cpx", "spx"}
    await amd.close()


@pytest.mark.parametrize(
    ("path", "how"), [("drm/renderD128", gone), *(("drm", how) for how in (gone, garbage, loop, endless))]
)
async def test_a_gpu_without_render_node_is_left_out_by_name(path: str, how: Damage, tmp_path: Path) -> None:
    damage(tmp_path, f"{PCI}/{path}", how)
    found = await scan(tmp_path)
    assert sorted(by_id(found)) == sorted(GOOD)
    assert len(found.problems) == 1
    assert found.problems[0].startswith(f"{BAD} is left out: ")


@pytest.mark.parametrize("how", ALL)
async def test_a_pci_function_that_leads_nowhere(how: Damage, tmp_path: Path) -> None:
    damage(tmp_path, f"sys/bus/pci/drivers/amdgpu/{BAD}", how)
    found = await scan(tmp_path)
    assert sorted(by_id(found)) == sorted(GOOD)
    assert len(found.problems) == (how is not gone)


@pytest.mark.parametrize("how", ALL)
async def test_the_kfd_node_of_one_gpu(how: Damage, tmp_path: Path) -> None:
    damage(tmp_path, f"{KFD}/properties", how)
    amd = backend(tmp_path)
    found = await amd.discover()
    assert sorted(by_id(found)) == sorted([BAD, *GOOD])
    assert len(found.problems) == 1
    assert found.problems[0].startswith("KFD node 2: ")
    assert {weight(found, BAD, other) for other in GOOD} == {80, 90}  # the links of a node that is not known
    assert weight(found, GOOD[0], GOOD[1]) == 40
    assert not any((await amd.probe_all(found.devices)).values())
    await amd.close()


@pytest.mark.parametrize("how", ALL)
async def test_a_link_that_cannot_be_read_is_the_worst(how: Damage, tmp_path: Path) -> None:
    damage(tmp_path, f"{KFD}/io_links", how)
    for node in range(3, 10):
        tree.remove(tmp_path, f"{tree.NODES}/{node}/io_links")
    found = await scan(tmp_path)
    assert len(found.devices) == 8
    assert weight(found, BAD, "0000:43:00.0") == 80
    assert weight(found, BAD, "0000:e3:00.0") == 80
    assert bool(found.problems) == (how not in (gone, directory))


def test_a_file_that_is_larger_than_the_kernel_makes_it_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "properties"
    path.write_text("drm_render_minor 128\n" * 1000)
    with pytest.raises(OSError, match="it has more than 4,096 bytes"):
        sysfs.read(str(path))


async def test_a_partition_that_kfd_does_not_show_is_left_out_by_name(tmp_path: Path) -> None:
    tree.write(tmp_path, machines.virtual())
    tree.remove(tmp_path, f"{tree.NODES}/3")
    found = await scan(tmp_path)
    assert len(found.devices) == 7
    assert found.problems == (
        "amdgpu_xcp_2: left out, because KFD shows no node of theirs and so not which GPU is theirs",
    )


async def test_a_partition_whose_gpu_is_not_the_drivers_is_left_out_by_name(tmp_path: Path) -> None:
    tree.write(tmp_path, machines.mi308())
    tree.remove(tmp_path, "sys/bus/pci/drivers/amdgpu/0000:80:00.0")
    found = await scan(tmp_path)
    assert len(found.devices) == 28
    assert found.problems[0] == "amdgpu_xcp_4 is left out: its GPU, 0000:80:00.*, is none of the driver's PCI functions"


async def test_two_gpus_with_one_render_node(tmp_path: Path) -> None:
    """AMD's own plugin lets the second have the nodes of the first, and may prefer one id twice."""
    tree.write(tmp_path, machines.mi210().change("0000:43:00.0", render=128))
    found = await scan(tmp_path)
    assert BAD not in by_id(found)
    assert f"{BAD} is left out: renderD128 is 0000:43:00.0's as well" in found.problems


async def test_nodes_that_the_kernel_refuses_are_one_problem_with_its_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel refuses nodes of GPUs that the process may not use: all of them, to a daemon without privileges."""
    tree.write(tmp_path, machines.mi308())
    read = sysfs.read

    def refuse(path: str) -> bytes:
        if path.endswith("/properties") and "nodes/0/" not in path and "nodes/1/" not in path:
            raise PermissionError(1, "Operation not permitted", path)
        return read(path)

    monkeypatch.setattr(sysfs, "read", refuse)
    amd = backend(tmp_path)
    found = await amd.discover()
    assert [device.id for device in found.devices] == [gpu.address for gpu in machines.mi308().gpus]
    refused, orphans = found.problems
    assert refused.startswith(
        "KFD node 2, 3, 4, 5, 6, 7, 8, 9 and 24 more: properties: Operation not permitted. Run the"
    )
    assert orphans.startswith("amdgpu_xcp_1, amdgpu_xcp_2, ")
    assert orphans.endswith(
        " and 16 more: left out, because KFD shows no node of theirs and so not which GPU is theirs"
    )
    assert not any((await amd.probe_all(found.devices)).values())
    await amd.close()


@pytest.mark.parametrize("how", [garbage, loop])
@pytest.mark.parametrize("path", ["sys/bus/pci/drivers/amdgpu", tree.NODES, "sys/devices/platform"])
async def test_a_whole_directory_that_is_none_fails_the_scan(path: str, how: Damage, tmp_path: Path) -> None:
    """It is not known what there is: what was found before stays."""
    tree.write(tmp_path, machines.virtual())
    tree.remove(tmp_path, path)
    how(tmp_path / path)
    with pytest.raises(BackendError):
        await scan(tmp_path)


async def test_a_directory_with_too_many_entries_fails_the_scan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sysfs, "NAMES_MAX", 3)
    with pytest.raises(BackendError, match="entries, and 3 are the limit"):
        await scan(tmp_path, machines.mi210())


async def test_more_links_than_any_machine_has_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead.backends.amd.topology.LINKS_MAX", 20)
    found = await scan(tmp_path, machines.mi210())
    assert len(found.devices) == 8
    assert found.problems == ("KFD: more than 20 links: the rest is not read",)


SMALL = machines.Machine(
    (*machines.virtual().gpus, *(replace(gpu, render=gpu.render + 8) for gpu in machines.vegas().gpus))
)
PATHS = sorted(path for path in tree.files_of(SMALL) if path.startswith("sys/"))
CONTENT = st.one_of(
    st.binary(max_size=64),
    st.sampled_from([b"drm_render_minor 128\n", b"-1", b"9" * 30, b"domain 65536\nlocation_id 1", b"\n", b"x" * 5000]),
)


def _change(root: Path, changes: Mapping[str, bytes | str | None]) -> None:
    for path, content in changes.items():
        tree.remove(root, path)
        if content == "loop":
            loop(root / path)
        elif isinstance(content, bytes):
            (root / path).write_bytes(content)


@given(st.dictionaries(st.sampled_from(PATHS), st.one_of(st.none(), st.just("loop"), CONTENT), max_size=8))
@settings(max_examples=80, deadline=None)
async def test_whatever_the_kernel_shows_is_devices_or_an_error(changes: dict[str, bytes | str | None]) -> None:
    with tree.scratch() as root:
        tree.write(root, SMALL)
        _change(root, changes)
        amd = backend(root)
        try:
            found = check_findings(await amd.discover())
        except BackendError:
            return
        finally:
            await amd.close()
    ids = [device.id for device in found.devices]
    assert len(set(ids)) == len(ids)
    assert set(ids) <= {part.xcp or part.gpu.address for part in SMALL.parts()}
    touched = {gpu.address for gpu in SMALL.gpus if any(gpu.address in path for path in changes)}
    functions = {gpu.address for gpu in SMALL.gpus} - touched
    if not any("drivers/amdgpu" in path or "module" in path or "class/kfd" in path for path in changes):
        assert functions <= set(ids)  # what was not touched is offered
    for device in found.devices:
        assert device.numa_nodes == () or device.numa_nodes[0] < 1024
        assert len({node.path for node in device.nodes}) == len(device.nodes) >= 2


class Hasty(SystemClock):
    """A device that KFD has lost is looked at again after a pause, which here is none."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(0)


@given(st.dictionaries(st.sampled_from(PATHS), CONTENT, max_size=8))
@example({f"{tree.NODES}/2/properties": b""})
@settings(max_examples=30, deadline=None)
async def test_whatever_the_kernel_shows_is_a_verdict_or_no_data(changes: dict[str, bytes]) -> None:
    with tree.scratch() as root:
        tree.write(root, SMALL)
        amd = backend(root, Hasty())
        devices = (await amd.discover()).devices
        _change(root, changes)
        try:
            verdicts = await amd.probe_all(devices)
        finally:
            await amd.close()
    assert verdicts.keys() == {device.id for device in devices}
    for verdict in verdicts.values():
        assert isinstance(verdict, Exception) or check_verdict(verdict) is verdict
