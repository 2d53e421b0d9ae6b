"""The one table of NVIDIA's flags: those of the device plugin, and of the programs that read the same config file.

Parsing, help, reference, config file, checks and translation read it here. What a flag alone cannot say is in
`settings.py` (values that depend on each other) and in `translate.py` (rules).
"""

from __future__ import annotations

import os
from typing import Any

from msgspec.structs import replace

from fairlead.dialects.goflags import Flag, Kind
from fairlead.dialects.invocation import CONFIG_CHOICE, HELP, common_flags, help_flags, lenient_flag

NAME = "fairlead nvidia"
KUBELET_SOCKET = "/var/lib/kubelet/device-plugins/kubelet.sock"
_KINDS = {bool: Kind.BOOL, str: Kind.TEXT, int: Kind.INT, float: Kind.FLOAT, tuple: Kind.TEXTS}


def _flag(name: str, default: Any, help_text: str, **more: Any) -> Flag:
    """A flag as most are: its kind is that of its default, and its variable has its name."""
    usual: dict[str, Any] = {"kind": _KINDS[type(default)], "env": (name.upper().replace("-", "_"),)}
    return Flag(name, default=default, help=help_text, **usual | more)


def _mount(path: str) -> str:
    """As a Go program takes it: empty is the root, and the rest is what it means from the working directory."""
    return os.path.abspath(path) if path else "/"  # noqa: PTH100 - pathlib leaves '..' in


MIG_STRATEGY = _flag(
    "mig-strategy",
    "none",
    "none, single or mixed.",
    key="flags.migStrategy",
    choices=("none", "single", "mixed"),
    refusal="unknown MIG strategy:",
    into="backend.mig",
)
FAIL_ON_INIT_ERROR = _flag(
    "fail-on-init-error",
    True,
    "End when the driver cannot be used at start; else wait for it.",
    key="flags.failOnInitError",
)
DRIVER_ROOT_CTR_PATH = _flag(
    "driver-root-ctr-path",
    "/driver-root",
    "Where the driver root is mounted in this container.",
    env=("DRIVER_ROOT_CTR_PATH", "CONTAINER_DRIVER_ROOT"),
    aliases=("container-driver-root",),
    key="flags.plugin.containerDriverRoot",
    into="backend.driverRootMount",
    convert=_mount,
)
DISCOVERY = _flag(
    "device-discovery-strategy",
    "auto",
    "auto, nvml or tegra.",
    key="flags.deviceDiscoveryStrategy",
    choices=("auto", "nvml", "tegra"),
    refusal="invalid --device-discovery-strategy option",
    into="backend.discovery",
)
CONFIG_FILE = _flag("config-file", "", "NVIDIA's config file, version v1.")

# The device plugin's.
FLAGS = (
    MIG_STRATEGY,
    FAIL_ON_INIT_ERROR,
    _flag(
        "driver-root",
        "/",
        "Where the driver is on the host.",
        env=("NVIDIA_DRIVER_ROOT",),
        aliases=("nvidia-driver-root",),
        key="flags.nvidiaDriverRoot",
        into="backend.driverRoot",
    ),
    _flag(
        "dev-root",
        "",
        "Where device nodes are on the host. Left out: the driver root.",
        env=("NVIDIA_DEV_ROOT",),
        aliases=("nvidia-dev-root",),
        key="flags.nvidiaDevRoot",
        into="backend.devRoot",
    ),
    _flag(
        "pass-device-specs",
        False,
        "Hand device nodes to the container too, for the CPU manager's sake.",
        key="flags.plugin.passDeviceSpecs",
        into="backend.nodes",
    ),
    _flag(
        "device-list-strategy",
        ("envvar",),
        "Some of envvar, volume-mounts, cdi-annotations, cdi-cri.",
        key="flags.plugin.deviceListStrategy",
        choices=("envvar", "volume-mounts", "cdi-annotations", "cdi-cri"),
        refusal="invalid --device-list-strategy option: invalid strategy:",
        into="backend.ways",
        convert=lambda strategies: list(dict.fromkeys(strategies)),
    ),
    _flag(
        "device-id-strategy",
        "uuid",
        "uuid or index: how the devices of a container are named.",
        key="flags.plugin.deviceIDStrategy",
        choices=("uuid", "index"),
        refusal="invalid --device-id-strategy option:",
        into="backend.ids",
    ),
    _flag(
        "gdrcopy-enabled", False, "Ask for GDRCopy in containers.", key="flags.gdrcopyEnabled", into="backend.gdrcopy"
    ),
    _flag("gds-enabled", False, "Ask for GPUDirect Storage in containers.", key="flags.gdsEnabled", into="backend.gds"),
    _flag("mofed-enabled", False, "Ask for MOFED in containers.", key="flags.mofedEnabled", into="backend.mofed"),
    _flag(
        "cdi-annotation-prefix",
        "cdi.k8s.io/",
        "Prefix of the annotation that names CDI devices.",
        key="flags.plugin.cdiAnnotationPrefix",
        into="backend.cdi.annotationPrefix",
    ),
    _flag(
        "nvidia-cdi-hook-path",
        "/usr/bin/nvidia-ctk",
        "The CDI hook's program on the host.",
        env=("NVIDIA_CDI_HOOK_PATH", "NVIDIA_CTK_PATH"),
        aliases=("nvidia-ctk-path",),
        key="flags.plugin.nvidiaCTKPath",
        into="backend.cdi.hook",
    ),
    DRIVER_ROOT_CTR_PATH,
    _flag("mps-root", "", "Directory of MPS on the host. Needed for MPS.", key="flags.mpsRoot"),
    _flag(
        "shared-devices-allocation-policy",
        "distributed",
        "distributed or packed: which shared GPUs are preferred.",
        key="flags.plugin.sharedDevicesAllocationPolicy",
        choices=("distributed", "packed"),
        refusal="invalid --shared-devices-allocation-policy option:",
    ),
    DISCOVERY,
    _flag(
        "imex-channel-ids",
        (),
        "IMEX channels: none, or 0.",
        kind=Kind.INTS,
        key="imex.channelIDs",
        into="backend.imex.channels",
    ),
    _flag("imex-required", False, "End when a channel is missing.", key="imex.required", into="backend.imex.required"),
    _flag(
        "kubelet-socket",
        KUBELET_SOCKET,
        "The kubelet's socket. Empty: do not register.",
        into="kubelet.socket",
        convert=lambda path: path and os.path.normpath(path),
    ),
    CONFIG_FILE,
    _flag(
        "cdi-feature-flags",
        (),
        "Features of the CDI specs.",
        choices=(
            "disable-ipc-discoverer",
            "disable-multiple-csv-devices",
            "disable-nvsandbox-utils",
            "disable-nvsandboxutils",
            "enable-coherent-annotations",
            "enable-explicit-driver-libraries",
            "no-additional-gids-for-device-nodes",
        ),
        into="backend.cdi.featureFlags",
    ),
    _flag(
        "cdi-disable-hooks",
        (),
        "CDI hooks to leave out; all: every one.",
        choices=(
            "all",
            "chmod",
            "create-symlinks",
            "disable-device-node-modification",
            "enable-cuda-compat",
            "update-application-profile",
            "update-ldcache",
        ),
        into="backend.cdi.disabledHooks",
    ),
)

# Of our own. They stand beside NVIDIA's and never in a config file.
OWN = (
    *common_flags("nvidia", "NVIDIA's plugin"),
    _flag(
        "also-whole",
        False,
        "Offer shared GPUs whole too, under their own name. The shared ones need another: renameByDefault.",
        env=("FAIRLEAD_ALSO_WHOLE",),
    ),
    *CONFIG_CHOICE,
    *help_flags(),
)

# --- The programs beside the plugin -----------------------------------------------------------------------------------

KUBECONFIG = _flag("kubeconfig", "", "How to reach the API server. Empty: as a pod does.")
HOST_ROOT = _flag("host-root", "/", "Where the host's /sys and /proc are seen.", env=("FAIRLEAD_HOST_ROOT",))
LENIENT = lenient_flag("Overlook what NVIDIA's overlooks.")


def _gfd(flag: Flag, **changes: object) -> Flag:
    """A flag of the plugin as gpu-feature-discovery has it: a variable of its own goes first."""
    return replace(flag, env=(f"GFD_{flag.env[0]}", *flag.env), **changes)


# gpu-feature-discovery's.
LABEL_FLAGS = (
    _gfd(MIG_STRATEGY),
    _gfd(
        FAIL_ON_INIT_ERROR, help="End when the driver cannot be used; else label without it, and look again each time."
    ),
    _flag("oneshot", False, "Label once, and end.", env=("GFD_ONESHOT",), key="flags.gfd.oneshot"),
    _flag(
        "no-timestamp", False, "Leave the timestamp label out.", env=("GFD_NO_TIMESTAMP",), key="flags.gfd.noTimestamp"
    ),
    _flag(
        "sleep-interval",
        60.0,
        "Time between two looks, or infinite.",
        kind=Kind.DURATION,
        env=("GFD_SLEEP_INTERVAL",),
        key="flags.gfd.sleepInterval",
    ),
    _flag(
        "output-file",
        "/etc/kubernetes/node-feature-discovery/features.d/gfd",
        "Where the labels go without the NodeFeature API. Empty: standard output.",
        env=("GFD_OUTPUT_FILE",),
        aliases=("output", "o"),
        key="flags.gfd.outputFile",
    ),
    _flag(
        "machine-type-file",
        "/sys/class/dmi/id/product_name",
        "Names the machine.",
        env=("GFD_MACHINE_TYPE_FILE",),
        key="flags.gfd.machineTypeFile",
    ),
    _gfd(CONFIG_FILE),
    _flag(
        "use-node-feature-api",
        True,
        "Write a NodeFeature object instead of a file.",
        env=("GFD_USE_NODE_FEATURE_API", "USE_NODE_FEATURE_API"),
        key="flags.useNodeFeatureAPI",
    ),
    replace(DISCOVERY, choices=(*DISCOVERY.choices, "vfio"), help="auto, nvml, tegra or vfio."),
    replace(DRIVER_ROOT_CTR_PATH, key=""),
    KUBECONFIG,
    _flag("kube-api-qps", 5.0, "Taken and not needed: one request in a look.", kind=Kind.FLOAT),
    _flag("kube-api-burst", 10, "As above."),
    _flag("namespace", "default", "Namespace of the NodeFeature object."),
    _flag("node-name", "", "The node that the labels are for."),
    _flag("pod-name", "", "Our own pod, which owns the NodeFeature object."),
)
LABEL_OWN = (
    _flag("to-node", False, "Label the node itself; needs no NFD.", env=("FAIRLEAD_LABELS_TO_NODE",)),
    HOST_ROOT,
    LENIENT,
    HELP,
)

# The mps-control-daemon's, and ours beside them.
MPS_FLAGS = (
    MIG_STRATEGY,
    CONFIG_FILE,
    LENIENT,
    _flag("mps-dir", "/mps", "Directory of pipes, logs and marks in this container.", env=("FAIRLEAD_MPS_DIR",)),
    HOST_ROOT,
    HELP,
)
