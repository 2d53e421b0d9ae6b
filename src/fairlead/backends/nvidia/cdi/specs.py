"""All CDI specs that a configuration asks for, made of what one look at the driver saw. Reads files, writes none."""

from __future__ import annotations

from fairlead.backends.nvidia.cdi.common import READ_ONLY, VOID, Hooks, common_edits
from fairlead.backends.nvidia.cdi.devices import Gpus, Nodes
from fairlead.backends.nvidia.cdi.driver import Driver
from fairlead.backends.nvidia.records import Kind, Look
from fairlead.backends.nvidia.site import (
    ADDED,
    CONTROL_NODES,
    IMEX_NODE,
    ReadNode,
    Site,
    below,
    dev_mount,
    find_nodes,
    read_node,
)
from fairlead.backends.nvidia.spec import Mig, Options
from fairlead.inject import cdi
from fairlead.model.errors import BackendError

CLASSES = ("gpu", "imex-channel", *ADDED)


def wanted_classes(options: Options) -> tuple[str, ...]:
    """The classes whose specs the configuration needs; what else is there of ours may go."""
    if not any(way.cdi for way in options.ways):
        return ()
    return (
        "gpu",
        *(["imex-channel"] if options.imex.channels else []),
        *(name for name in ADDED if getattr(options, name)),
    )


def make_specs(options: Options, look: Look, site: Site, read: ReadNode = read_node) -> tuple[cdi.Spec, ...]:
    """Those that have devices: a spec without any is refused by every runtime."""
    if not wanted_classes(options):
        return ()
    if look.kind is not Kind.NVML:
        raise BackendError(
            f"CDI needs a driver with NVML, and this is a {look.kind} machine. Use envvar or volume-mounts instead"
        )
    mount = dev_mount(options)
    # What is below the driver's own root here is below it on the host as well.
    host = options.driver_root if mount == options.driver_root_mount else options.dev_root or options.driver_root
    flags = frozenset(options.cdi.feature_flags)
    nodes = Nodes(mount, host, read, gids="no-additional-gids-for-device-nodes" not in flags)
    return tuple(
        spec
        for spec in (
            _gpu_spec(options, look, nodes),
            _imex_spec(options, site, nodes),
            *(_added_spec(options, name, nodes) for name in site.added),
        )
        if spec.devices
    )


def _gpu_spec(options: Options, look: Look, nodes: Nodes) -> cdi.Spec:
    flags = frozenset(options.cdi.feature_flags)
    hooks = Hooks(options.cdi.hook, options.cdi.disabled_hooks)
    coherent = "enable-coherent-annotations" in flags
    whole, together = options.mig is Mig.NONE, options.cdi.all
    gpus = Gpus(nodes, hooks, options.host_root, options.ids, whole, coherent=coherent, together=together)
    kind = f"{options.cdi.vendor}/gpu"
    # Also those that are lost just now: containers that have them may be started again. Each id once.
    found = {gpu.uuid: gpu for gpu in (*look.lost, *look.gpus)}
    devices = gpus.devices(sorted(found.values(), key=lambda gpu: gpu.index))
    if not devices:
        return cdi.Spec(kind=kind, devices=(), container_edits=cdi.ContainerEdits())
    driver = Driver(options.driver_root_mount, look.driver_version, options.host_root, look.library)
    edits = common_edits(
        driver,
        options.driver_root,
        hooks,
        explicit="enable-explicit-driver-libraries" in flags,
        sockets="disable-ipc-discoverer" not in flags,
    )
    return cdi.Spec(kind=kind, devices=devices, container_edits=cdi.join([edits, nodes.edits(CONTROL_NODES)]))


def _imex_spec(options: Options, site: Site, nodes: Nodes) -> cdi.Spec:
    host = nodes.host_root.rstrip("/")
    devices = tuple(
        cdi.Device(
            name=str(channel),
            container_edits=cdi.ContainerEdits(device_nodes=(cdi.Node(path, host + path if host else ""),)),
        )
        for channel in site.imex_channels
        for path in [IMEX_NODE.format(channel)]
    )
    kind = f"{options.cdi.vendor}/imex-channel"
    return cdi.Spec(kind=kind, devices=devices, container_edits=cdi.ContainerEdits())


def _added_spec(options: Options, name: str, nodes: Nodes) -> cdi.Spec:
    paths = [path for path, _ in find_nodes(nodes.mount, ADDED[name], nodes.read)]
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
