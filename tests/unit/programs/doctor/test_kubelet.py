"""What is read of the kubelet and of the container runtime, and what is said of files that are broken."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest
from tests.unit.programs.doctor.healthy import config
from tests.unit.programs.doctor.tree import Tree, listen

from fairlead.fronts import checkpoint
from fairlead.programs.doctor.facts import KubeletConfig, KubeletProcess, Missing, SocketState
from fairlead.programs.doctor.gather import kubelet, runtime
from fairlead.programs.doctor.gather.processes import Processes

NOT_SEEN = Missing("not seen")
CHECKPOINT = "kubelet_internal_checkpoint"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path / "host")


def ran(process: KubeletProcess | Missing, *arguments: str) -> Processes:
    return Processes(NOT_SEEN, process, NOT_SEEN, NOT_SEEN, arguments)


def test_a_socket_answers_refuses_or_is_none(tmp_path: Path):
    with listen(tmp_path / "kubelet.sock"):
        assert kubelet.read_socket(f"{tmp_path}/kubelet.sock").state is SocketState.ANSWERS
    left = kubelet.read_socket(f"{tmp_path}/kubelet.sock")
    assert (left.state, left.detail) == (SocketState.REFUSED, "Connection refused")
    (tmp_path / "file").touch()
    assert kubelet.read_socket(f"{tmp_path}/file").state is SocketState.NO_SOCKET
    assert kubelet.read_socket(f"{tmp_path}/file/below").state is SocketState.ABSENT
    assert kubelet.read_socket(f"{tmp_path}/gone").state is SocketState.ABSENT


def test_a_path_longer_than_an_address_is_looked_at_too(tmp_path: Path):
    deep = tmp_path / ("d" * 100) / "kubelet.sock"
    with listen(deep):
        assert kubelet.read_socket(str(deep)).state is SocketState.ANSWERS


def test_a_full_queue_is_a_process_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kubelet, "CONNECT_S", 0.05)
    made = listen(tmp_path / "s")
    made.listen(0)
    with made, socket.socket(socket.AF_UNIX) as first:
        first.connect(str(tmp_path / "s"))
        assert kubelet.read_socket(f"{tmp_path}/s").state is SocketState.SILENT


def test_the_plugin_directory_lists_other_sockets(tmp_path: Path):
    assert not kubelet.read_plugins(f"{tmp_path}/gone").there
    (tmp_path / "file").touch()
    with listen(tmp_path / "kubelet.sock"), listen(tmp_path / "nvidia.sock"):
        found = kubelet.read_plugins(str(tmp_path))
    assert found.there
    assert [one.path for one in found.others] == [f"{tmp_path}/nvidia.sock"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"Data":{"PodDeviceEntries":null,"Regist', "it is not what a kubelet writes: "),
        (b"[" * 100_000, "it is not what a kubelet writes: "),
        (b'{"Data":{"PodDeviceEntries":7,"RegisteredDevices":{}}}', "Expected `array | null`"),
        (b"\xff\xfe", "it is not what a kubelet writes: "),
        (b" " * 3000, "it has 3,000 bytes, and 2,000 are the limit"),
    ],
)
def test_a_damaged_checkpoint_is_a_clear_word(
    tmp_path: Path, content: bytes, words: str, monkeypatch: pytest.MonkeyPatch
):
    if len(content) == 3000:
        monkeypatch.setattr(checkpoint, "MAX_BYTES", 2000)
    (tmp_path / CHECKPOINT).write_bytes(content)
    found = kubelet.read_disk_checkpoint(str(tmp_path))
    assert not isinstance(found, Missing)
    assert words in found.problem


def test_a_checkpoint_that_is_right_absent_or_no_file(tmp_path: Path):
    assert kubelet.read_disk_checkpoint(f"{tmp_path}/gone") == Missing(f"{tmp_path}/gone is not there")
    absent = kubelet.read_disk_checkpoint(str(tmp_path))
    assert not isinstance(absent, Missing)
    assert not absent.there
    data = {"PodDeviceEntries": None, "RegisteredDevices": {"a.io/b": ["x"]}}
    (tmp_path / CHECKPOINT).write_text(json.dumps({"Data": data, "Checksum": 1}))
    right = kubelet.read_disk_checkpoint(str(tmp_path))
    assert not isinstance(right, Missing)
    assert right.content is not None
    assert right.content.listed == {"a.io/b": {"x"}}
    (tmp_path / CHECKPOINT).unlink()
    os.mkfifo(tmp_path / CHECKPOINT)
    fifo = kubelet.read_disk_checkpoint(str(tmp_path))
    assert not isinstance(fifo, Missing)
    assert "a FIFO" in fifo.problem


def test_the_kubelets_configuration_and_its_flags(tree: Tree):
    assert isinstance(kubelet.read_config(tree.root, ran(Missing("no kubelet runs here"))), Missing)
    named = KubeletProcess(7, config="/etc/kubelet.yaml")
    assert isinstance(kubelet.read_config(tree.root, ran(named)), Missing)
    assert kubelet.read_config(tree.root, ran(KubeletProcess(7))) == KubeletConfig()
    tree.write("etc/kubelet.yaml", "topologyManagerPolicy: restricted\ncgroupDriver: systemd\n")
    assert kubelet.read_config(tree.root, ran(named)) == KubeletConfig("restricted", "systemd")
    flagged = ran(named, "kubelet", "--topology-manager-policy=none", "--cgroup-driver", "cgroupfs")
    assert kubelet.read_config(tree.root, flagged) == KubeletConfig("none", "cgroupfs")
    tree.write("etc/kubelet.yaml", "- a list\n")
    assert isinstance(kubelet.read_config(tree.root, ran(named)), Missing)


# --- The container runtime --------------------------------------------------------------------------------------------

VERSION_2 = """
version = 2
imports = ["/etc/containerd/conf.d/*.toml", 7]
[plugins."io.containerd.grpc.v1.cri"]
  enable_cdi = false
  device_ownership_from_security_context = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    default_runtime_name = "nvidia"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = true
"""
VERSION_3 = """
version = 3
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.nvidia]
  runtime_type = "io.containerd.runc.v2"
"""


def test_both_versions_of_containerds_file_and_its_imports(tree: Tree):
    assert isinstance(runtime.read_runtime(tree.root), Missing)
    tree.write("etc/containerd/config.toml", VERSION_2)
    tree.write("etc/containerd/conf.d/99-nvidia.toml", VERSION_3)
    found = runtime.read_runtime(tree.root)
    assert not isinstance(found, Missing)
    assert (found.handlers, found.default, found.cdi) == (("runc", "nvidia"), "nvidia", False)
    assert found.ownership
    assert found.systemd_cgroup


def test_k3s_keeps_its_file_elsewhere(tree: Tree):
    tree.write("var/lib/rancher/k3s/agent/etc/containerd/config.toml", VERSION_3)
    found = runtime.read_runtime(tree.root)
    assert not isinstance(found, Missing)
    assert (found.handlers, found.cdi, found.default) == (("nvidia",), None, "runc")


@pytest.mark.parametrize("content", ["a = ", "a = " + "[" * 50_000, 'plugins = "x"', "x" * 2_000_000])
def test_a_runtimes_file_that_is_none_is_a_clear_word(tree: Tree, content: str):
    tree.write("etc/containerd/config.toml", content)
    if content.startswith("plugins"):
        found = runtime.read_runtime(tree.root)
        assert not isinstance(found, Missing)
        assert found.handlers == ()
    else:
        with pytest.raises((ValueError, OSError)):
            runtime.read_runtime(tree.root)


def spec(*paths: str, kind: str = "a.com/gpu") -> str:
    nodes = [{"path": path} for path in paths]
    devices = [{"name": "0", "containerEdits": {"deviceNodes": nodes, "mounts": [{"hostPath": "/lib/x"}]}}, {"no": 1}]
    return json.dumps({"cdiVersion": "0.5.0", "kind": kind, "devices": devices})


def test_specs_with_their_names_and_what_is_not_there(tree: Tree):
    tree.write("dev/nvidia0")
    tree.write("etc/cdi/a.json", spec("/dev/nvidia0", "/dev/gone"))
    tree.write("etc/cdi/.hidden.json", "x")
    tree.write("own/b.yaml", "kind: b.com/x\ndevices: [{name: all}]\n")
    first, second = runtime.read_specs(tree.root, ("/own",))
    assert (first.path, first.names, first.absent) == ("/etc/cdi/a.json", ("a.com/gpu=0",), ("/dev/gone", "/lib/x"))
    assert (second.names, second.absent) == (("b.com/x=all",), ())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", ""),
        ("[]", "it has no kind"),
        ("kind: 7", "it has no kind"),
        ("a: &a [*a]", ""),
        ("[" * 60_000, ""),
        (b"\xff", "UTF-8"),
    ],
)
def test_a_broken_spec_is_a_clear_word(tree: Tree, content: str | bytes, words: str):
    tree.write("etc/cdi/a.yaml", content)
    (found,) = runtime.read_specs(tree.root)
    assert found.problem
    assert words in found.problem


async def test_a_runtime_that_cannot_be_asked_has_no_version(tree: Tree):
    assert await runtime.ask_version(tree.root) == ""
    tree.write("run/containerd/containerd.sock")
    assert await runtime.ask_version(tree.root) == ""


def test_pipes_of_mps_are_those_that_the_configuration_names(tmp_path: Path):
    (tmp_path / "nvidia.com/gpu/pipe").mkdir(parents=True)
    os.mkfifo(tmp_path / "nvidia.com/gpu/pipe/control")
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared/control").touch()
    mps = {"root": str(tmp_path), "replicas": {"nvidia.com/gpu": 2, "nvidia.com/other": 2}}
    backends = [
        {"kind": "nvidia", "mps": mps},
        {"kind": "nvidia", "mps": {"clients": 2, "pipe": f"{tmp_path}/shared"}},
        {"kind": "sim"},
    ]
    found = runtime.read_pipes(config({"backends": backends}))
    assert [bool(pipe.problem) for pipe in found] == [False, True, True]
    assert "No such file" in found[1].problem
    assert "a regular file" in found[2].problem
