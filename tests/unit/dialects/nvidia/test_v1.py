"""NVIDIA's config file: what it takes, what it refuses, and what only leniency overlooks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fairlead.config.choice import NOTHING
from fairlead.dialects.configfile import BadFile
from fairlead.dialects.nvidia.v1 import EMPTY, Shared, load, parse

UUID = "8d3eb491-3e8a-6b16-6f9a-2021f050525a"


def shared(entry: str, block: str = "timeSlicing", *, lenient: bool = False) -> Shared:
    made = parse(f"version: v1\nsharing: {{{block}: {{resources: [{entry}]}}}}", "c.yaml", lenient=lenient)
    sharing = made.time_slicing if block == "timeSlicing" else made.mps
    assert sharing is not None
    return sharing.resources[0]


def refusal(text: str, *, lenient: bool = False) -> str:
    with pytest.raises(BadFile) as error:
        parse(text, "c.yaml", lenient=lenient)
    assert error.value.exit_code == 1
    return str(error.value)


@pytest.mark.parametrize("text", ["", "# nothing\n", "version: v1\n", "{}", "flags: null\nsharing: null\n"])
def test_a_file_may_say_nothing(text: str):
    assert not parse(text, "c.yaml").flags


def test_the_config_manager_may_choose_none(tmp_path: Path):
    file = tmp_path / "config.yaml"
    file.symlink_to(NOTHING)
    assert load(str(file)) == EMPTY


@pytest.mark.parametrize("version", ["v2", "1", '"1"'])
def test_another_version_is_refused(version: str):
    assert "unknown version" in refusal(f"version: {version}\n")


def test_what_is_given_is_kept_by_its_path():
    text = "flags: {migStrategy: mixed, plugin: {passDeviceSpecs: true, deviceListStrategy: cdi-cri}}\n"
    text += "imex: {channelIDs: [0]}"
    assert parse(text, "c.yaml").flags == {
        "flags.migStrategy": "mixed",
        "flags.plugin.passDeviceSpecs": True,
        "flags.plugin.deviceListStrategy": ("cdi-cri",),
        "imex.channelIDs": (0,),
    }


@pytest.mark.parametrize(("given", "seconds"), [("5", 5e-9), ("5s", 5.0), ("infinite", float("inf"))])
def test_the_sleep_interval(given: str, seconds: float):
    flags = parse(f"flags: {{gfd: {{sleepInterval: {given}}}}}", "c.yaml").flags
    assert flags["flags.gfd.sleepInterval"] == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("devices", "meant"),
    [
        ("all", "all"),
        ("2", 2),
        ("2.0", 2),
        ("[0]", ("0",)),
        ('["0:0", "1"]', ("0:0", "1")),
        (f"[GPU-{UUID}, MIG-{UUID}, MIG-GPU-{UUID}/0/0]", (f"GPU-{UUID}", f"MIG-{UUID}", f"MIG-GPU-{UUID}/0/0")),
        ("[]", ()),
    ],
)
def test_devices(devices: str, meant: Any):
    assert shared(f"{{name: gpu, replicas: 2, devices: {devices}}}").devices == meant


@pytest.mark.parametrize(
    "devices", ["some", "-2", "0", "[-1]", '["-1"]', "[GPU-UUID]", f"[MIG-GPU-{UUID}]", "null", "true"]
)
def test_devices_that_nobody_understands(devices: str):
    assert "device" in refusal(f"sharing: {{mps: {{resources: [{{name: gpu, replicas: 2, devices: {devices}}}]}}}}")


def test_names_get_their_prefix():
    assert shared("{name: valid, replicas: 2}") == Shared(
        "nvidia.com/valid", 2, "", "all", "sharing.timeSlicing.resources[0]"
    )


def test_shared_devices_can_be_renamed():
    block = "renameByDefault: true, resources: [{name: gpu, replicas: 2}, {name: gpu, replicas: 3, rename: big}]"
    text = f"sharing: {{timeSlicing: {{{block}}}}}"
    sharing = parse(text, "c.yaml").time_slicing
    assert sharing is not None
    assert [one.rename for one in sharing.resources] == ["nvidia.com/gpu.shared", "nvidia.com/big"]


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("{replicas: 2}", "no resource name specified"),
        ("{name: gpu}", "no replicas specified"),
        ("{name: gpu, replicas: 1}", "number of replicas must be >= 2, got 1"),
        ("{name: gpu, replicas: 0}", "number of replicas must be >= 2"),
        ("{name: gpu, replicas: null}", "number of replicas must be >= 2, got nothing"),
        ("{name: gpu, replicas: '4'}", "expected a whole number, got '4'"),
        ("{name: $bad$, replicas: 2}", "incorrect format for resource name"),
        ("{name: gpu, replicas: 2, rename: $bad$}", "incorrect format for resource name"),
        ("{name: '', replicas: 2}", "incorrect format for resource name"),
        (f"{{name: {'a' * 53}, replicas: 2}}", "must be 63 characters or less"),
    ],
)
def test_a_sharing_line_that_cannot_work_is_named(entry: str, words: str):
    for lenient in (False, True):
        message = refusal(f"sharing: {{timeSlicing: {{resources: [{entry}]}}}}", lenient=lenient)
        assert "c.yaml: line 1, sharing.timeSlicing.resources[0]" in message
        assert words in message


@pytest.mark.parametrize("block", ["{}", "{resources: []}", "{resources: null}"])
def test_a_sharing_block_needs_resources(block: str):
    assert "no resources specified" in refusal(f"sharing: {{timeSlicing: {block}}}", lenient=True)


def test_an_unknown_key_is_named_unless_one_is_lenient():
    text = "version: v1\nflags: {migstrategy: single, plugins: {}}\n"
    message = refusal(text)
    assert "flags.migstrategy: unknown key" in message
    assert "migStrategy" in message
    assert "flags.plugins" in message
    assert parse(text, "c.yaml", lenient=True).flags == {"flags.migStrategy": "single"}


def test_inside_a_sharing_line_even_leniency_minds_the_case():
    text = "sharing: {timeslicing: {resources: [{Name: gpu, Replicas: 2}]}}"
    assert "no resource name specified" in refusal(text, lenient=True)


@pytest.mark.parametrize(
    "text", ["- a\n- b", "flags: [", "flags: 3", "flags: {migStrategy: 1}", 'flags: {plugin: {passDeviceSpecs: "on"}}']
)
def test_what_is_no_config_file(text: str):
    for lenient in (False, True):
        assert refusal(text, lenient=lenient).startswith("c.yaml: ")


def test_resources_need_a_pattern_and_a_name():
    assert "must have a 'name' field set" in refusal("resources: {gpus: [{pattern: '*'}]}")
    assert "must have a 'pattern' field set" in refusal("resources: {mig: [{name: a}]}")


@pytest.mark.parametrize("lenient", [False, True])
def test_a_partition_is_no_time_of_day(lenient: bool):
    found = shared("{name: gpu, replicas: 2, devices: [1, 1:0, 0:1, 2:10]}", lenient=lenient)
    assert found.devices == ("1", "1:0", "0:1", "2:10")


def test_an_error_names_the_line():
    text = (
        "version: v1\nsharing:\n  timeSlicing:\n    resources:\n    - name: gpu\n      replicas: 1\n      devces: 2\n"
    )
    with pytest.raises(BadFile) as error:
        parse(text, "c.yaml")
    first, second = str(error.value).splitlines()
    assert first.startswith(
        "c.yaml: line 6, sharing.timeSlicing.resources[0].replicas: number of replicas must be >= 2"
    )
    assert second.startswith("c.yaml: line 7, sharing.timeSlicing.resources[0].devces: ")
