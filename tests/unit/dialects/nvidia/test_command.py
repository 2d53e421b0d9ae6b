"""What NVIDIA's settings mean in a configuration of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fairlead.config.load import build
from fairlead.dialects.configfile import BadFile
from fairlead.dialects.goflags import BadFlag
from fairlead.dialects.nvidia.command import read_command_line

WHERE = {
    "directory": "/var/lib/kubelet/device-plugins",
    "socketName": "nvidia-{name}.sock",
    "podResources": "/var/lib/kubelet/pod-resources/kubelet.sock",
}


@pytest.fixture
def mean(tmp_path: Path):
    def meant(*args: str, file: str | None = None, **environ: str) -> dict[str, Any]:
        if file is not None:
            (tmp_path / "c.yaml").write_text(file)
            args = (*args, f"--config-file={tmp_path}/c.yaml")
        config = read_command_line(args, environ).translate().config
        build(dict(config), "test")  # holds as a configuration
        return config

    return meant


def sharing(block: str, kind: str = "timeSlicing") -> str:
    return f"version: v1\nsharing:\n  {kind}: {{{block}}}\n"


def test_nothing_said(mean):
    assert mean() == {
        "backends": [{"kind": "nvidia"}],
        "rules": [{"resource": "nvidia.com/gpu"}],
        "kubelet": WHERE,
        "scan": {"required": True},
        "health": {"restInterval": "30s"},
        "status": {"socket": "/run/fairlead/nvidia.sock"},
        "instance": "nvidia",
    }


def test_flag_over_variable_over_file_over_default(mean):
    file = "flags: {migStrategy: single, plugin: {deviceIDStrategy: index}}"
    assert mean("--mig-strategy=mixed", file=file, MIG_STRATEGY="none")["backends"][0]["mig"] == "mixed"
    assert "mig" not in mean(file=file, MIG_STRATEGY="none")["backends"][0]
    assert mean(file=file)["backends"][0] == {"kind": "nvidia", "mig": "single", "ids": "index"}
    assert mean(file="flags: {plugin: {passDeviceSpecs: true}}", PASS_DEVICE_SPECS="")["backends"] == [
        {"kind": "nvidia"}
    ]


def test_mig_instances_are_named_by_their_profile(mean):
    assert mean("--mig-strategy=mixed")["rules"] == [
        {"match": {"attributes": {"profile": "*"}}, "resource": "nvidia.com/mig-{profile}"},
        {"resource": "nvidia.com/gpu"},
    ]


def test_time_slicing(mean):
    assert mean(file=sharing("resources: [{name: gpu, replicas: 4}]"))["rules"] == [
        {"resource": "nvidia.com/gpu", "replicas": 4}
    ]
    text = sharing("renameByDefault: true, failRequestsGreaterThanOne: true, resources: [{name: gpu, replicas: 4}]")
    assert mean(file=text)["rules"] == [{"resource": "nvidia.com/gpu.shared", "replicas": 4, "perContainer": 1}]


def test_mps_fails_larger_requests_unless_told_otherwise(mean):
    block = "resources: [{name: gpu, replicas: 4}]"
    (rule,) = mean("--mps-root=/run/nvidia/mps", file=sharing(block, "mps"))["rules"]
    assert rule == {
        "resource": "nvidia.com/gpu",
        "replicas": 4,
        "perContainer": 1,
        "env": {"CUDA_MPS_PIPE_DIRECTORY": "/mps/nvidia.com/gpu/pipe"},
        "mounts": [
            {
                "host": "/run/nvidia/mps/nvidia.com/gpu/pipe",
                "container": "/mps/nvidia.com/gpu/pipe",
                "readOnly": False,
            },
            {"host": "/run/nvidia/mps/shm", "container": "/dev/shm", "readOnly": False},
        ],
    }
    loose = sharing(f"failRequestsGreaterThanOne: false, {block}", "mps")
    assert "perContainer" not in mean("--mps-root=/run/nvidia/mps", file=loose)["rules"][0]


def test_some_devices_are_shared_and_the_others_are_not(mean):
    rules = mean(file=sharing("renameByDefault: true, resources: [{name: gpu, replicas: 4, devices: [0, 2]}]"))["rules"]
    assert rules == [
        {"match": {"index": ["0", "2"]}, "resource": "nvidia.com/gpu.shared", "replicas": 4},
        {"resource": "nvidia.com/gpu"},
    ]
    rules = mean(file=sharing("resources: [{name: gpu, replicas: 4, devices: 2, rename: half}]"))["rules"]
    assert rules[0] == {"match": {"first": 2}, "resource": "nvidia.com/half", "replicas": 4}


@pytest.mark.parametrize(("flags", "end"), [((), "is in force; "), (("--lenient",), "is not in force, ")])
def test_what_nvidias_plugin_drops_is_noted_in_either_mode(flags: tuple[str, ...], end: str, tmp_path: Path):
    file = tmp_path / "c.yaml"
    file.write_text(
        "resources: {gpus: [{pattern: '*', name: gpu}]}\n"
        + sharing("resources: [{name: gpu, replicas: 4, devices: 2, rename: half}]").removeprefix("version: v1\n")
    )
    notes = read_command_line([*flags, f"--config-file={file}"], {}).translate().notes
    at = "sharing.timeSlicing.resources[0]: "
    wanted = [f"resources in the config file {end}", f"{at}rename {end}", f"{at}devices {end}"]
    assert [note.startswith(want) for note, want in zip(notes, wanted, strict=True)] == [True] * 3


def test_devices_and_rename_are_dropped_by_the_lenient(mean):
    text = sharing("resources: [{name: gpu, replicas: 4, devices: 2, rename: half}]")
    assert mean("--lenient", file=text)["rules"] == [{"resource": "nvidia.com/gpu", "replicas": 4}]


def test_each_device_may_have_its_own_number_of_replicas(mean):
    text = sharing(
        "resources: [{name: gpu, replicas: 2, devices: [0], rename: a}, "
        "{name: gpu, replicas: 8, devices: [1], rename: b}]"
    )
    assert [(rule.get("match"), rule["resource"], rule.get("replicas")) for rule in mean(file=text)["rules"]] == [
        ({"index": ["0"]}, "nvidia.com/a", 2),
        ({"index": ["1"]}, "nvidia.com/b", 8),
        (None, "nvidia.com/gpu", None),
    ]


def test_whole_and_shared_at_once(mean):
    text = sharing("renameByDefault: true, resources: [{name: gpu, replicas: 4}]")
    assert mean("--also-whole", file=text)["rules"] == [
        {"resource": "nvidia.com/gpu.shared", "replicas": 4, "also": [{"resource": "nvidia.com/gpu"}]}
    ]
    with pytest.raises(BadFile, match="set renameByDefault"):
        mean("--also-whole", file=sharing("resources: [{name: gpu, replicas: 4}]"))
    with pytest.raises(BadFile, match="nothing is shared"):
        mean("--also-whole")
    with pytest.raises(BadFile, match="MPS keeps its GPUs for itself"):
        mean("--also-whole", "--mps-root=/run/mps", file=text.replace("timeSlicing", "mps"))


def test_names_of_ones_own_are_in_force(mean):
    text = "resources: {gpus: [{pattern: 'NVIDIA A100*', name: big}, {pattern: '*', name: small}]}"
    assert mean(file=text)["rules"] == [
        {"match": {"model": "NVIDIA A100*"}, "resource": "nvidia.com/big"},
        {"resource": "nvidia.com/small"},
    ]
    assert mean("--lenient", file=text)["rules"] == [{"resource": "nvidia.com/gpu"}]


def test_packing_is_for_what_is_shared(mean):
    text = sharing("resources: [{name: gpu, replicas: 4}]")
    assert mean("--shared-devices-allocation-policy=packed", file=text)["rules"][0]["placement"] == "pack"
    assert "placement" not in mean("--shared-devices-allocation-policy=packed")["rules"][0]


def test_the_kubelets_socket(mean):
    assert mean("--kubelet-socket=")["kubelet"]["registration"] == "none"
    assert mean("--kubelet-socket=/run/other/kubelet.sock")["kubelet"]["socket"] == "/run/other/kubelet.sock"
    assert mean("--plugin-dir=/run/p")["kubelet"] == WHERE | {"directory": "/run/p"}  # the kubelet's is there too


@pytest.mark.parametrize(
    ("off", "on", "health"),
    [
        ("", "", None),
        ("all", "", {"ignoredXids": "all"}),
        ("XIDS", "", {"ignoredXids": "all"}),
        ("all", "79", {"ignoredXids": "all", "watchedXids": [79]}),
        ("", "all", {"ignoredXids": []}),
        ("11", "", {"ignoredXids": [11, 13, 31, 43, 45, 68, 109]}),
    ],
)
def test_health_variables(mean, off: str, on: str, health: Any):
    config = mean(DP_DISABLE_HEALTHCHECKS=off, DP_ENABLE_HEALTHCHECKS=on)
    assert config["backends"][0].get("health") == health


@pytest.mark.parametrize(
    ("args", "file", "words"),
    [
        (["--mig-strategy=bogus"], None, "unknown MIG strategy: bogus"),
        (["--device-list-strategy="], None, "invalid strategy: "),
        (["--imex-channel-ids=0,0"], None, "channelIDs must be [] or [0]; found [0 0]"),
        ([], sharing("resources: [{name: gpu, replicas: 4}]", "mps"), "requires --mps-root"),
        (
            ["--mig-strategy=mixed", "--mps-root=/m"],
            sharing("resources: [{name: gpu, replicas: 4}]", "mps"),
            "with MPS",
        ),
    ],
)
def test_what_nvidia_refuses_is_refused(mean, args: list[str], file: str | None, words: str):
    for extra in ([], ["--lenient"]):
        with pytest.raises(BadFile) as error:
            mean(*args, *extra, file=file)
        assert words in str(error.value)


@pytest.mark.parametrize(
    ("args", "file", "words"),
    [
        ([], "flags: {plugin: {deviceListStrategy: []}}", "would start without a GPU"),
        (["--cdi-annotation-prefix=x", "--device-list-strategy=cdi-annotations"], None, "is no domain"),
        (["--cdi-disable-hooks=creat-symlinks"], None, "unknown word 'creat-symlinks'"),
        (["--driver-root=relative"], None, "not an absolute path"),
        ([], sharing("resources: [{name: gpus, replicas: 2}]"), "no GPU is offered as nvidia.com/gpus"),
        ([], sharing("resources: [{name: gpu, replicas: 2}, {name: gpu, replicas: 3}]"), "is shared by"),
    ],
)
def test_what_would_fail_in_silence_is_refused_unless_one_is_lenient(
    mean, args: list[str], file: str | None, words: str
):
    with pytest.raises(BadFile) as error:
        mean(*args, file=file)
    assert words in str(error.value)
    mean(*args, "--lenient", file=file)


def test_of_one_resource_shared_twice_the_larger_count_wins_for_the_lenient(mean):
    text = sharing("resources: [{name: gpu, replicas: 2}, {name: gpu, replicas: 3}]")
    assert mean("--lenient", file=text)["rules"] == [{"resource": "nvidia.com/gpu", "replicas": 3}]


def test_a_word_that_is_no_flag_is_refused_unless_one_is_lenient():
    with pytest.raises(BadFlag, match="'false' is no flag"):
        read_command_line(["--pass-device-specs", "false"], {})
    assert (
        read_command_line(["--lenient", "--pass-device-specs", "false"], {}).translate().config["backends"][0]["nodes"]
        is True
    )


def test_one_file_may_serve_nodes_with_and_without_mig(tmp_path: Path):
    (tmp_path / "c.yaml").write_text(sharing("resources: [{name: mig-1g.5gb, replicas: 2}]"))
    meant = read_command_line([f"--config-file={tmp_path}/c.yaml"], {}).translate()
    assert meant.config["rules"] == [{"resource": "nvidia.com/gpu"}]
    assert "it has no effect" in meant.notes[0]


# --- MPS: what the control daemons are told ---------------------------------------------------------------------------


def mps(mean, *lines: str, more: str = "renameByDefault: true, ", rest: str = "") -> dict[str, Any]:
    file = sharing(f"{more}resources: [{', '.join(lines)}]", "mps") + rest
    made: dict[str, Any] = mean("--mps-root=/run/mps", file=file)["backends"][0]["mps"]
    return made


def test_a_count_of_gpus_is_the_same_gpus_for_the_daemon_and_for_the_rule(mean):
    file = sharing("renameByDefault: true, resources: [{name: gpu, replicas: 4, devices: 2}]", "mps")
    meant = mean("--mps-root=/run/mps", file=file)
    assert meant["rules"][0]["match"] == {"index": ["0", "1"]}
    assert meant["backends"][0]["mps"]["devices"] == {"nvidia.com/gpu.shared": ["0", "1"]}


def test_a_count_beyond_all_gpus_is_spelled_out_only_as_far_as_gpus_can_be(mean):
    made = mps(mean, "{name: gpu, replicas: 4, devices: 5000}")
    assert made["devices"] == {"nvidia.com/gpu.shared": [str(number) for number in range(256)]}


def test_a_line_for_all_gpus_beside_one_for_some_is_for_all(mean):
    told = mps(mean, "{name: gpu, replicas: 4, devices: [0]}", "{name: gpu, replicas: 4}")
    assert told == {"root": "/mps", "replicas": {"nvidia.com/gpu.shared": 4}}


def test_a_gpu_that_is_listed_for_a_model_is_not_every_gpu_of_the_model(mean):
    names = 'resources: {gpus: [{pattern: "A100*", name: a100}]}\n'
    told = mps(mean, "{name: a100, replicas: 4, devices: [1]}", rest=names)
    assert told["devices"] == {"nvidia.com/a100.shared": ["1"]}


@pytest.mark.parametrize(
    ("lines", "rest", "words"),
    [
        (["{name: gpu, replicas: 4, devices: [0]}", "{name: gpu, replicas: 2}"], "", "one limit"),
        (["{name: gpu, replicas: 4, devices: [0], rename: big}", "{name: gpu, replicas: 2}"], "", "List them in dev"),
        (["{name: gpu, replicas: 2}"], 'resources: {gpus: [{pattern: "A100*", name: a100}]}', "List them in devices"),
        (["{name: a100, replicas: 2, devices: 2}"], 'resources: {gpus: [{pattern: "A*", name: a100}]}', "a count does"),
    ],
)
def test_what_control_daemons_cannot_be_told_is_refused(mean, lines: list[str], rest: str, words: str):
    with pytest.raises(BadFile, match=words):
        mps(mean, *lines, rest=rest)


@pytest.mark.parametrize(
    ("kind", "more", "args"),
    [
        ("mps", "", ["--mps-root=/run/mps"]),
        ("timeSlicing", "failRequestsGreaterThanOne: true, ", []),
        ("timeSlicing", "", ["--shared-devices-allocation-policy=packed"]),
    ],
)
def test_some_shared_gpus_need_a_name_of_their_own_where_they_are_treated_otherwise(
    mean, kind: str, more: str, args: list[str]
):
    file = sharing(f"{more}resources: [{{name: gpu, replicas: 4, devices: [0]}}]", kind)
    with pytest.raises(BadFile, match="Set renameByDefault, or rename"):
        mean(*args, file=file)
