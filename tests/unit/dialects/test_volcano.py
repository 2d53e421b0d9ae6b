"""What the settings of volcano-sh/devices mean in a configuration of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fairlead.config.load import build
from fairlead.dialects.goflags import BadFlag
from fairlead.dialects.volcano.command import VolcanoInvocation, read_command_line
from fairlead.model.errors import ConfigError, UsageError

NODE = {"NODE_NAME": "n1"}
ASSIGN = {
    "device": "volcano.sh/gpu-index",
    "by": "index",
    "time": "volcano.sh/predicate-time",
    "assigned": "volcano.sh/gpu-assigned",
    "unassigned": ["", "false"],
    "afterBind": False,
    "wait": "10s",
    "marks": {"volcano.sh/gpu-assigned": "true"},
    "nodeLock": "gpu",
}


@pytest.fixture
def order(tmp_path: Path):
    def make(*args: str, file: str | None = None, **environ: str) -> VolcanoInvocation:
        if file is not None:
            (tmp_path / "c.yaml").write_text(file)
            args = (*args, f"--config-file={tmp_path}/c.yaml")
        return read_command_line(args, NODE | environ)

    return make


@pytest.fixture
def mean(order):
    def meant(*args: str, file: str | None = None, **environ: str) -> dict[str, Any]:
        config: dict[str, Any] = order(*args, file=file, **environ).translate().config
        build(dict(config), "test")  # holds as a configuration
        return config

    return meant


def test_nothing_said(mean):
    assert mean() == {
        "backends": [{"kind": "nvidia", "ids": "index", "health": {"ignoredXids": [31, 43, 45]}}],
        "rules": [
            {
                "resource": "volcano.sh/gpu-memory",
                "memory": {"unit": "1MiB", "grow": True, "ids": "{index}-{n}"},
                "assign": ASSIGN,
                "perContainer": 1048576,
                "env": {"VOLCANO_GPU_ALLOCATED": "{memoryTotalMib}", "VOLCANO_GPU_MEMORY_TOTAL": "{deviceMib}"},
            }
        ],
        "amounts": [{"resource": "volcano.sh/gpu-number", "perDevice": 1, "unusable": True, "adopt": True}],
        "cluster": {"devices": True, "unhealthy": "volcano.sh/gpu-unhealthy-ids"},
        "kubelet": {
            "directory": "/var/lib/kubelet/device-plugins",
            "socketName": "volcano.sock",
            "podResources": "/var/lib/kubelet/pod-resources/kubelet.sock",
        },
        "health": {"restInterval": "30s"},
        "status": {"socket": "/run/fairlead/volcano.sock"},
        "instance": "volcano",
    }


def test_whole_gpus(mean):
    told = mean("--gpu-strategy", "number")
    assert told["rules"] == [
        {
            "resource": "volcano.sh/gpu-number",
            "assign": ASSIGN,
            "env": {"VOLCANO_GPU_ALLOCATED": "{count}", "VOLCANO_GPU_MEMORY_TOTAL": "{deviceMib}"},
        }
    ]
    assert "amounts" not in told  # the kubelet tells it
    assert told["cluster"] == {"devices": True, "unhealthy": "volcano.sh/gpu-unhealthy-ids"}


def test_the_factor_is_the_unit(mean):
    assert mean("--gpu-memory-factor=1000")["rules"][0]["memory"]["unit"] == "1000MiB"
    assert mean(GPU_MEMORY_FACTOR="10")["rules"][0]["memory"]["unit"] == "10MiB"
    for wrong in ("0", "-1", str(2**21)):
        with pytest.raises(BadFlag, match=f"--gpu-memory-factor: {wrong} MiB is no unit"):
            mean(f"--gpu-memory-factor={wrong}")


def test_flag_over_variable_over_file_over_default(mean):
    file = "version: v1beta1\nflags: {GPUStrategy: number, GPUMemoryFactor: 10}\n"
    assert mean(file=file)["rules"][0]["resource"] == "volcano.sh/gpu-number"
    assert mean("--gpu-strategy=share", file=file)["rules"][0]["memory"]["unit"] == "10MiB"
    assert mean(file=file, GPU_STRATEGY="share", GPU_MEMORY_FACTOR="3")["rules"][0]["memory"]["unit"] == "3MiB"
    assert mean("--gpu-memory-factor=4", GPU_MEMORY_FACTOR="3")["rules"][0]["memory"]["unit"] == "4MiB"


def test_what_the_file_changes_is_told_because_theirs_drops_it(order):
    file = "version: v1beta1\nflags: {GPUStrategy: number, GPUMemoryFactor: 1}\n"
    (note,) = order(file=file).translate().notes
    assert note.endswith("flags.GPUStrategy is in force. Volcano's plugin reads and drops it")
    lenient = order("--lenient", file=file).translate()
    assert lenient.config["rules"][0]["resource"] == "volcano.sh/gpu-memory"
    assert lenient.notes[0].endswith("flags.GPUStrategy is not in force, as in volcano's plugin")


def test_the_file_is_watched(order, tmp_path):
    assert order(file="").source == f"{tmp_path}/c.yaml"
    assert order().source == "fairlead volcano"


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("version: v1\n", "unknown version: v1. This reads v1beta1"),
        ("version: [v1beta1]\n", "unknown version"),
        ("flags: {GPUStrategie: share}", "flags.GPUStrategie: unknown key 'GPUStrategie'; did you mean 'GPUStrategy'?"),
        ("flag: {}", "flag: unknown key 'flag'; did you mean 'flags'?"),
        ("flags: 3", "flags: expected a mapping, got 3"),
        ("flags: {GPUMemoryFactor: much}", "expected a whole number, got 'much'"),
        ("flags: {GPUMemoryFactor: true}", "expected a whole number, got True"),
        ("flags: {GPUStrategy: 3}", "expected text, got 3"),
        ("[]", "expected keys such as version and flags"),
        ("a: [", "c.yaml"),
    ],
)
def test_faults_of_the_file(mean, file, words):
    with pytest.raises(ConfigError) as caught:
        mean(file=file)
    assert words in str(caught.value)


def test_the_lenient_read_keys_in_any_case_and_pass_over_others(mean):
    assert mean("--lenient", file="FLAGS: {gpustrategy: number, x: 1}\ny: 2\n")["rules"][0]["memory"]


def test_a_file_that_is_not_there(mean, tmp_path):
    with pytest.raises(ConfigError, match=r"No such file or directory\. Correct --config-file"):
        mean(f"--config-file={tmp_path}/none")


def test_a_strategy_that_nobody_knows(mean, order):
    with pytest.raises(BadFlag, match=r"'mig' is not known\. Use share or number"):
        mean("--gpu-strategy=mig")
    assert mean("--lenient", "--gpu-strategy=mig")["rules"][0]["resource"] == "volcano.sh/gpu-number"
    assert "it is number, as in volcano's plugin" in order("--lenient", "--gpu-strategy=mig").translate().notes[0]


@pytest.mark.parametrize(
    ("text", "ignored"),
    [("all", "all"), ("ALL", "all"), ("XIDS", "all"), ("a,xids", "all"), ("31", [31, 43, 45]), ("", [31, 43, 45])],
)
def test_health_checks_may_be_disabled(mean, text, ignored):
    assert mean(DP_DISABLE_HEALTHCHECKS=text)["backends"][0]["health"] == {"ignoredXids": ignored}


def test_a_kubeconfig_of_ones_own(mean):
    told = mean("--kubeconfig=/k")["cluster"]
    assert told == {"kubeconfig": "/k", "devices": True, "unhealthy": "volcano.sh/gpu-unhealthy-ids"}


def test_a_node_must_have_a_name(mean):
    with pytest.raises(UsageError, match="NODE_NAME is not set"):
        mean(NODE_NAME="")
