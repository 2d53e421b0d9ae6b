"""What the settings of kube-device-plugin-mini mean in a configuration of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fairlead.config.load import build
from fairlead.dialects.doslab.command import DoslabInvocation, keep_token, read_command_line
from fairlead.dialects.goflags import BadFlag

SECRET = "sesame-open"


def order(*args: str, host: str = "host-1", **environ: str) -> DoslabInvocation:
    return read_command_line(args, environ, lambda: host, lambda token: f"/kept/{len(token)}")


def mean(*args: str, host: str = "host-1", **environ: str) -> dict[str, Any]:
    config = order(*args, host=host, **environ).translate().config
    build(dict(config), "test")  # holds as a configuration
    return config


def test_nothing_said():
    assert mean(NODE_NAME="n1") == {
        "backends": [{"kind": "nvidia"}],
        "rules": [
            {
                "resource": "doslab.io/gpu-memory",
                "memory": {"unit": "1MiB", "grow": True, "ids": "fakeID---{index}---{n}"},
                "assign": {
                    "device": "doslab.io/gpu-uuid",
                    "by": "id",
                    "time": "doslab.io/gpu-assume-time",
                    "timeRequired": True,
                    "assigned": "doslab.io/gpu-assigned",
                    "unassigned": ["false"],
                    "needs": ["doslab.io/gem-scheduler-ip", "doslab.io/gem-podmanager-port"],
                    "afterBind": False,
                    "actual": "fairlead.dev/actual-device",
                    "wait": "10s",
                    "marks": {"doslab.io/gpu-assigned": "true"},
                },
                "perContainer": 1048576,
                "env": {
                    "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
                    "LD_PRELOAD": "/kubeshare/library/libgemhook.so.1",
                    "POD_MANAGER_IP": "{annotation:doslab.io/gem-scheduler-ip}",
                    "POD_MANAGER_PORT": "{annotation:doslab.io/gem-podmanager-port}",
                    "POD_NAME": "{podName}",
                    "DOSLAB_IO_GPU_UUID": "{ids}",
                    "DOSLAB_IO_GPU_RESOURCE_USED_BY_POD": "{podUnits}",
                    "DOSLAB_IO_GPU_RESOURCE_USED_BY_CONTAINER": "{units}",
                    "DOSLAB_IO_GPU_RESOURCE_TOTAL": "{nodeUnits}",
                },
            }
        ],
        "amounts": [
            {"resource": "doslab.io/gpu-count", "perDevice": 1, "unusable": True, "adopt": True},
            {"resource": "doslab.io/gpu-core", "perDevice": 100, "unusable": True, "adopt": True},
        ],
        "cluster": {"devices": True},
        "kubelet": {
            "directory": "/var/lib/kubelet/device-plugins",
            "socketName": "doslab.sock",
            "podResources": "/var/lib/kubelet/pod-resources/kubelet.sock",
        },
        "health": {"restInterval": "30s"},
        "status": {"socket": "/run/fairlead/doslab.sock"},
        "instance": "doslab",
    }


def test_the_node_is_named_by_the_environment_else_by_the_host():
    assert "node" not in mean(NODE_NAME="n1")["cluster"]  # the daemon reads $NODE_NAME itself
    assert mean(host="Host-1.Example\n")["cluster"]["node"] == "host-1.example"  # as the kubelet spells it


def test_an_address_and_a_token():
    told = mean("-masterUrl", "https://10.0.0.1:6443", "-token", SECRET, NODE_NAME="n1")["cluster"]
    assert told == {
        "server": "https://10.0.0.1:6443",
        "tokenFile": f"/kept/{len(SECRET)}",
        "caFile": "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt",
        "devices": True,
    }
    plain = mean("--masterUrl=http://127.0.0.1:8001", "--token-file=/t", NODE_NAME="n1")["cluster"]
    assert plain == {"server": "http://127.0.0.1:8001", "tokenFile": "/t", "devices": True}
    host = mean("--masterUrl=https://a", "--ca-file=", NODE_NAME="n1")["cluster"]
    token = "/var/run/secrets/kubernetes.io/serviceaccount/token"
    assert host == {"server": "https://a", "tokenFile": token, "devices": True}


def test_there_is_no_address_by_default():
    with pytest.raises(BadFlag, match=r"-token needs -masterUrl, which has no default here"):
        mean("-token", SECRET)
    with pytest.raises(BadFlag, match="--token-file needs -masterUrl"):
        mean("--token-file=/t")
    with pytest.raises(BadFlag, match="only one of them"):
        mean("-masterUrl=https://a", "-token=x", "--token-file=/t")
    with pytest.raises(BadFlag, match="only one of them"):
        mean("-masterUrl=https://a", "--kubeconfig=/k")
    assert mean("--kubeconfig=/k", NODE_NAME="n1")["cluster"] == {"kubeconfig": "/k", "devices": True}


def test_the_token_is_not_shown():
    shown = order("-masterUrl=https://a", f"-token={SECRET}", "--print-config").translate()
    assert SECRET not in repr(shown)
    assert shown.config["cluster"]["tokenFile"] == "/etc/fairlead/token"
    assert "put it into a file" in shown.notes[0]


def test_the_token_of_the_command_line_is_kept_where_only_this_process_reads_it():
    path = Path(keep_token(SECRET))
    assert [path.read_text(), path.read_text()] == [SECRET, SECRET]  # once for every request
    assert "memfd:token" in str(path.readlink())


@pytest.mark.parametrize("word", ["grow", "refuse"])
def test_a_unit_that_is_too_small(word: str):
    memory = mean(f"--unit-too-small={word}")["rules"][0]["memory"]
    assert memory.get("grow", False) is (word == "grow")


def test_a_word_nobody_knows_for_a_unit_that_is_too_small():
    with pytest.raises(BadFlag, match=r"'shrink' is not known\. Use grow or refuse"):
        mean("--unit-too-small=shrink")


def test_a_unit_grows_for_the_kubelet_where_it_is_asked_to():
    assert "maxStall" not in mean()["rules"][0]["memory"]
    assert mean("--max-stall=500ms")["rules"][0]["memory"]["maxStall"] == 0.5
    assert mean("--max-stall=0")["rules"][0]["memory"]["maxStall"] == 0  # only the length of the list counts


@pytest.mark.parametrize(
    "words", [("--max-stall=-1s",), ("--max-stall=infinite",), ("--max-stall=1s", "--unit-too-small=refuse")]
)
def test_a_unit_that_cannot_grow_for_the_kubelet_is_an_error(words: tuple[str, ...]):
    with pytest.raises(BadFlag, match="--max-stall takes a time, and a unit that may grow"):
        mean(*words)


def test_words_that_are_no_flags():
    with pytest.raises(BadFlag, match="'start' is no flag"):
        mean("start", "-token=x")
    assert mean("--lenient", "start", "-token=x", NODE_NAME="n")["instance"] == "doslab"
    with pytest.raises(BadFlag, match="flag provided but not defined: -nosuch"):
        mean("-nosuch")


def test_places_of_ones_own():
    told = mean("--plugin-dir=/d", "--status-socket=/s", "--pod-resources=/p")
    assert told["kubelet"] == {"directory": "/d", "socketName": "doslab.sock", "podResources": "/p"}
    assert told["status"] == {"socket": "/s"}
