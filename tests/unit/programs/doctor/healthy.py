"""The facts of a healthy node with two NVIDIA GPUs, a daemon and a cluster. A test plants a fault by changing one."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from fairlead.config.load import build
from fairlead.config.spec import Config
from fairlead.fronts.checkpoint import Checkpoint
from fairlead.model.holdings import Holder, Holdings
from fairlead.model.names import ResourceName, SlotId
from fairlead.observe.plan import Plan, PlannedDevice, PlannedResource
from fairlead.observe.status import DeviceStatus, ResourceStatus, Status
from fairlead.programs.doctor import facts as f

NOW_S = 1_800_000_000.0
DIRECTORY = "/var/lib/kubelet/device-plugins"
GPU = ResourceName("nvidia.com/gpu")
FIRST, SECOND = SlotId("GPU-1"), SlotId("GPU-2")
ADDRESSES = ("0000:3b:00.0", "0000:5e:00.0")


def config(text: dict[str, Any] | None = None) -> Config:
    raw = {"backends": [{"kind": "nvidia"}], "rules": [{"resource": "nvidia.com/gpu"}]}
    return build({**raw, **(text or {})}, "f.yaml").config


def device(number: int = 0, **changes: Any) -> DeviceStatus:
    made = DeviceStatus(
        id=f"GPU-{number + 1}",
        index=str(number),
        vendor="nvidia",
        model="H100",
        memory_bytes=80 * 2**30,
        pci_address=ADDRESSES[number % 2],
        numa_nodes=(number,),
        nodes=(f"/dev/nvidia{number}",),
        parent=None,
        backend="nvidia",
        health="healthy",
        cause="",
        cured_by=(),
        since_s=0.0,
        resource="nvidia.com/gpu",
        rule="rules[0]",
        slots=1,
        held=0,
        holders=(),
    )
    return replace(made, **changes)


def resource(**changes: Any) -> ResourceStatus:
    made = ResourceStatus(
        name="nvidia.com/gpu",
        unit_bytes=0,
        wish_bytes=0,
        note="",
        placement="aligned",
        stall_s=0.0,
        stall_long=False,
        stall="",
        slots=2,
        healthy=2,
        held=1,
        free=1,
        retired=0,
        list_bytes=100,
        socket=f"{DIRECTORY}/nvidia.com_gpu.sock",
        phase="streaming",
        since_s=NOW_S - 1000,
        reason="",
        attempt=1,
        problem="",
    )
    return replace(made, **changes)


def status(**changes: Any) -> Status:
    made = Status(
        version="1",
        pid=1,
        instance="fairlead",
        started_s=NOW_S - 1000,
        now_s=NOW_S,
        config="/etc/fairlead/fairlead.yaml",
        directory=DIRECTORY,
        holders_known=True,
        holders_problem="",
        backends=(),
        devices=(device(0), device(1)),
        resources=(resource(),),
        problems=(),
    )
    return replace(made, **changes)


def daemons(*refusals: f.Refusal, **changes: Any) -> tuple[f.DaemonFacts, ...]:
    return (f.DaemonFacts("/run/fairlead/fairlead.sock", status(**changes), refusals),)


def plan(worst_bytes: int = 100) -> Plan:
    facts = {name: getattr(device(0), name) for name in PlannedDevice.__struct_fields__ if name != "reason"}
    row = {name: getattr(resource(), name) for name in ("name", "unit_bytes", "wish_bytes", "note", "placement")}
    planned = PlannedResource(
        **row,
        stall_s=0.0,
        stall_long=False,
        stall="",
        devices=1,
        slots=1,
        list_bytes=100,
        worst_bytes=worst_bytes,
        limit_bytes=4_194_304,
    )
    return Plan(resources=(planned,), amounts=(), devices=(PlannedDevice(**facts, reason=""),), problems=())


def answering(name: str) -> f.SocketFile:
    return f.SocketFile(f"{DIRECTORY}/{name}", f.SocketState.ANSWERS)


def plugins(state: f.SocketState = f.SocketState.ANSWERS, *others: str, there: bool = True) -> f.PluginDirectory:
    kubelet = f.SocketFile(f"{DIRECTORY}/kubelet.sock", state, "Connection refused" if state == "refused" else "")
    own = answering("nvidia.com_gpu.sock")
    return f.PluginDirectory(DIRECTORY, there, kubelet, (own, *map(answering, others)))


def gpu(number: int = 0, **changes: Any) -> f.GpuFacts:
    return replace(f.GpuFacts(f"GPU-{number + 1}", number, number, ADDRESSES[number]), **changes)


def pci(**changes: Any) -> tuple[f.PciDevice, ...]:
    first = f.PciDevice(ADDRESSES[0], "10de", "0302", "nvidia", 0)
    return (replace(first, **changes), f.PciDevice(ADDRESSES[1], "10de", "0302", "nvidia", 1))


def daemon_set(**changes: Any) -> f.DaemonSet:
    made = f.DaemonSet(
        namespace="kube-system",
        name="fairlead",
        images=("fairlead:1",),
        selector={"app": "fairlead"},
        tolerations=(f.Toleration("nvidia.com/gpu", "Exists"),),
        alternatives=((f.Term("feature.node.kubernetes.io/pci-10de.present", "In", ("true",)),),),
    )
    return replace(made, **changes)


def node(**changes: Any) -> f.NodeObject:
    made = f.NodeObject(
        "worker-1",
        labels={"feature.node.kubernetes.io/pci-10de.present": "true"},
        taints=(f.Taint("nvidia.com/gpu", "present", "NoSchedule"),),
        capacity={"cpu": "8", "nvidia.com/gpu": "2"},
        kubelet_version="v1.36.4",
    )
    return replace(made, **changes)


def pod(**changes: Any) -> f.PodObject:
    return replace(f.PodObject("default", "train", "Running", images=("train:1",)), **changes)


def holdings(name: str = "train") -> Holdings:
    return Holdings({(GPU, FIRST): Holder("default", name, "main")})


def checkpoint(held: frozenset[SlotId] = frozenset({FIRST})) -> f.DiskCheckpoint:
    path = f"{DIRECTORY}/kubelet_internal_checkpoint"
    return f.DiskCheckpoint(path, content=Checkpoint({GPU: frozenset({FIRST, SECOND})}, {GPU: held}))


def dev(mode: int = 0o666, gid: int = 0, without: str = "", links: bool = True) -> f.DevFiles:
    minors = {"/dev/nvidia0": 0, "/dev/nvidia1": 1, "/dev/nvidiactl": 255, "/dev/nvidia-uvm": 256}
    nodes = {path: f.Node(195, minor, mode, gid) for path, minor in minors.items() if path != without}
    return f.DevFiles(nodes, frozenset(f"195:{minor}" for minor in minors.values()) if links else frozenset())


def runtime(**changes: Any) -> f.Runtime:
    made = f.Runtime("containerd", "/etc/containerd/config.toml", "1.7.2", ("runc", "nvidia"), "nvidia", cdi=True)
    return replace(made, **changes)


def healthy(**changes: Any) -> f.Facts:
    made = f.Facts(
        where=f.Where(node="worker-1", now_s=NOW_S),
        plugins=plugins(),
        pod_resources=f.SocketFile("/var/lib/kubelet/pod-resources/kubelet.sock", f.SocketState.ANSWERS),
        process=f.KubeletProcess(700),
        kubelet=f.KubeletConfig("single-numa-node", "systemd"),
        checkpoint=checkpoint(),
        holdings=holdings(),
        daemons=daemons(),
        config=config(),
        plan=f.Missing("a daemon answers"),
        mps=(),
        pci=pci(),
        numa_nodes=2,
        modules=frozenset({"nvidia"}),
        majors={"nvidia": 195},
        dev=dev(),
        kfd=False,
        nvidia=f.NvidiaFiles("550.54.15", ("/usr/lib64/libnvidia-ml.so.550.54.15",)),
        nvml=f.NvmlFacts((gpu(0), gpu(1))),
        xids=(),
        special=f.SpecialHost(),
        selinux=f.Selinux(enforcing=True),
        inotify=f.Inotify(128, 40),
        processes=frozenset({"systemd", "kubelet"}),
        users=(),
        runtime=runtime(),
        cdi=(f.CdiFile("/var/run/cdi/nvidia.json", "nvidia.com/gpu", ("nvidia.com/gpu=0",)),),
        node=node(),
        pods=(pod(),),
        daemon_sets=(daemon_set(),),
        events=(),
        runtime_classes=(f.RuntimeClass("nvidia", "nvidia"),),
        slices=(),
        rights=(f.Right("the daemon with `amounts`", "", "nodes/status", "patch", allowed=True),),
    )
    return replace(made, **changes)
