"""What a container gets for its NVIDIA devices: pure, from the options, the site and the grant."""

from __future__ import annotations

from fairlead.backends.nvidia.site import IMEX_NODE, Site, wanted
from fairlead.backends.nvidia.spec import Ids, Options, Way
from fairlead.model.device import DeviceNode
from fairlead.model.edits import Edits, Grant, Mount

VISIBLE = "NVIDIA_VISIBLE_DEVICES"
IMEX = "NVIDIA_IMEX_CHANNELS"
MOUNTED = "/var/run/nvidia-container-devices"  # files of this directory are names of devices
PLUGIN = "nvidia-device-plugin"  # in annotations: what runtimes and people know it by


class Tailor:
    """Makes edits by the same options. What follows from these alone is worked out once: a kubelet waits for it."""

    def __init__(self, options: Options) -> None:
        self._options = options
        ways = options.ways
        self._by_uuid = options.ids is Ids.UUID
        self._env = {f"NVIDIA_{name.upper()}": "enabled" for name in wanted(options)}
        self._cdi, self._only_cdi = any(way.cdi for way in ways), all(way.cdi for way in ways)
        self._annotates, self._requests = Way.CDI_ANNOTATIONS in ways, Way.CDI_CRI in ways
        self._sets_env, self._mounts = Way.ENVVAR in ways, Way.VOLUME_MOUNTS in ways

    def edits(self, site: Site, grant: Grant) -> Edits:
        options, env = self._options, self._env.copy()
        ids = tuple(dict.fromkeys([device.id if self._by_uuid else device.index for device in grant.devices]))
        names = _cdi_names(options, site, ids) if self._cdi else ()
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
            if site.imex_channels:
                env[IMEX] = ",".join(map(str, site.imex_channels))
        if self._mounts:
            env[VISIBLE] = MOUNTED
            files = (*ids, *(f"imex/{channel}" for channel in site.imex_channels))
            mounts = tuple(Mount("/dev/null", f"{MOUNTED}/{file}", read_only=False) for file in files)
        return Edits(env, _nodes(options, site, grant) if options.nodes else (), mounts, annotations, requested)


def _cdi_names(options: Options, site: Site, ids: tuple[str, ...]) -> tuple[str, ...]:
    from fairlead.inject import cdi  # noqa: PLC0415 - loaded by whoever writes specs, and most nodes have none

    vendor = options.cdi.vendor
    return (
        *(cdi.qualify(f"{vendor}/gpu", cdi.device_name(id_)) for id_ in ids),
        *(cdi.qualify(f"{vendor}/imex-channel", str(channel)) for channel in site.imex_channels),
        *(cdi.qualify(f"{vendor}/{name}", "all") for name in site.added),
    )


def _nodes(options: Options, site: Site, grant: Grant) -> tuple[DeviceNode, ...]:
    paths = (
        *site.control_nodes,
        *(node.path for device in grant.devices for node in device.nodes),
        *(IMEX_NODE.format(channel) for channel in site.imex_channels),
    )
    root = (options.dev_root or options.driver_root).rstrip("/")
    return tuple(DeviceNode(root + path, path if root else "") for path in dict.fromkeys(paths))
