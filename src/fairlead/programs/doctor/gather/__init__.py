"""Reads what the checks need to know, all parts at once, each within its bounds. Changes nothing on the node."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from fairlead.backends.nvidia.spec import Options
from fairlead.cluster.access import Access, find_access
from fairlead.cluster.client import Client
from fairlead.config.spec import Config
from fairlead.fronts.podresources import read_holdings
from fairlead.kit import decoding
from fairlead.kit.hostroot import HostRoot
from fairlead.model.errors import FairleadError
from fairlead.model.holdings import Holdings
from fairlead.model.ports import Clock
from fairlead.observe.plan import Plan
from fairlead.programs.doctor.facts import DaemonFacts, Facts, Missing, PciDevice, Runtime, Where
from fairlead.programs.doctor.gather import api, driver, host, kubelet, runtime
from fairlead.programs.doctor.gather.limits import DRIVER_S, in_time
from fairlead.programs.doctor.gather.processes import Processes, read_processes

ATTEMPT_S, HOLDERS_S = 3.0, 2.0
DRIVER_ROOT = "/driver-root"  # where charts mount the driver
NVIDIA = "10de"


class Own(Struct, frozen=True):
    """What is known of Fairlead itself: daemons that answer, or the plan that was made without one."""

    daemons: tuple[DaemonFacts, ...] | Missing
    config: Config | Missing
    plan: Plan | Missing


class Reach(Struct, frozen=True):
    """Where to look."""

    root: str = "/"
    plugin_dir: str = "/var/lib/kubelet/device-plugins"
    pod_resources: str = "/var/lib/kubelet/pod-resources/kubelet.sock"
    node: str = ""
    kubeconfig: str = ""
    context: str = ""
    environment: Mapping[str, str] = {}
    uid: int = 0
    in_pod: bool = False

    def below(self, path: str) -> str:
        """A path of the host, as it is opened here."""
        return f"{self.root.rstrip('/')}{path}"


async def gather(reach: Reach, own: Own, clock: Clock) -> Facts:
    root = HostRoot(reach.root)
    foreign = _foreign(reach)  # the files here are a container's
    wanted = _offered_nodes(own)
    directory = reach.below(reach.plugin_dir)

    async def of_host(name: str, read: Any) -> Any:
        return foreign if foreign is not None else await in_time(name, clock, read)

    parts: dict[str, Any] = {
        "plugins": in_time("plugin directory", clock, lambda: kubelet.read_plugins(directory)),
        "pod_resources": in_time("pod-resources", clock, lambda: kubelet.read_socket(reach.below(reach.pod_resources))),
        "checkpoint": in_time("checkpoint", clock, lambda: kubelet.read_disk_checkpoint(directory)),
        "holdings": _holdings(reach.below(reach.pod_resources)),
        "pci": in_time("PCI bus", clock, lambda: host.read_pci(root)),
        "numa_nodes": in_time("NUMA nodes", clock, lambda: host.count_numa(root)),
        "modules": in_time("modules", clock, lambda: host.read_modules(root)),
        "majors": in_time("/proc/devices", clock, lambda: host.read_majors(root)),
        "dev": of_host("/dev", lambda: host.read_dev(root, wanted)),
        "kfd": in_time("KFD", clock, lambda: root.real("/sys/class/kfd") is not None),
        "nvidia": in_time("NVIDIA's files", clock, lambda: host.read_nvidia(root, HostRoot(_driver_root(reach)))),
        "xids": in_time("kernel log", clock, lambda: host.read_xids(root)),
        "special": of_host("special hosts", lambda: host.read_special(root)),
        "selinux": in_time("SELinux", clock, lambda: host.read_selinux(root)),
        "runtime": of_host("container runtime", lambda: runtime.read_runtime(root)),
        "cdi": of_host("CDI specs", lambda: runtime.read_specs(root, _cdi_directories(own.config))),
        "mps": _pipes(own.config, clock),
        "_version": runtime.ask_version(root),
        "_processes": in_time("processes", clock, lambda: read_processes(root, wanted.__contains__)),
        "_cluster": _cluster(reach, own, clock),
    }
    found = dict(zip(parts, await asyncio.gather(*parts.values()), strict=True))
    processes = found.pop("_processes")
    if isinstance(processes, Missing):
        processes = Processes(processes, processes, processes, processes)
    cluster = found.pop("_cluster")
    version = found.pop("_version") or _version(cluster.pop("runtime_version", ""))
    if isinstance(found["runtime"], Runtime):
        found["runtime"] = replace(found["runtime"], version=version)
    return Facts(
        where=Where(reach.root, reach.uid, reach.in_pod, reach.node, clock.now()),
        daemons=own.daemons,
        config=own.config,
        plan=own.plan,
        process=processes.kubelet,
        processes=processes.names,
        users=processes.users,
        inotify=processes.inotify,
        kubelet=await in_time("kubelet's configuration", clock, lambda: kubelet.read_config(root, processes)),
        nvml=await _nvml(reach, own.config, found["pci"], clock),
        **found,
        **cluster,
    )


def _foreign(reach: Reach) -> Missing | None:
    if reach.in_pod and reach.root.rstrip("/") == "":
        return Missing(f"these files are a container's: {host.MOUNT_IT}")
    return None


def _offered_nodes(own: Own) -> frozenset[str]:
    devices: list[Any] = []
    if not isinstance(own.daemons, Missing):
        devices = [device for daemon in own.daemons for device in daemon.status.devices]
    elif not isinstance(own.plan, Missing):
        devices = list(own.plan.devices)
    return frozenset(path for device in devices for path in device.nodes)


async def _holdings(path: str) -> Holdings | Missing:
    answer = await read_holdings(Path(path), timeout_s=HOLDERS_S)
    return answer if isinstance(answer, Holdings) else Missing(answer.reason)


async def _pipes(config: Config | Missing, clock: Clock) -> Any:
    if isinstance(config, Missing):
        return config
    return await in_time("MPS", clock, lambda: runtime.read_pipes(config))


async def _nvml(reach: Reach, config: Config | Missing, pci: tuple[PciDevice, ...] | Missing, clock: Clock) -> Any:
    if isinstance(pci, Missing):
        return pci
    if not any(one.vendor == NVIDIA for one in pci):
        return Missing("there is no NVIDIA GPU on the bus")
    options = Options(driver_root_mount=_driver_root(reach), host_root=reach.root)
    if not isinstance(config, Missing):
        options = _options(config) or options
    return await in_time("NVML", clock, lambda: driver.read_nvml(options), DRIVER_S)


def _options(config: Config) -> Options | None:
    """Of the first NVIDIA backend, as far as they are right."""
    for entry in config.backends:
        if entry.get("kind") == "nvidia":
            own = {key: value for key, value in entry.items() if key not in {"kind", "name"}}
            return decoding.decode(own, Options)[0]
    return None


def _driver_root(reach: Reach) -> str:
    return DRIVER_ROOT if reach.in_pod and Path(DRIVER_ROOT).is_dir() else reach.root


def _cdi_directories(config: Config | Missing) -> tuple[str, ...]:
    if isinstance(config, Missing):
        return ()
    specs = [entry.get("cdi") for entry in config.backends]
    return tuple(str(one["directory"]) for one in specs if isinstance(one, dict) and one.get("directory"))


def _version(text: str) -> str:
    """`containerd://1.7.2` as the node's status has it."""
    return text.partition("://")[2]


async def _cluster(reach: Reach, own: Own, clock: Clock) -> dict[str, Any]:
    names = ("node", "pods", "daemon_sets", "events", "runtime_classes", "slices", "rights")
    try:
        access: Access = find_access(reach.environment, clock, kubeconfig=reach.kubeconfig, context=reach.context)
    except FairleadError as error:
        return dict.fromkeys(names, Missing(str(error)))
    if not reach.node:
        return dict.fromkeys(names, Missing("the name of this node is not known: give it with --node, or as NODE_NAME"))
    client = Client(access, clock, attempt_s=ATTEMPT_S, patience_s=0)
    try:
        return await api.read_cluster(client, reach.node, own.config)
    finally:
        await client.close()
