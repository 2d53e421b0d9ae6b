"""What is read of a host's files: true ones, missing ones, and such as no kernel writes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.unit.programs.doctor.tree import PCI, Tree

from fairlead.backends.nvidia.hostnodes import NodeFacts
from fairlead.kit import processes
from fairlead.programs.doctor.facts import Inotify, Missing, Node, PciDevice, SpecialHost, Xid
from fairlead.programs.doctor.gather import host
from fairlead.programs.doctor.gather.processes import read_processes


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path / "host")


def test_gpus_are_read_with_their_driver_and_whether_they_answer(tree: Tree):
    tree.gpu("0000:3b:00.0")
    tree.gpu("0000:5e:00.0", driver="")
    tree.gpu("0000:00:1f.0", vendor="0x8086")
    tree.write(f"{PCI}/0000:5e:00.0/config", b"\xff" * 64)
    tree.write(f"{PCI}/0000:5e:00.0/numa_node", "1")
    assert host.read_pci(tree.root) == (
        PciDevice("0000:3b:00.0", "10de", "0302", "nvidia", None),
        PciDevice("0000:5e:00.0", "10de", "0302", "", 1, answers=False),
    )


def test_a_bus_with_nonsense_costs_what_is_nonsense(tree: Tree):
    tree.gpu("0000:3b:00.0")
    tree.write(f"{PCI}/0000:3b:00.0/numa_node", "9" * 5000)
    tree.write(f"{PCI}/0000:3b:00.0/class", "\0\xff garbage")
    (tree.base / PCI / "0000:3b:00.0/config").unlink()
    os.mkfifo(tree.base / PCI / "0000:3b:00.0/config")
    tree.write(f"{PCI}/no address/vendor", "0x10de")
    (device,) = host.read_pci(tree.root)  # type: ignore[misc]  # not missing
    assert (device.numa, device.answers) == (None, True)


@pytest.mark.parametrize("read", [host.read_pci, host.count_numa, host.read_modules, host.read_majors])
def test_files_that_are_not_there_are_missing_not_empty(tree: Tree, read: object):
    found = read(tree.root)  # type: ignore[operator]  # each takes a root
    assert isinstance(found, Missing)
    assert "--host-root" in found.why


def test_modules_numa_nodes_and_majors(tree: Tree):
    tree.write("sys/module/nvidia/version", "550.54.15\n")
    for number in range(2):
        (tree.base / f"sys/devices/system/node/node{number}").mkdir(parents=True)
    tree.write("proc/devices", "Character devices:\n  1 mem\n195 nvidia\nx y\n\nBlock devices:\n  8 sd\n")
    assert host.read_modules(tree.root) == frozenset({"nvidia"})
    assert host.count_numa(tree.root) == 2
    assert host.read_majors(tree.root) == {"mem": 1, "nvidia": 195}


def test_device_nodes_and_links_by_number(tree: Tree):
    for path in ("dev/nvidia0", "dev/nvidia-caps/nvidia-cap1", "dev/video0", "dev/other", "dev/char/195:0"):
        tree.write(path)

    def read(path: Path) -> NodeFacts | None:
        return None if path.name == "nvidia-caps" else NodeFacts(195, 0, 0o660, 44)

    found = host.read_dev(tree.root, ["/dev/video0", "/dev/gone", "/etc/passwd"], read)
    assert set(found.nodes) == {"/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap1", "/dev/video0"}
    assert found.nodes["/dev/nvidia0"] == Node(195, 0, 0o660, 44)
    assert found.char_links == {"195:0"}


def test_the_drivers_versions(tree: Tree):
    tree.write("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar 5\n")
    tree.write("usr/lib64/libnvidia-ml.so.560.28.03")
    tree.link("usr/lib64/libnvidia-ml.so.1", "libnvidia-ml.so.560.28.03")
    found = host.read_nvidia(tree.root, tree.root)
    assert found.kernel_version == "550.54.15"
    assert found.libraries == ("/usr/lib64/libnvidia-ml.so.560.28.03",)
    tree.write("sys/module/nvidia/version", "570.1.2\n")
    assert host.read_nvidia(tree.root, tree.root).kernel_version == "570.1.2"


def test_special_hosts_and_selinux(tree: Tree):
    assert host.read_special(tree.root) == SpecialHost()
    assert not host.read_selinux(tree.root).enforcing
    tree.write("sys/devices/soc0/family", "Tegra\n")
    tree.write("etc/nv_tegra_release")
    tree.write("dev/dxg")
    tree.write("proc/device-tree/model", b"Jetson AGX\0")
    tree.write("sys/fs/selinux/enforce", "1")
    assert host.read_special(tree.root) == SpecialHost("Tegra", tegra=True, wsl=True, model="Jetson AGX")
    assert host.read_selinux(tree.root).enforcing


def test_xids_are_counted_from_the_kernels_log(tree: Tree):
    lines = [b"4,1,2,-;NVRM: Xid (PCI:0000:3B:00): 79, pid=1, GPU has fallen off the bus"] * 2
    lines += [b"\xff\xfe binary", b"NVRM: Xid (PCI:0000:3b:00): 31, x", b"NVRM: Xid (PCI:" + b"9" * 400 + b"): 1"]
    tree.write("dev/kmsg", b"\n".join(lines))
    assert host.read_xids(tree.root) == (Xid("0000:3b:00", 31, 1), Xid("0000:3b:00", 79, 2))


def test_a_log_without_end_is_read_to_its_bound(tree: Tree, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(host, "LOG_MAX_BYTES", 10_000)
    tree.write("dev/kmsg", b"x" * 50_000 + b"NVRM: Xid (PCI:0000:3b:00): 79,")
    assert host.read_xids(tree.root) == ()


# --- Processes --------------------------------------------------------------------------------------------------------


def test_a_container_does_not_see_the_hosts_processes_and_says_so(tree: Tree):
    tree.process(1, "fairlead")
    found = read_processes(tree.root)
    assert all(isinstance(each, Missing) for each in (found.names, found.kubelet, found.users, found.inotify))
    assert "hostPID" in found.names.why  # type: ignore[union-attr]  # see above


def test_processes_tell_the_kubelet_who_has_devices_open_and_inotify(tree: Tree):
    tree.host_processes()
    cmdline = "kubelet\0--root-dir=/data/kubelet\0--config\0/etc/kubelet.yaml\0"
    tree.process(700, "kubelet", "anon_inode:inotify", "anon_inode:inotify", "/dev/null", cmdline=cmdline)
    tree.process(800, "python3", "/dev/nvidia0", "/dev/nvidiactl", "/dev/video0")
    tree.process(801, "train", "/dev/nvidia0", cgroup="0::/kubepods.slice/pod1")
    tree.process(802, "nvidia-persiste", "/dev/nvidia0")
    found = read_processes(tree.root, {"/dev/video0"}.__contains__)
    assert not isinstance(found.users, Missing)
    assert [(user.pid, user.path) for user in found.users] == [(800, "/dev/nvidia0"), (800, "/dev/video0")]
    assert not isinstance(found.kubelet, Missing)
    assert (found.kubelet.pid, found.kubelet.root_dir) == (700, "/data/kubelet")
    assert found.kubelet.config == "/etc/kubelet.yaml"
    uses = 2 if os.getuid() == 0 else 0  # those of root are counted
    assert found.inotify == Inotify(128, uses)
    assert found.names == frozenset({"kthreadd", "kubelet", "python3", "train", "nvidia-persiste"})


def test_k3s_has_a_configuration_of_its_own(tree: Tree):
    tree.host_processes()
    tree.process(9, "k3s-server", cmdline="k3s server\0--config\0/etc/rancher/k3s.yaml\0")
    kubelet = read_processes(tree.root).kubelet
    assert not isinstance(kubelet, Missing)
    assert (kubelet.config, kubelet.root_dir) == ("", "/var/lib/kubelet")


def test_a_process_table_that_is_too_large_is_said_to_be(tree: Tree, monkeypatch: pytest.MonkeyPatch):
    tree.host_processes()
    tree.process(700, "a", *["/dev/null"] * 20)
    monkeypatch.setattr(processes, "LINKS_MAX", 5)
    found = read_processes(tree.root)
    assert found.users == Missing("there are more processes or open files than are looked at")
    assert found.inotify == found.users


def test_a_weird_process_table_is_read_as_far_as_it_makes_sense(tree: Tree):
    tree.host_processes()
    tree.write("proc/12/comm", b"\xff\x00weird\n")  # no fd, no cgroup
    tree.write("proc/99999999999999999999/comm", "far")
    tree.write("proc/13", "a file")
    (tree.base / "proc/14").mkdir()
    tree.write("proc/sys/fs/inotify/max_user_instances", "many")
    found = read_processes(tree.root)
    assert found.users == ()
    assert found.kubelet == Missing("no kubelet runs here")
    assert found.inotify == Missing("/proc/sys/fs/inotify/max_user_instances is no number")


@pytest.mark.skipif(os.getuid() == 0, reason="root may read every process")
def test_a_user_who_may_not_read_other_processes_is_told(tree: Tree):
    tree.host_processes()
    tree.process(700, "a")
    (tree.base / "proc/700/fd").chmod(0)
    assert read_processes(tree.root).users == Missing("/proc/700/fd may be read by root only")
