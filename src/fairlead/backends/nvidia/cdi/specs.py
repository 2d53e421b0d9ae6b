"""All CDI specs that a configuration asks for, made of what one look at the driver saw. Reads files, writes none."""

from __future__ import annotations

from fairlead.backends.nvidia.cdi.common import READ_ONLY, VOID, Hooks, common_edits
from fairlead.backends.nvidia.cdi.devices import Gpus, Nodes
from fairlead.backends.nvidia.cdi.driverfiles import DriverFiles
from fairlead.backends.nvidia.hostnodes import (
    CONTROL_NODES,
    FEATURE_NODES,
    IMEX_NODE,
    HostNodes,
    ReadNode,
    below,
    dev_mount,
    find_nodes,
    read_node,
)
from fairlead.backends.nvidia.snapshot import Platform, Snapshot
from fairlead.backends.nvidia.spec import MigStrategy, Options
from fairlead.inject import cdi
from fairlead.model.errors import BackendError

CLASSES = ("gpu", "imex-channel", *FEATURE_NODES)


def wanted_classes(options: Options) -> tuple[str, ...]:
    """The classes whose specs the configuration needs; what else is there of ours may go."""
    if not any(way.cdi for way in options.ways):
        return ()
    return (
        "gpu",
        *(["imex-channel"] if options.imex.channels else []),
        *(name for name in FEATURE_NODES if getattr(options, name)),
    )


def make_specs(
    options: Options, snapshot: Snapshot, host_nodes: HostNodes, read: ReadNode = read_node
) -> tuple[cdi.Spec, ...]:
    """Those that have devices: a spec without any is refused by every runtime."""
    if not wanted_classes(options):
        return ()
    if snapshot.platform is not Platform.NVML:
        raise BackendError(
            f"CDI needs a driver with NVML, and this is a {snapshot.platform} machine. Use envvar or volume-mounts"
        )
    mount = dev_mount(options)
    # What is below the driver's own root here is below it on the host as well.
    host = options.driver_root if mount == options.driver_root_mount else options.dev_root or options.driver_root
    flags = frozenset(options.cdi.feature_flags)
    nodes = Nodes(mount, host, read, gids="no-additional-gids-for-device-nodes" not in flags)
    return tuple(
        spec
        for spec in (
            _gpu_spec(options, snapshot, nodes),
            _imex_spec(options, host_nodes, nodes),
            *(_feature_spec(options, name, nodes) for name in host_nodes.features),
        )
        if spec.devices
    )


def _gpu_spec(options: Options, snapshot: Snapshot, nodes: Nodes) -> cdi.Spec:
    flags = frozenset(options.cdi.feature_flags)
    hooks = Hooks(options.cdi.hook, options.cdi.disabled_hooks)
    coherent = "enable-coherent-annotations" in flags
    whole, together = options.mig is MigStrategy.NONE, options.cdi.all
    gpus = Gpus(nodes, hooks, options.host_root, options.ids, whole, coherent=coherent, together=together)
    kind = f"{options.cdi.vendor}/gpu"
    # Also those that are lost just now: containers that have them may be started again. Each id once.
    found = {gpu.uuid: gpu for gpu in (*snapshot.lost, *snapshot.gpus)}
    devices = gpus.devices(sorted(found.values(), key=lambda gpu: gpu.index))
    if not devices:
        return cdi.Spec(kind=kind, devices=(), container_edits=cdi.ContainerEdits())
    driver = DriverFiles(options.driver_root_mount, snapshot.driver_version, options.host_root, snapshot.library)
    edits = common_edits(
        driver,
        options.driver_root,
        hooks,
        explicit="enable-explicit-driver-libraries" in flags,
        sockets="disable-ipc-discoverer" not in flags,
    )
    return cdi.Spec(kind=kind, devices=devices, container_edits=cdi.join([edits, nodes.edits(CONTROL_NODES)]))


def _imex_spec(options: Options, host_nodes: HostNodes, nodes: Nodes) -> cdi.Spec:
    host = nodes.host_root.rstrip("/")
    devices = tuple(
        cdi.Device(
            name=str(channel),
            container_edits=cdi.ContainerEdits(device_nodes=(cdi.Node(path, host + path if host else ""),)),
        )
        for channel in host_nodes.imex_channels
        for path in [IMEX_NODE.format(channel)]
    )
    kind = f"{options.cdi.vendor}/imex-channel"
    return cdi.Spec(kind=kind, devices=devices, container_edits=cdi.ContainerEdits())


def _feature_spec(options: Options, name: str, nodes: Nodes) -> cdi.Spec:
    paths = [path for path, _ in find_nodes(nodes.mount, FEATURE_NODES[name], nodes.read)]
    edits = [nodes.edits(paths)]
    if paths and name == "gds":
        root = options.driver_root.rstrip("/")
        files = ("/run/udev", "/etc/cufile.json")
        there = [path for path in files if below(options.driver_root_mount, path).exists()]
        edits.append(cdi.ContainerEdits(mounts=tuple(cdi.Mount(root + path, path, READ_ONLY) for path in there)))
    joined = cdi.join(edits)
    return cdi.Spec(
        kind=f"{options.cdi.vendor}/{name}",
        devices=(cdi.Device(name="all", container_edits=joined),) if joined else (),
        container_edits=cdi.ContainerEdits(env=(VOID,)),
    )
