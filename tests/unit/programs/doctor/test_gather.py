"""All parts together on the files of a host: from the tree to the findings, and NVML on a simulated driver."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.nvml import Driver, Node, gpus
from tests.nvml.models import partitioned
from tests.unit.backends.nvidia.drivers import installed, options
from tests.unit.programs.doctor import healthy as h
from tests.unit.programs.doctor.tree import Tree, listen

from fairlead.backends.nvidia import library
from fairlead.backends.nvidia.errors import DriverAbsent, library_broken, library_missing
from fairlead.backends.nvidia.spec import Options
from fairlead.kit import decoding
from fairlead.kit.clock import SystemClock
from fairlead.programs.doctor.checks import CHECKS
from fairlead.programs.doctor.facts import Missing, NvmlFacts, NvmlFailure
from fairlead.programs.doctor.findings import examine
from fairlead.programs.doctor.gather import Own, Reach, gather
from fairlead.programs.doctor.gather.driver import read_nvml
from fairlead.programs.doctor.gather.runtime import ask_version
from fairlead.wire import cri
from fairlead.wire.rpc import Server
from fairlead.wire.unix import listen as listen_unix

OWN = Own(h.daemons(), h.config(), Missing("a daemon answers"))
KUBELET = "var/lib/kubelet/device-plugins/kubelet.sock"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    made = Tree(tmp_path / "host")
    made.host_processes()
    made.process(700, "kubelet", cmdline="kubelet\0--config=/var/lib/kubelet/config.yaml")
    made.write("var/lib/kubelet/config.yaml", "cgroupDriver: systemd\n")
    made.write("etc/containerd/config.toml", "version = 2\n")
    made.write("proc/devices", "Character devices:\n  1 mem\n")
    made.write("sys/module/kvm/x")
    made.write("dev/kmsg")
    (made.base / "sys/bus/pci/devices").mkdir(parents=True)
    (made.base / "sys/devices/system/node/node0").mkdir(parents=True)
    return made


def reach(tree: Tree, **changes: object) -> Reach:
    return Reach(root=str(tree.base), environment={"HOME": str(tree.base)}, node="n1", **changes)  # type: ignore[arg-type]  # any of its fields


async def test_a_host_is_read_and_only_the_cluster_and_the_holders_are_lacking(tree: Tree):
    with listen(tree.base / KUBELET):
        found = await gather(reach(tree), OWN, SystemClock())
    assert not isinstance(found.plugins, Missing)
    assert found.plugins.kubelet.state == "answers"
    assert not isinstance(found.kubelet, Missing)
    assert found.kubelet.cgroup_driver == "systemd"
    report = examine(found, CHECKS)
    assert [one.code for one in report.findings] == ["D01"]  # no pod-resources
    lacks = {one.code for one in report.not_looked_at}
    assert {"D04", "D31", "D33", "D36"} <= lacks
    assert not {"D02", "D07", "D13", "D27", "D28", "D34", "D37"} & lacks


async def test_in_a_pod_the_hosts_files_are_not_taken_for_the_containers(tree: Tree):
    inside = Reach(root="/", plugin_dir=str(tree.base / "x"), environment={"HOME": str(tree.base)}, in_pod=True)
    found = await gather(inside, OWN, SystemClock())
    for fact in (found.dev, found.runtime, found.cdi, found.special):
        assert isinstance(fact, Missing)
        assert "--host-root" in fact.why


async def test_a_wrong_driver_below_a_root_is_found_with_its_address(tree: Tree):
    tree.gpu("0000:3b:00.0", driver="nouveau")
    found = await gather(reach(tree), OWN, SystemClock())
    seen = {one.code: one.seen for one in examine(found, CHECKS).findings}
    assert seen["D07"] == "NVIDIA GPU at 0000:3b:00.0 is bound to nouveau"


async def test_the_runtime_tells_its_version(kubelet_root: Path):
    async def version(_request: cri.VersionRequest, _call: object) -> cri.VersionResponse:
        return cri.VersionResponse(runtime_name="containerd", runtime_version="v1.7.27")

    tree = Tree(kubelet_root)  # the path of a socket must be short
    tree.write("etc/containerd/config.toml", "version = 2\n")
    directory = tree.base / "run/containerd"
    directory.mkdir(parents=True)
    server = Server({cri.VERSION: version})
    await server.start(listen_unix(directory / "containerd.sock"))
    try:
        assert await ask_version(tree.root) == "v1.7.27"
        found = await gather(reach(tree), OWN, SystemClock())
    finally:
        await server.stop()
    assert not isinstance(found.runtime, Missing)
    assert found.runtime.version == "v1.7.27"


# --- NVML -------------------------------------------------------------------------------------------------------------


def look(node: Node) -> NvmlFacts | NvmlFailure | Missing:
    made, problems = decoding.decode(options(node), Options)
    assert made is not None, problems
    return read_nvml(made)


def test_nvml_tells_of_rows_instances_and_events(tmp_path: Path):
    first, second = gpus("H100", 2)
    cut = partitioned(first, "1g.10gb")
    with installed(Driver(gpus=(cut, second)), tmp_path) as node:
        found = look(node)
    assert isinstance(found, NvmlFacts)
    assert [gpu.mig_enabled for gpu in found.gpus] == [True, False]
    assert found.gpus[0].profiles == ("1g.10gb",)
    assert all(path.startswith("/dev/nvidia-caps/") for path in found.gpus[0].cap_paths)
    assert found.deaf == ()
    assert found.problems == ()


def test_nvml_tells_of_a_gpu_that_is_lost(tmp_path: Path):
    with installed(Driver(gpus=gpus("H100", 2)), tmp_path) as node:
        node.lose(0)
        found = look(node)
    assert isinstance(found, NvmlFacts)
    assert "NVML error 15" in found.problems[0]


def test_nvml_that_does_not_start_is_there(tmp_path: Path):
    with installed(Driver(gpus=gpus("H100", 1)), tmp_path) as node:
        node.fault("nvmlInit", 18)
        found = look(node)
    assert isinstance(found, NvmlFailure)
    assert "NVML error 18" in found.text
    assert not found.library


@pytest.mark.parametrize("error", [library_missing("libnvidia-ml.so.1", ["a"]), library_broken(["a"])])
def test_nvml_that_is_not_there_is_told_apart(error: DriverAbsent, monkeypatch: pytest.MonkeyPatch):
    def load(_root: str) -> None:
        raise error

    monkeypatch.setattr(library, "load", load)
    found = read_nvml(Options(driver_root_mount="/gone", host_root="/gone"))
    assert found == NvmlFailure(str(error), library=True)


def test_a_gpu_without_events_is_named(tmp_path: Path):
    with installed(Driver(gpus=gpus("H100", 1)), tmp_path) as node:
        node.fault("nvmlDeviceGetSupportedEventTypes", 3)
        found = look(node)
    assert isinstance(found, NvmlFacts)
    assert "too old for events" in found.deaf[0]
