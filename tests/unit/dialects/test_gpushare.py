"""What the settings of Aliyun's gpushare plugin mean in a configuration of ours."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.config.load import build
from fairlead.dialects.goflags import BadFlag
from fairlead.dialects.gpushare.command import read_command_line
from fairlead.model.errors import UsageError

NODE = {"NODE_NAME": "n1"}


def mean(*args: str, **environ: str) -> dict[str, Any]:
    config = read_command_line(args, environ or NODE).translate().config
    build(dict(config), "test")  # holds as a configuration
    return config


def notes(*args: str) -> str:
    return "\n".join(read_command_line(args, NODE).translate().notes)


def test_nothing_said():
    assert mean() == {
        "backends": [{"kind": "nvidia", "ids": "index"}],
        "rules": [
            {
                "resource": "aliyun.com/gpu-mem",
                "memory": {"unit": "1GiB", "grow": True, "ids": "{id}-_-{n}"},
                "assign": {
                    "device": "ALIYUN_COM_GPU_MEM_IDX",
                    "by": "index",
                    "perContainer": "scheduler.framework.gpushare.allocation",
                    "time": "ALIYUN_COM_GPU_MEM_ASSUME_TIME",
                    "timeRequired": True,
                    "assigned": "ALIYUN_COM_GPU_MEM_ASSIGNED",
                    "unassigned": ["false"],
                    "afterBind": False,
                    "actual": "fairlead.dev/actual-device",
                    "wait": "3s",
                    "marks": {
                        "ALIYUN_COM_GPU_MEM_ASSIGNED": "true",
                        "ALIYUN_COM_GPU_MEM_ASSUME_TIME": "{nowNs}",
                    },
                    "onlyDevice": True,
                    "nodeEnv": [{"label": "cgpu.disable.isolation", "value": "true", "env": {"CGPU_DISABLE": "true"}}],
                },
                "perContainer": 1048576,
                "env": {
                    "ALIYUN_COM_GPU_MEM_IDX": "{indexes}",
                    "ALIYUN_COM_GPU_MEM_POD": "{podUnits}",
                    "ALIYUN_COM_GPU_MEM_CONTAINER": "{units}",
                    "ALIYUN_COM_GPU_MEM_DEV": "{deviceUnits}",
                },
            }
        ],
        "amounts": [{"resource": "aliyun.com/gpu-count", "perDevice": 1, "unusable": True, "adopt": True}],
        "cluster": {"devices": True},
        "kubelet": {
            "directory": "/var/lib/kubelet/device-plugins",
            "socketName": "aliyungpushare.sock",
            "podResources": "/var/lib/kubelet/pod-resources/kubelet.sock",
        },
        "health": {"restInterval": "30s"},
        "status": {"socket": "/run/fairlead/gpushare.sock"},
        "instance": "gpushare",
    }


def test_the_unit_is_part_of_nothing_but_the_amounts():
    gib, mib = mean("--memory-unit=GiB"), mean("--memory-unit", "MiB")
    assert mib["rules"][0]["memory"] == {"unit": "1MiB", "grow": True, "ids": "{id}-_-{n}"}
    assert gib["rules"][0]["assign"] == mib["rules"][0]["assign"]


def test_a_unit_that_nobody_knows():
    with pytest.raises(BadFlag, match=r"'KiB' is not known\. Use GiB or MiB"):
        mean("--memory-unit=KiB")
    assert mean("--lenient", "--memory-unit=KiB")["rules"][0]["memory"]["unit"] == "1GiB"
    assert "it is GiB, as in Aliyun's plugin" in notes("--lenient", "--memory-unit=KiB")


@pytest.mark.parametrize(
    ("args", "backend"),
    [
        ((), {"kind": "nvidia", "ids": "index"}),
        (("--health-check",), {"kind": "nvidia", "ids": "index", "health": {"ignoredXids": [31, 43, 45]}}),
        (("--health-check=false",), {"kind": "nvidia", "ids": "index", "health": {"ignoredXids": "all"}}),
    ],
)
def test_health_is_watched_unless_told_otherwise(args, backend):
    assert mean(*args)["backends"] == [backend]


def test_their_own_daemonset_starts_without_a_word():
    assert notes("-logtostderr", "--v=5", "--memory-unit=GiB") == ""
    assert notes("-alsologtostderr", "-stderrthreshold=INFO") == ""


def test_flags_without_effect_are_told():
    assert "--mps has no effect" in notes("--mps")
    told = notes("--query-kubelet", "--kubelet-address", "127.0.0.1", "--kubelet-port=1", "--token", "sesame-open")
    assert told.startswith("--query-kubelet, --kubelet-address, --kubelet-port, --token: no effect. Pods are followed")
    assert "sesame-open" not in told
    assert "--client-cert, --client-key, --timeout: no effect" in notes(
        "--client-cert=a", "--client-key=b", "--timeout=3"
    )
    assert notes("-log_dir=/tmp", "-vmodule=a=1").startswith("--log_dir, --vmodule: no effect. The journal")


def test_a_node_must_have_a_name():
    with pytest.raises(UsageError, match="NODE_NAME is not set, and Aliyun's plugin needs it"):
        mean(OTHER="x")
    assert "node" not in mean("--print-config", OTHER="x")["cluster"]  # whoever reads it stands elsewhere


def test_numbers_are_numbers():
    with pytest.raises(BadFlag, match="--kubelet-port: 'x' is not a whole number"):
        mean("--kubelet-port=x")
