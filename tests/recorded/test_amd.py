"""Recordings of AMD's device plugin, played with ours: the same outcome, or a difference that is meant."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from fairlead.standin._gen import deviceplugin_v1beta1_pb2 as dp
from tests.amd.machines import mi300x, unlinked
from tests.amd.tree import write
from tests.recorded.amd import machine_of, play, recorded, staged
from tests.recorded.amd_allocator import play_allocator, recorded_allocator
from tests.recorded.differences_amd import DIFFERENCES
from tests.recorded.held import check_table
from tests.recorded.outcome import judge
from tests.system.process import fairlead, program
from tests.vectors.amd import ALLOCATOR, Case, amd

PLAYED = [name for name in amd() if name != ALLOCATOR]
EIGHT, CUT = "001-mi210-single", "003-mi300-cpx-single"


@pytest.mark.parametrize("name", PLAYED)
async def test_the_outcome_is_theirs_or_one_that_is_meant(name: str, kubelet_root: Path):
    case = amd()[name]
    if found := judge(DIFFERENCES, name, recorded(case), await play(case, kubelet_root), ends=False):
        pytest.fail("\n".join(found), pytrace=False)


def test_the_guide_has_every_difference_and_no_other():
    check_table("amd", amd(), DIFFERENCES)


def test_every_preference_that_they_answer_is_compared():
    """The recordings hold these many; an error of theirs is a difference, by its number."""
    answered = [
        answer
        for case in (amd()[name] for name in PLAYED)
        for resource in case.outputs.get("resources", {}).values()
        for answer in resource["answers"]
        if answer["rpc"] == "GetPreferredAllocation" and "response" in answer
    ]
    assert len(answered) == 60


# --- The allocator as a package ---------------------------------------------------------------------------------------


async def test_the_allocator_answers_as_theirs_as_a_package(tmp_path: Path):
    case = amd()[ALLOCATOR]
    if found := judge(DIFFERENCES, ALLOCATOR, recorded_allocator(case), await play_allocator(case, tmp_path)):
        pytest.fail("\n".join(found), pytrace=False)


# --- What no recording shows ------------------------------------------------------------------------------------------


async def test_a_preference_comes_in_the_order_of_the_list(kubelet_root: Path):
    async with staged(amd()["005-mi308-single"], kubelet_root) as (_, end):
        (followed,) = end.followed.values()
        ids = [one.ID for one in followed.lists[-1].devices]
        wanted = dp.ContainerPreferredAllocationRequest(available_deviceIDs=ids, allocation_size=7)
        answer = await _prefer(followed, wanted)
        assert answer == [one for one in ids if one in answer]


async def test_what_was_granted_a_moment_ago_is_not_preferred(kubelet_root: Path):
    async with staged(amd()[EIGHT], kubelet_root) as (_, end):
        (followed,) = end.followed.values()
        ids = [one.ID for one in followed.lists[-1].devices]
        granted = dp.AllocateRequest(container_requests=[dp.ContainerAllocateRequest(devices_ids=["0000:03:00.0"])])
        await followed.ask("Allocate", granted, dp.AllocateResponse)
        wanted = dp.ContainerPreferredAllocationRequest(available_deviceIDs=ids, allocation_size=1)
        assert await _prefer(followed, wanted) == ["0000:26:00.0"]


async def test_a_gpu_that_is_cut_anew_changes_the_list(kubelet_root: Path):
    case = amd()["024-heterogeneous-one-without-partition"]
    async with staged(case, kubelet_root) as (daemon, end):
        write(kubelet_root / "machine", unlinked(mi300x("SPX", "NPS1")))
        (source,) = daemon.engine.sources.live.values()
        source.rescan()
        whole = end.followed["amd.com/spx_nps1"]
        await end.until(lambda: sum(one.health == "Healthy" for one in whole.lists[-1].devices) == 8)


async def test_health_is_looked_at_without_a_pulse(kubelet_root: Path):
    async with staged(amd()[EIGHT], kubelet_root) as (daemon, _):
        (source,) = daemon.engine.sources.live.values()
        assert source.probed
        assert source.tempo.probe_interval_s == 5


async def test_partitions_that_differ_are_refused_under_single(tmp_path: Path):
    write(tmp_path / "machine", unlinked(machine_of(amd()["006-heterogeneous-mixed"])))
    (tmp_path / "dp").mkdir()
    places = [f"--plugin-dir={tmp_path}/dp", f"--status-socket={tmp_path}/fl.sock", f"--host-root={tmp_path}/machine"]
    async with program("-m", "fairlead", "amd", "-logtostderr=true", *places) as running:
        assert await running.ends() == 1
        said = "\n".join(running.lines)
    assert "amd.com/gpu is not offered: its devices differ in profile (23 with cpx_nps1, 5 with spx_nps1)" in said
    assert "fairlead amd: In flags: -resource_naming_strategy=mixed" in said


async def test_partitions_that_differ_later_leave_what_is_offered(kubelet_root: Path):
    case = amd()[EIGHT]
    both = replace(case, inputs=case.inputs | {"sysfs": amd()[CUT].inputs["sysfs"]})
    async with staged(_whole(both), kubelet_root) as (daemon, end):
        (followed,) = end.followed.values()
        before = [one.ID for one in followed.lists[-1].devices]
        write(kubelet_root / "machine", unlinked(machine_of(amd()["006-heterogeneous-mixed"])))
        (source,) = daemon.engine.sources.live.values()
        await source.scan()
        daemon.settle()
        assert any("differ in profile" in problem for problem in daemon.engine.listing.offering.problems)
        assert [one.ID for one in followed.lists[-1].devices] == before


async def test_by_cdi_a_container_gets_names_instead_of_nodes(kubelet_root: Path):
    flags = ["--device-list-strategy=cdi-cri", f"--cdi-dir={kubelet_root}/cdi"]
    async with staged(amd()[EIGHT], kubelet_root, *flags) as (_, end):
        (followed,) = end.followed.values()
        wanted = dp.AllocateRequest(container_requests=[dp.ContainerAllocateRequest(devices_ids=["0000:03:00.0"])])
        (answer,) = (await followed.ask("Allocate", wanted, dp.AllocateResponse)).container_responses
        assert [one.name for one in answer.cdi_devices] == ["amd.com/gpu=0000:03:00.0"]
        assert not answer.devices
        assert [path.name for path in (kubelet_root / "cdi").iterdir()] == ["amd.com-gpu.json"]


async def test_replicas_are_spread_over_the_closest_gpus(kubelet_root: Path):
    async with staged(amd()[EIGHT], kubelet_root, "--replicas=2") as (_, end):
        (followed,) = end.followed.values()
        ids = [one.ID for one in followed.lists[-1].devices]
        assert len(ids) == 16
        free = [one for one in ids if one[5:7] not in {"03", "26"}]
        wanted = dp.ContainerPreferredAllocationRequest(available_deviceIDs=free, allocation_size=4)
        assert {one[5:7] for one in await _prefer(followed, wanted)} == {"83", "a3", "c3", "e3"}


async def test_the_command_prints_its_configuration_and_ends_as_theirs():
    code, out, err = await fairlead("amd", "-resource_naming_strategy=mixed", "--print-config")
    assert (code, err) == (0, "")
    assert "resource: amd.com/{profile}" in out
    assert (await fairlead("amd", "-resource_naming_strategy=both"))[0] == 1
    assert (await fairlead("amd", "-no-such-flag"))[0] == 2


async def _prefer(followed: object, wanted: dp.ContainerPreferredAllocationRequest) -> list[str]:
    request = dp.PreferredAllocationRequest(container_requests=[wanted])
    answer = await followed.ask("GetPreferredAllocation", request, dp.PreferredAllocationResponse)  # type: ignore[attr-defined]
    return list(answer.container_responses[0].deviceIDs)


def _whole(case: Case) -> Case:
    """The same machine with GPUs that are not cut."""
    sysfs = case.inputs["sysfs"]
    pci = [{**one, "compute": "SPX"} for one in sysfs["pci"]]
    return replace(case, inputs=case.inputs | {"sysfs": {**sysfs, "pci": pci, "xcp": []}})
