"""What the audit reads of a host: true files, missing ones and hostile ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.programs.doctor.tree import Tree

from fairlead.fronts.checkpoint import NAME
from fairlead.model.holdings import Unknown
from fairlead.policy.audit import Processes, Use
from fairlead.programs.audit import gather
from fairlead.programs.audit.gather import read_entries, read_uses
from fairlead.standin import checkpoint
from fairlead.standin._gen import deviceplugin_v1beta1_pb2 as dp

UID = "3e2f4c1a-7b6d-4e5f-8a9b-0c1d2e3f4a5b"
STATIC = "0123456789abcdef0123456789abcdef"
SYSTEMD = f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID.replace('-', '_')}.slice/cri-1.scope"
CGROUPFS = f"12:memory:/kubepods/besteffort/pod{UID}/deadbeef"
NODES = {"/dev/nvidia0"}


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    made = Tree(tmp_path / "host")
    made.host_processes()
    return made


def written(directory: Path, answer: bytes) -> None:
    entry = checkpoint.Entry(UID, "main", "example.com/gpu", {0: ["a", "b"], -1: ["c"]}, answer)
    checkpoint.write(directory, checkpoint.Checkpoint([entry], {"example.com/gpu": ["a"]}))


def test_an_entry_has_the_answer_as_the_kubelet_keeps_it(tmp_path: Path):
    answer = dp.ContainerAllocateResponse(
        envs={"VISIBLE": "a"},
        devices=[dp.DeviceSpec(host_path="/dev/a", container_path="/dev/x", permissions="rw")],
        cdi_devices=[dp.CDIDevice(name="v/c=a")],
    )
    written(tmp_path, answer.SerializeToString())
    found = read_entries(tmp_path)
    assert not isinstance(found, Unknown)
    (entry,) = found
    assert (entry.pod_uid, entry.container, entry.resource) == (UID, "main", "example.com/gpu")
    assert sorted(entry.slots) == ["a", "b", "c"]
    assert (entry.edits.env, entry.edits.nodes[0].path, entry.edits.cdi) == ({"VISIBLE": "a"}, "/dev/a", ("v/c=a",))


def test_without_a_file_no_container_has_had_a_device(tmp_path: Path):
    assert read_entries(tmp_path) == ()


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff" * 99, b'{"Data": {"PodDeviceEntries": 7}}', b"[" * 100_000])
def test_a_file_that_is_none_is_not_known_and_never_empty(tmp_path: Path, content: bytes):
    (tmp_path / NAME).write_bytes(content)
    found = read_entries(tmp_path)
    assert isinstance(found, Unknown)
    assert str(tmp_path / NAME) in found.reason


def test_an_answer_that_is_no_message_is_not_known(tmp_path: Path):
    written(tmp_path, b"\x0a\xff\xff")
    assert isinstance(read_entries(tmp_path), Unknown)


@pytest.mark.parametrize("cgroup", [SYSTEMD, CGROUPFS])
def test_a_process_is_its_pods_by_its_cgroup(tree: Tree, cgroup: str):
    tree.process(700, "python", "/dev/nvidia0", "/dev/null", cgroup=cgroup)
    tree.process(701, "pause", cgroup=f"0::/kubepods/pod{STATIC}/1")
    tree.process(702, "miner", "/dev/nvidia0", "/dev/nvidia0")
    tree.process(703, "nvidia-persiste", "/dev/nvidia0")
    assert read_uses(tree.root, NODES) == Processes(
        (Use(700, "python", "/dev/nvidia0", UID), Use(702, "miner", "/dev/nvidia0")), frozenset({UID, STATIC})
    )


def test_a_program_of_a_pod_does_not_hide_behind_a_name(tree: Tree):
    tree.process(700, "nvidia-smi", "/dev/nvidia0", cgroup=SYSTEMD)
    found = read_uses(tree.root, NODES)
    assert isinstance(found, Processes)
    assert [use.pod_uid for use in found.uses] == [UID]


def test_a_program_that_is_allowed_may_be_in_a_pod(tree: Tree):
    tree.process(700, "dcgm-exporter", "/dev/nvidia0", cgroup=SYSTEMD)
    tree.process(701, "nvidia-cuda-mps", "/dev/nvidia0", cgroup=SYSTEMD)
    found = read_uses(tree.root, NODES, ["dcgm-exporter", "nvidia-cuda-mps*"])
    assert found == Processes((), frozenset({UID}))


def test_processes_that_are_hidden_are_not_known(tmp_path: Path):
    found = read_uses(Tree(tmp_path / "pod").root, NODES)
    assert isinstance(found, Unknown)
    assert "hostPID: true" in found.reason


def test_more_uses_than_are_compared_are_not_known(tree: Tree, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(gather, "USES_MAX", 1)
    for pid in (700, 701):
        tree.process(pid, "miner", "/dev/nvidia0")
    assert isinstance(read_uses(tree.root, NODES), Unknown)
