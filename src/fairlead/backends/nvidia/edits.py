"""What a container gets for its NVIDIA devices: pure, from the options, the site and the grant."""

from __future__ import annotations

from fairlead.backends.nvidia.hostnodes import IMEX_NODE, HostNodes, enabled_features
from fairlead.backends.nvidia.spec import DeviceListStrategy, Ids, Options
from fairlead.model.device import DeviceNode
from fairlead.model.edits import Edits, Grant, Mount

VISIBLE = "NVIDIA_VISIBLE_DEVICES"
IMEX = "NVIDIA_IMEX_CHANNELS"
MOUNTED = "/var/run/nvidia-container-devices"  # files of this directory are names of devices
MIB = 2**20
PLUGIN = "nvidia-device-plugin"  # in annotations: what runtimes and people know it by


class EditsBuilder:
    """Makes edits by the same options. What follows from these alone is worked out once: a kubelet waits for it."""

    def __init__(self, options: Options) -> None:
        self._options = options
        ways = options.ways
        self._by_uuid = options.ids is Ids.UUID
        self._env = {f"NVIDIA_{name.upper()}": "enabled" for name in enabled_features(options)}
        self._cdi, self._only_cdi = any(way.cdi for way in ways), ways != () and all(way.cdi for way in ways)
        self._annotates, self._requests = DeviceListStrategy.CDI_ANNOTATIONS in ways, DeviceListStrategy.CDI_CRI in ways
        self._sets_env, self._mounts = DeviceListStrategy.ENVVAR in ways, DeviceListStrategy.VOLUME_MOUNTS in ways

    def edits(self, host_nodes: HostNodes, grant: Grant) -> Edits:
        options, env = self._options, self._env.copy()
        ids = tuple(dict.fromkeys([device.id if self._by_uuid else device.index for device in grant.devices]))
        names = _cdi_names(options, host_nodes, ids) if self._cdi else ()
        annotations = {}
        if names and self._annotates:
            from fairlead.inject import cdi  # noqa: PLC0415 - as below

            key = cdi.annotation_key(PLUGIN, grant.resource, options.cdi.annotation_prefix)
            annotations[key] = ",".join(names)
        requested = names if self._requests else ()
        if self._only_cdi:
            # The spec has all the nodes; others beside them would be set twice.
            return Edits(env, annotations=annotations, cdi=requested)
        mounts: tuple[Mount, ...] = ()
        if self._sets_env:
            env[VISIBLE] = ",".join(ids)
            if host_nodes.imex_channels:
                env[IMEX] = ",".join(map(str, host_nodes.imex_channels))
        if options.mps.clients:
            env |= _mps_limits(options.mps.clients, grant)
        if self._mounts:
            env[VISIBLE] = MOUNTED
            files = (*ids, *(f"imex/{channel}" for channel in host_nodes.imex_channels))
            mounts = tuple(Mount("/dev/null", f"{MOUNTED}/{file}", read_only=False) for file in files)
        return Edits(env, _nodes(options, host_nodes, grant) if options.nodes else (), mounts, annotations, requested)


def _cdi_names(options: Options, host_nodes: HostNodes, ids: tuple[str, ...]) -> tuple[str, ...]:
    from fairlead.inject import cdi  # noqa: PLC0415 - most nodes have no CDI specs

    vendor = options.cdi.vendor
    return (
        *(cdi.qualify(f"{vendor}/gpu", cdi.device_name(id_)) for id_ in ids),
        *(cdi.qualify(f"{vendor}/imex-channel", str(channel)) for channel in host_nodes.imex_channels),
        *(cdi.qualify(f"{vendor}/{name}", "all") for name in host_nodes.features),
    )


def _nodes(options: Options, host_nodes: HostNodes, grant: Grant) -> tuple[DeviceNode, ...]:
    paths = (
        *host_nodes.control_nodes,
        *(node.path for device in grant.devices for node in device.nodes),
        *(IMEX_NODE.format(channel) for channel in host_nodes.imex_channels),
    )
    root = (options.dev_root or options.driver_root).rstrip("/")
    return tuple(DeviceNode(root + path, path if root else "", options.permissions) for path in dict.fromkeys(paths))


def _mps_limits(clients: int, grant: Grant) -> dict[str, str]:
    """A share of the GPU for each slot. The limit of memory is that of the first device that a program sees."""
    slots = len(grant.slots)
    limits = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(slots * 100 // clients)}
    if grant.devices and (memory_bytes := grant.devices[0].memory_bytes):
        limits["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = f"0={slots * memory_bytes // clients // MIB}M"
    return limits
