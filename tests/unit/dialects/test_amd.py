"""What the settings of AMD's device plugin mean in a configuration of ours."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.config.load import build
from fairlead.dialects.amd.command import read_command_line
from fairlead.dialects.goflags import BadFlag, Kind
from fairlead.dialects.invocation import GLOG
from fairlead.model.errors import UsageError


def mean(*args: str, **environ: str) -> dict[str, Any]:
    config: dict[str, Any] = read_command_line(args, environ).translate().config
    build(dict(config), "test")  # holds as a configuration
    return config


def notes(*args: str, **environ: str) -> tuple[str, ...]:
    return read_command_line(args, environ).translate().notes


def test_nothing_said():
    assert mean() == {
        "backends": [{"kind": "amd"}],
        "rules": [{"resource": "amd.com/gpu", "uniform": "profile", "placement": "closest"}],
        "kubelet": {
            "directory": "/var/lib/kubelet/device-plugins",
            "socketName": "{domain}_{name}",
            "podResources": "/var/lib/kubelet/pod-resources/kubelet.sock",
        },
        "status": {"socket": "/run/fairlead/amd.sock"},
        "instance": "amd",
    }


@pytest.mark.parametrize("spelled", ["-pulse=10", "--pulse=10"])
def test_the_pulse_is_the_time_between_probes(spelled: str):
    assert mean(spelled)["health"] == {"probeInterval": "10s"}


def test_its_words_may_follow_with_a_blank():
    assert mean("-pulse", "2", "-resource_naming_strategy", "mixed")["health"] == {"probeInterval": "2s"}


def test_without_a_pulse_health_is_looked_at_as_ever():
    assert "health" not in mean("-pulse=0")


def test_mixed_names_what_has_partitions_after_them():
    assert mean("-resource_naming_strategy=mixed")["rules"] == [
        {"match": {"attributes": {"profile": "*"}}, "resource": "amd.com/{profile}", "placement": "closest"},
        {"resource": "amd.com/gpu", "placement": "closest"},
    ]


def test_names_by_model_beside_either():
    single = mean("--name-by-model")["rules"]
    assert [rule["resource"] for rule in single] == ["amd.com/{product}", "amd.com/gpu"]
    assert all(rule["uniform"] == "profile" for rule in single)
    mixed = mean("--name-by-model", "-resource_naming_strategy=mixed")["rules"]
    assert [rule["resource"] for rule in mixed] == [
        "amd.com/{product}-{profile}",
        "amd.com/{product}",
        "amd.com/{profile}",
        "amd.com/gpu",
    ]


def test_what_amd_lacks():
    config = mean("--replicas=4", "--device-list-strategy=cdi-cri", "--health-checks=kfd", "--cdi-dir=/etc/cdi")
    assert config["rules"][0]["replicas"] == 4
    (backend,) = config["backends"]
    assert backend == {
        "kind": "amd",
        "ways": ["cdi-cri"],
        "cdi": {"directory": "/etc/cdi"},
        "health": {"checks": ["kfd"]},
    }
    assert mean("--health-checks=none")["backends"][0]["health"] == {"checks": []}


@pytest.mark.parametrize("flag", GLOG, ids=lambda flag: flag.name)
def test_every_flag_of_its_logs_is_taken_and_changes_nothing(flag):
    value = {Kind.BOOL: "true", Kind.INT: "5", Kind.TEXT: "INFO"}[flag.kind]
    assert mean(f"-{flag.name}={value}") == mean()


def test_a_log_file_that_does_not_come_is_named():
    assert notes("-log_dir=/tmp", "-logtostderr", "-v=2") == (
        "--log_dir: no effect. The journal goes to standard error",
    )


def test_variables_that_only_its_documentation_knows_are_named():
    (note,) = notes(AMD_GPU_DEVICE_COUNT="4")
    assert note.startswith("AMD_GPU_DEVICE_COUNT has no effect, as in AMD's plugin")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("-resource_naming_strategy=both", "invalid resource naming strategy: both. Use single or mixed"),
        ("-pulse=-1", "--pulse: -1 is no number of seconds"),
        ("-pulse=1000000", "--pulse: 1000000 is no number of seconds"),
        ("--replicas=0", "--replicas: 0 is no number of containers"),
        ("--device-list-strategy=envvar", "unknown word 'envvar'"),
        ("--health-checks=xids", "unknown word 'xids'"),
    ],
)
def test_a_value_that_cannot_be_meant_is_refused(words: str, said: str):
    with pytest.raises(UsageError, match=said) as refused:
        mean(words)
    assert not isinstance(refused.value, BadFlag)  # it ends with 1, as theirs


def test_a_pulse_below_nothing_is_none_for_the_lenient():
    assert "health" not in mean("-pulse=-1", "--lenient")


@pytest.mark.parametrize("words", ["-pulze=1", "-pulse=soon", "-pulse", "mixed"])
def test_what_cannot_be_understood_ends_as_in_go(words: str):
    with pytest.raises(BadFlag):
        mean(words)
