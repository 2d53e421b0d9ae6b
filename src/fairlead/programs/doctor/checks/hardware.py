"""Checks of the hardware and its drivers, as the host's files show them: any vendor, NVIDIA's driver files, AMD's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

from fairlead.backends.nvidia.hostnodes import NEEDED_NODES
from fairlead.model.names import ResourceName, SlotId
from fairlead.programs.doctor.checks.words import (
    AMD,
    NVIDIA,
    NVSWITCH_CLASS,
    gpus,
    has_nvidia,
    listing,
    offered,
    our_set,
)
from fairlead.programs.doctor.facts import Facts, Missing, NvmlFacts, NvmlFailure
from fairlead.programs.doctor.findings import API, DAEMON, HOST, RUNTIME, Chapter, LacksError, Seen, need

HARDWARE = Chapter("Devices and drivers")
DRIVERS = {NVIDIA: "nvidia", AMD: "amdgpu"}
VENDORS = {NVIDIA: "NVIDIA", AMD: "AMD"}
FOREIGN = {
    "nouveau": "echo 'blacklist nouveau' > /etc/modprobe.d/nouveau.conf && reboot",
    "vfio-pci": "echo {address} > /sys/bus/pci/drivers/vfio-pci/unbind && echo {address} > /sys/bus/pci/drivers_probe",
}
NVIDIA_MAJOR = ("nvidia", "nvidia-frontend", "nvidiactl")
READ_WRITE_ALL = 0o006
FABRIC_MANAGER = "nv-fabricmanager"
COMM_MAX = 15  # characters of a process's name that the kernel keeps
_VERSION = re.compile(r"\.so\.(\d+(?:\.\d+)+)$")


@HARDWARE.error(
    "D07", "a GPU is bound to another driver, or to none", "echo {address} > /sys/bus/pci/drivers_probe", HOST
)
def wrong_driver(facts: Facts) -> Iterator[Seen]:
    """A GPU that nouveau or vfio-pci holds is not there for NVIDIA's driver, and no pod can get it.

    One that was given to a virtual machine on purpose stays with vfio-pci: then leave it out by a rule.
    """
    modules = need(facts.modules)
    for vendor, driver in DRIVERS.items():
        for gpu in gpus(facts, vendor):
            if gpu.driver == driver or (not gpu.driver and driver not in modules):  # the latter is D08
                continue
            bound = f"is bound to {gpu.driver}" if gpu.driver else f"has no driver, although {driver} is loaded"
            text = f"{VENDORS[vendor]} GPU at {gpu.address} {bound}"
            yield Seen(text, {"address": gpu.address}, FOREIGN.get(gpu.driver, ""))


@HARDWARE.error("D08", "the driver is not loaded yet", "modprobe {driver}", HOST)
def no_driver(facts: Facts) -> Iterator[Seen]:
    """The GPUs are on the bus, and no driver is there to serve them.

    A driver that is installed later, by an operator or by the node's start, needs no restart of Fairlead: it scans
    again by itself.
    """
    modules = need(facts.modules)
    for vendor, driver in DRIVERS.items():
        if driver in modules:
            continue
        bare = [gpu.address for gpu in gpus(facts, vendor) if not gpu.driver]
        if bare:
            waits = "" if isinstance(facts.daemons, Missing) else "; the daemon waits for it"
            text = f"{len(bare)} {VENDORS[vendor]} GPUs ({listing(bare)}), and module {driver} is not loaded{waits}"
            yield Seen(text, {"driver": driver})


@HARDWARE.error(
    "D09",
    "libnvidia-ml.so.1 is not found",
    "kubectl -n {namespace} patch daemonset {name} -p "
    """'{"spec":{"template":{"spec":{"runtimeClassName":"nvidia"}}}}'""",
)
def no_library(facts: Facts) -> Iterator[Seen]:
    """Without the driver's library the GPUs cannot be listed.

    In a pod it comes by NVIDIA's container runtime, or with the driver's root directory, mounted and named as
    driverRootMount; on the host with the driver's package.
    """
    if not has_nvidia(facts):
        return
    found = need(facts.nvml)
    if isinstance(found, NvmlFailure) and found.library:
        cure = "" if facts.where.in_pod else "ldconfig && ldconfig -p | grep libnvidia-ml"
        yield Seen(found.text, our_set(facts), cure)


@HARDWARE.error("D12", "the driver and its library are of different versions", "systemctl reboot", DAEMON, HOST)
def versions_differ(facts: Facts) -> Iterator[Seen]:
    """An upgrade has replaced the library while the old kernel module is loaded.

    Each call into the driver fails with NVML error 18 until the module is loaded anew. Hold the packages of the driver
    back from unattended upgrades.
    """
    found = need(facts.nvidia)
    if isinstance(facts.nvml, NvmlFailure) and "NVML error 18" in facts.nvml.text:
        yield Seen(f"kernel module {found.kernel_version or 'of unknown version'}; {facts.nvml.text}")
        return
    if not found.kernel_version:
        return
    versions = {match[1] for path in found.libraries if (match := _VERSION.search(path))}
    if versions and found.kernel_version not in versions:
        paths = listing(sorted(path for path in found.libraries if _VERSION.search(path)))
        yield Seen(f"kernel module {found.kernel_version}, library {', '.join(sorted(versions))} ({paths})")


@HARDWARE.error("D13", "device nodes of NVIDIA's driver are missing", "nvidia-modprobe -u -c {minor}", HOST)
def no_nodes(facts: Facts) -> Iterator[Seen]:
    """The driver is loaded, and its nodes in /dev were not made.

    No program can use a GPU without them; containers that are started now get none. The persistence daemon makes them
    at each boot.
    """
    majors, nodes = need(facts.majors), need(facts.dev).nodes
    if not any(name in majors for name in NVIDIA_MAJOR):
        return
    wanted = dict.fromkeys(NEEDED_NODES, "0")
    if isinstance(facts.nvml, NvmlFacts):
        wanted |= {f"/dev/nvidia{gpu.minor}": str(gpu.minor) for gpu in facts.nvml.gpus}
    missing = [path for path in wanted if path not in nodes]
    if missing:
        yield Seen(f"{listing(missing)} not there", {"minor": wanted[missing[-1]]})


@HARDWARE.warning(
    "D14",
    "no /dev/char links: pods lose their GPUs at `systemctl daemon-reload`",
    "nvidia-ctk system create-dev-char-symlinks --create-all",
    HOST,
)
def no_char_links(facts: Facts) -> Iterator[Seen]:
    """With systemd as cgroup driver, systemd writes a container's device rules anew at each daemon-reload.

    It finds devices by their links in /dev/char. Without links it drops them: running pods get `Failed to initialize
    NVML: Unknown Error`. Containers that get their devices as device nodes or by CDI are not affected.
    """
    dev = need(facts.dev)
    cards = {path: node for path, node in dev.nodes.items() if fnmatchcase(path, "/dev/nvidia*")}
    if not cards:
        return
    runtime = facts.runtime
    by_runtime = not isinstance(runtime, Missing) and runtime.systemd_cgroup
    if not by_runtime and need(facts.kubelet).cgroup_driver != "systemd":
        return
    if not isinstance(facts.config, Missing) and _gives_nodes(facts):
        return
    bare = [path for path, node in sorted(cards.items()) if f"{node.major}:{node.minor}" not in dev.char_links]
    if bare:
        yield Seen(f"{listing(bare)} without a link in /dev/char; the cgroup driver is systemd")


@HARDWARE.error(
    "D15",
    "NVSwitch without its fabric manager",
    "systemctl enable --now nvidia-fabricmanager",
    HOST,
)
def no_fabric(facts: Facts) -> Iterator[Seen]:
    """On machines with NVSwitch, CUDA fails with error 802 until the switches are set up.

    The fabric manager does that; it must be of the very version of the driver.
    """
    switches = [one.address for one in need(facts.pci) if one.vendor == NVIDIA and one.kind == NVSWITCH_CLASS]
    if not switches:
        return
    waiting = [gpu for gpu in facts.nvml.gpus if gpu.fabric] if isinstance(facts.nvml, NvmlFacts) else []
    if FABRIC_MANAGER[:COMM_MAX] not in need(facts.processes):
        yield Seen(f"{len(switches)} NVSwitches ({listing(switches)}), and no process {FABRIC_MANAGER}")
    elif waiting:
        version = "" if isinstance(facts.nvidia, Missing) else facts.nvidia.kernel_version
        states = listing(f"GPU {gpu.index}: {gpu.fabric}" for gpu in waiting)
        yield Seen(f"{FABRIC_MANAGER} runs, and the fabric is not ready: {states}. It must be of version {version}")


@HARDWARE.error("D35", "AMD's compute driver is not up", "modprobe amdgpu", HOST)
def no_kfd(facts: Facts) -> Iterator[Seen]:
    """A pod that computes on an AMD GPU needs /dev/kfd and /dev/dri.

    They are there when the module amdgpu is loaded, has its firmware, and the kernel was built with KFD; `dmesg | grep
    amdgpu` names the firmware that is missing.
    """
    served = [gpu.address for gpu in gpus(facts, AMD) if gpu.driver == DRIVERS[AMD]]
    if not served:
        return
    nodes = need(facts.dev).nodes
    missing = [] if need(facts.kfd) else ["/sys/class/kfd"]
    missing += [] if "/dev/kfd" in nodes else ["/dev/kfd"]
    missing += [] if any(path.startswith("/dev/dri/renderD") for path in nodes) else ["/dev/dri/renderD*"]
    if missing:
        yield Seen(f"{', '.join(missing)} not there, with {len(served)} GPUs of amdgpu ({listing(served)})")


@HARDWARE.error(
    "D36",
    "a pod that is not root cannot open its device",
    "kubectl -n {namespace} get pod {pod} -o yaml | grep -n -A6 securityContext  # add supplementalGroups: [{gid}]",
    HOST,
    RUNTIME,
    API,
)
def closed_nodes(facts: Facts) -> Iterator[Seen]:
    """A device node keeps its mode and its group in a container.

    A process that is neither root nor in that group gets Permission denied. Add the group to the pod, or set
    device_ownership_from_security_context in containerd.
    """
    if not isinstance(facts.runtime, Missing) and facts.runtime.ownership:
        return
    nodes, holdings = need(facts.dev).nodes, need(facts.holdings)
    users = {(pod.namespace, pod.name): pod for pod in need(facts.pods) if pod.user}
    for device in offered(facts):
        shut = [(path, nodes[path]) for path in device.nodes if path in nodes and _is_shut(nodes[path].mode)]
        holder = holdings.by_slot.get((ResourceName(device.resource or ""), SlotId(device.id)))
        pod = users.get((holder.namespace, holder.pod)) if holder is not None else None
        for path, node in shut[:1]:
            if pod is not None and node.gid not in pod.groups:
                text = f"{pod} runs as user {pod.user} and holds {path}, of mode {node.mode:04o} and group {node.gid}"
                yield Seen(text, {"namespace": pod.namespace, "pod": pod.name, "gid": str(node.gid)})


@HARDWARE.error(
    "D37",
    "the inotify instances of root are used up",
    "sysctl -w fs.inotify.max_user_instances={more}",
    HOST,
)
def no_inotify(facts: Facts) -> Iterator[Seen]:
    """The kubelet, the container runtime and many plugins watch files by inotify.

    They fail with `too many open files` when there are no instances left. Fairlead itself does not use them. Write the
    value to /etc/sysctl.d to keep it.
    """
    found = need(facts.inotify)
    if found.used >= found.limit:
        text = f"root has {found.used} instances, and fs.inotify.max_user_instances is {found.limit}"
        yield Seen(text, {"more": str(max(8192, 2 * found.limit))})


@HARDWARE.warning(
    "D34",
    "a process outside of Kubernetes uses a device that is offered",
    "kill {pid}",
    HOST,
)
def foreign_use(facts: Facts) -> Iterator[Seen]:
    """The kubelet does not know of it and gives the device to a pod.

    The pod then finds its memory or its compute time taken. End the process, or leave the device out by a rule.
    """
    paths = {path: device.id for device in offered(facts) if device.resource for path in device.nodes}
    for user in need(facts.users):
        if user.path in paths:
            text = f"process {user.pid} ({user.name}) has {user.path} open and is in no pod"
            yield Seen(text, {"pid": str(user.pid)})


@HARDWARE.warning(
    "D41",
    "a special host, and nothing is offered",
    "fairlead nvidia --device-discovery-strategy={strategy}",
    HOST,
)
def special_host(facts: Facts) -> Iterator[Seen]:
    """A Jetson has no PCI GPU and WSL2 no device node for each GPU: there the devices are found by other files.

    The command names the way that fits.
    """
    special = need(facts.special)
    if any(device.resource for device in offered(facts)):
        return
    if special.tegra or special.soc.lower().startswith("tegra"):
        seen = f"a Jetson ({special.model or special.soc or '/etc/nv_tegra_release'})"
        yield Seen(f"this is {seen}, and no device is offered", {"strategy": "tegra"})
    elif special.wsl:
        yield Seen("this is WSL2 (/dev/dxg), and no device is offered", {"strategy": "nvml"})


def _is_shut(mode: int) -> bool:
    return mode & READ_WRITE_ALL != READ_WRITE_ALL


def _gives_nodes(facts: Facts) -> bool:
    """Whether containers get their devices as nodes or by CDI, whatever the runtime's hook does."""
    if isinstance(facts.config, Missing):
        raise LacksError(facts.config.why)
    for entry in facts.config.backends:
        if entry.get("kind") != "nvidia":
            continue
        ways = entry.get("ways", ["envvar"])
        if entry.get("nodes") or (isinstance(ways, list) and any(str(way).startswith("cdi") for way in ways)):
            return True
    return False
