"""A host's files with simulated GPUs, for a doctor beside a true kubelet; and the faults that are planted in them."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from msgspec.structs import replace

from tests.node.ailments import NULL, Doctor, carry_out
from tests.node.cluster import Cluster
from tests.node.daemon import Fairlead
from tests.node.rig.api import Api, RefusedError
from tests.node.rig.places import CONFIG, KUBELET
from tests.node.vendor import CLASSES
from tests.nvml import Driver, Node, gpus
from tests.nvml.library import compiled_or_skip
from tests.nvml.models import partitioned
from tests.nvml.node import CONTROL
from tests.nvml.values import ALL_EVENTS
from tests.unit.programs.doctor.tree import PCI, Tree

KERNEL_LOG = "dev/kmsg"
RUNTIME_CONFIG = "etc/containerd/config.toml"
KUBELET_CONFIG = "etc/kubernetes/kubelet/kubelet-config.json"
INOTIFY = "proc/sys/fs/inotify/max_user_instances"
PIPE = "mps/nvidia.com/gpu/pipe/control"
# The firmware names no NUMA node of the second one.
DRIVER = Driver(gpus=(*gpus("H100", 2)[:1], replace(gpus("H100", 2)[1], numa_node=-1)))
MAJORS = "Character devices:\n  1 mem\n195 nvidia\n\nBlock devices:\n  7 loop\n"


class Host(Tree):
    """A host's files below a directory: simulated GPUs and their driver, beside this node's kubelet and runtime."""

    def __init__(self, node: Node) -> None:
        super().__init__(node.root)
        self.node = node
        self.link("var/lib/kubelet", str(KUBELET))
        self.write(RUNTIME_CONFIG, (CONFIG / "containerd.toml").read_text())
        self.write(KUBELET_CONFIG, (CONFIG / "kubelet.json").read_text())
        self.write(KERNEL_LOG)
        self.write("proc/devices", MAJORS)
        self.write("sys/devices/system/node/node0/cpulist", "0\n")
        self.write("sys/devices/system/node/node1/cpulist", "1\n")
        self.write("sys/module/loop/version")
        self.host_processes()
        self.process(40, "containerd", "anon_inode:inotify")
        (self.base / PIPE).parent.mkdir(parents=True)
        os.mkfifo(self.base / PIPE)
        self.bind("nvidia")

    def bind(self, driver: str) -> None:
        """Binds the first GPU to this driver, or to none; the others to NVIDIA's."""
        for number, gpu in enumerate(self.node.driver.gpus):
            link = self.base / PCI / gpu.address / "driver"
            link.unlink(missing_ok=True)
            name = driver if number == 0 else "nvidia"
            if name:
                (self.base / "sys/bus/pci/drivers" / name).mkdir(parents=True, exist_ok=True)
                link.symlink_to(f"../../drivers/{name}")

    def edit(self, path: str, old: str, new: str) -> None:
        file = self.base / path
        text = file.read_text()
        assert old in text, f"{path} has no {old}"
        file.write_text(text.replace(old, new))

    def move(self, path: str, target: str) -> None:
        (self.base / target).parent.mkdir(parents=True, exist_ok=True)
        (self.base / path).rename(self.base / target)

    def backend(self, **more: Any) -> dict[str, Any]:
        return {"kind": "nvidia", "driverRootMount": str(self.base), "hostRoot": str(self.base), **more}

    def words(self, directory: Path, ailment: Ailment) -> tuple[str, ...]:
        """The configuration by which this fault is one, for the doctor; none where the daemon's own is."""
        if not ailment.options:
            return ()
        options = {key: self._filled(value) for key, value in ailment.options.items()}
        file = directory / "fairlead.yaml"
        file.write_text(json.dumps({"backends": [self.backend(**options)], "rules": [{"resource": "nvidia.com/gpu"}]}))
        return ("--config", str(file))

    def rebased(self, command: str) -> str:
        """The command, for the files of this host and not for those of the machine."""
        return re.sub(r"(?<= )(?=/(?:etc|sys)/)", str(self.base), command)

    def node_at(self, path: str) -> None:
        file = self.base / path
        file.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(file, stat.S_IFCHR | 0o666, NULL)

    def link_nodes(self) -> None:
        """As `nvidia-ctk system create-dev-char-symlinks`."""
        for path in (self.base / "dev").glob("nvidia*"):
            if path.is_char_device():
                number = path.stat().st_rdev
                self.link(f"dev/char/{os.major(number)}:{os.minor(number)}", f"../{path.name}")

    def cut(self, *profiles: str) -> None:
        """The first GPU has MIG on, with these instances."""
        first, *others = DRIVER.gpus
        self.node.become(replace(DRIVER, gpus=(partitioned(first, *profiles), *others)))

    def restore(self) -> None:
        self.node.become(DRIVER)

    def _filled(self, value: Any) -> Any:
        return {"root": f"{self.base}/mps", **value} if isinstance(value, dict) else value


@contextmanager
def served(resource: str) -> Iterator[tuple[Host, Doctor]]:
    """A host, a daemon that serves its GPUs to the kubelet, and the doctor there."""
    compiled_or_skip()
    directory = Path(tempfile.mkdtemp(prefix="sick-"))  # a short name: sockets are reached through it
    cluster = Cluster()
    try:
        with DRIVER.installed(directory / "gpus") as node:
            host, env = Host(node), {CONTROL: str(node.control)}
            config = {"backends": [host.backend()], "rules": [{"resource": resource}], "scan": {"interval": "1s"}}
            daemon = Fairlead(directory, {**config, "instance": "doctor-gpus"})
            daemon.run("-m", "fairlead", "run", "--config", str(daemon.file), env=env)
            try:
                cluster.wait_offered(resource, len(DRIVER.gpus))
                cluster.api.call("POST", CLASSES, {"metadata": {"name": "nvidia"}, "handler": "nvidia"})
                yield host, Doctor(daemon.socket, "--host-root", str(host.base), env=env)
            finally:
                daemon.end()
                with suppress(RefusedError):
                    cluster.api.call("DELETE", f"{CLASSES}/nvidia")
    finally:
        shutil.rmtree(directory)


# --- Its faults -------------------------------------------------------------------------------------------------------


class Ailment(NamedTuple):
    """A fault, and what its cure does. Where the printed command can be run on files, it is: the cure is given it."""

    code: str
    name: str
    plant: Callable[[Host], object]
    cure: Callable[[Host, str], object]
    options: Mapping[str, Any] = MappingProxyType({})  # of the nvidia backend, for the doctor


def _as_printed(host: Host, printed: str) -> None:
    carry_out(host.rebased(printed))


def _moved(code: str, path: str, *, first: Callable[[Host], object] = lambda _: None) -> Ailment:
    """A file that is not there; the cure brings it back."""

    def plant(host: Host) -> None:
        first(host)
        host.move(path, f".away/{path}")

    return Ailment(code, Path(path).name, plant, lambda host, _: host.move(f".away/{path}", path))


def _edited(code: str, name: str, path: str, old: str, new: str, **options: Any) -> Ailment:
    return Ailment(
        code, name, lambda host: host.edit(path, old, new), lambda host, _: host.edit(path, new, old), options
    )


def _changed(code: str, name: str, right: int, wrong: int) -> Ailment:
    """A value that the driver tells of the first GPU."""
    return Ailment(
        code,
        name,
        lambda host: host.node.change(0, **{name: wrong}),
        lambda host, _: host.node.change(0, **{name: right}),
    )


def _spec(name: str, node: str = "/dev/nvidiactl") -> str:
    devices = [{"name": "0", "containerEdits": {"deviceNodes": [{"path": node}]}}]
    return json.dumps({"cdiVersion": "0.6.0", "kind": f"{name}.example/gpu", "devices": devices})


def _twice(host: Host) -> None:
    for name in ("one", "two"):
        host.write(f"etc/cdi/{name}.json", _spec("same"))


def _unloaded(host: Host) -> None:
    host.bind("")
    host.move("sys/module/nvidia", ".away/module")


def _loaded(host: Host, _: str) -> None:
    host.move(".away/module", "sys/module/nvidia")
    host.bind("nvidia")


def _amd(host: Host) -> None:
    host.gpu("0000:c1:00.0", vendor="0x1002", driver="amdgpu")
    host.write("sys/module/amdgpu/version")


def _kfd(host: Host, _: str) -> None:
    host.write("sys/class/kfd/kfd/dev", "1:3\n")
    host.node_at("dev/kfd")
    host.node_at("dev/dri/renderD128")


def _head(host: Host) -> Path:
    return host.base / PCI / DRIVER.gpus[0].address / "config"


AILMENTS = (
    Ailment("D07", "vfio", lambda host: host.bind("vfio-pci"), lambda host, _: host.bind("nvidia")),
    Ailment("D08", "module", _unloaded, _loaded),
    _moved("D09", "usr/lib/x86_64-linux-gnu"),
    _edited("D10", "handler", RUNTIME_CONFIG, "runtimes.nvidia", "runtimes.other"),
    Ailment("D11", "class", lambda _: Api().call("DELETE", f"{CLASSES}/nvidia"), lambda _, printed: carry_out(printed)),
    _edited("D12", "version", "sys/module/nvidia/version", DRIVER.driver_version, "570.86.15"),
    _moved("D13", "dev/nvidia-uvm"),
    Ailment(
        "D14",
        "links",
        lambda host: host.edit(KUBELET_CONFIG, '"cgroupDriver": "cgroupfs"', '"cgroupDriver": "systemd"'),
        lambda host, _: host.link_nodes(),
    ),
    Ailment(
        "D15",
        "switch",
        lambda host: host.gpu("0000:a0:00.0", kind="0x068000"),
        lambda host, _: host.process(50, "nv-fabricmanager"[:15]),
    ),
    Ailment(
        "D16",
        "ones",
        lambda host: _head(host).write_bytes(b"\xff" * 64),
        lambda host, _: _head(host).write_bytes(DRIVER.gpus[0].device_id.to_bytes(4, "little")),
    ),
    Ailment(
        "D17",
        "boot",  # a warning until the next one
        lambda host: host.write(KERNEL_LOG, "3,1,2,-;NVRM: Xid (PCI:0000:18:00): 48, pid=7\n"),
        lambda host, _: host.write(KERNEL_LOG),
    ),
    _changed("D18", "remap_pending", 0, 1),
    Ailment("D19", "empty", lambda host: host.cut(), lambda host, _: host.cut("1g.10gb")),
    _moved("D20", "dev/nvidia-caps", first=lambda host: host.cut("1g.10gb")),
    Ailment(
        "D21",
        "mps",
        lambda host: (host.base / PIPE).unlink(),
        lambda host, _: os.mkfifo(host.base / PIPE),
        {"mps": {"replicas": {"nvidia.com/gpu": 2}}},
    ),
    _edited("D26", "cdi", RUNTIME_CONFIG, "enable_cdi = true", "enable_cdi = false", ways=["cdi-cri"]),
    Ailment(
        "D27",
        "broken",
        lambda host: host.write("etc/cdi/broken.yaml", "kind: ["),
        lambda host, _: host.write("etc/cdi/broken.yaml", _spec("mended")),
    ),
    Ailment(
        "D27",
        "stale",
        lambda host: host.write("etc/cdi/stale.json", _spec("stale", "/dev/gone")),
        lambda host, _: host.write("etc/cdi/stale.json", _spec("stale")),
    ),
    Ailment("D27", "twice", _twice, _as_printed),
    Ailment("D35", "kfd", _amd, _kfd),
    Ailment(
        "D37",
        "inotify",
        lambda host: host.write(INOTIFY, "1\n"),
        lambda host, _: host.write(INOTIFY, "8192\n"),
    ),
    Ailment(
        "D40",
        "numa",
        lambda host: host.edit(KUBELET_CONFIG, '"port"', '"topologyManagerPolicy": "single-numa-node",\n "port"'),
        _as_printed,
    ),
    _changed("D43", "events", ALL_EVENTS, 0),
)
