"""The flags and variables of NVIDIA's device plugin. Data only."""

from __future__ import annotations

from fairlead.dialects.goflags import Flag, Kind
from fairlead.dialects.order import last_flags, own_flags

PROGRAM = "fairlead nvidia"
KUBELET_SOCKET = "/var/lib/kubelet/device-plugins/kubelet.sock"

MIG_STRATEGY = Flag(
    "mig-strategy", Kind.TEXT, "none", ("MIG_STRATEGY",), key="flags.migStrategy", help="none, single or mixed."
)
CONFIG_FILE = Flag("config-file", Kind.TEXT, "", ("CONFIG_FILE",), help="NVIDIA's config file, version v1.")

FLAGS = (
    MIG_STRATEGY,
    Flag(
        "fail-on-init-error",
        Kind.BOOL,
        True,
        ("FAIL_ON_INIT_ERROR",),
        key="flags.failOnInitError",
        help="End when the driver cannot be used at start; else wait for it.",
    ),
    Flag(
        "driver-root",
        Kind.TEXT,
        "/",
        ("NVIDIA_DRIVER_ROOT",),
        ("nvidia-driver-root",),
        "flags.nvidiaDriverRoot",
        "Where the driver is on the host.",
    ),
    Flag(
        "dev-root",
        Kind.TEXT,
        "",
        ("NVIDIA_DEV_ROOT",),
        ("nvidia-dev-root",),
        "flags.nvidiaDevRoot",
        "Where device nodes are on the host. Left out: the driver root.",
    ),
    Flag(
        "pass-device-specs",
        Kind.BOOL,
        False,
        ("PASS_DEVICE_SPECS",),
        key="flags.plugin.passDeviceSpecs",
        help="Hand device nodes to the container too, for the CPU manager's sake.",
    ),
    Flag(
        "device-list-strategy",
        Kind.TEXTS,
        ("envvar",),
        ("DEVICE_LIST_STRATEGY",),
        key="flags.plugin.deviceListStrategy",
        help="Some of envvar, volume-mounts, cdi-annotations, cdi-cri.",
    ),
    Flag(
        "device-id-strategy",
        Kind.TEXT,
        "uuid",
        ("DEVICE_ID_STRATEGY",),
        key="flags.plugin.deviceIDStrategy",
        help="uuid or index: how a container is told its devices.",
    ),
    Flag(
        "gdrcopy-enabled",
        Kind.BOOL,
        False,
        ("GDRCOPY_ENABLED",),
        key="flags.gdrcopyEnabled",
        help="Ask for GDRCopy in containers.",
    ),
    Flag(
        "gds-enabled",
        Kind.BOOL,
        False,
        ("GDS_ENABLED",),
        key="flags.gdsEnabled",
        help="Ask for GPUDirect Storage in containers.",
    ),
    Flag(
        "mofed-enabled",
        Kind.BOOL,
        False,
        ("MOFED_ENABLED",),
        key="flags.mofedEnabled",
        help="Ask for MOFED in containers.",
    ),
    Flag(
        "cdi-annotation-prefix",
        Kind.TEXT,
        "cdi.k8s.io/",
        ("CDI_ANNOTATION_PREFIX",),
        key="flags.plugin.cdiAnnotationPrefix",
        help="Prefix of the annotation that names CDI devices.",
    ),
    Flag(
        "nvidia-cdi-hook-path",
        Kind.TEXT,
        "/usr/bin/nvidia-ctk",
        ("NVIDIA_CDI_HOOK_PATH", "NVIDIA_CTK_PATH"),
        ("nvidia-ctk-path",),
        "flags.plugin.nvidiaCTKPath",
        "The CDI hook's program on the host.",
    ),
    Flag(
        "driver-root-ctr-path",
        Kind.TEXT,
        "/driver-root",
        ("DRIVER_ROOT_CTR_PATH", "CONTAINER_DRIVER_ROOT"),
        ("container-driver-root",),
        "flags.plugin.containerDriverRoot",
        "Where the driver root is mounted in this container.",
    ),
    Flag(
        "mps-root",
        Kind.TEXT,
        None,
        ("MPS_ROOT",),
        key="flags.mpsRoot",
        help="Directory of MPS on the host. Needed for MPS.",
    ),
    Flag(
        "shared-devices-allocation-policy",
        Kind.TEXT,
        "distributed",
        ("SHARED_DEVICES_ALLOCATION_POLICY",),
        key="flags.plugin.sharedDevicesAllocationPolicy",
        help="distributed or packed: which shared GPUs are preferred.",
    ),
    Flag(
        "device-discovery-strategy",
        Kind.TEXT,
        "auto",
        ("DEVICE_DISCOVERY_STRATEGY",),
        key="flags.deviceDiscoveryStrategy",
        help="auto, nvml or tegra.",
    ),
    Flag(
        "imex-channel-ids",
        Kind.INTS,
        None,
        ("IMEX_CHANNEL_IDS",),
        key="imex.channelIDs",
        help="IMEX channels: none, or 0.",
    ),
    Flag(
        "imex-required",
        Kind.BOOL,
        False,
        ("IMEX_REQUIRED",),
        key="imex.required",
        help="End when a channel is missing.",
    ),
    Flag(
        "kubelet-socket",
        Kind.TEXT,
        KUBELET_SOCKET,
        ("KUBELET_SOCKET",),
        help="The kubelet's socket. Empty: do not register.",
    ),
    CONFIG_FILE,
    Flag("cdi-feature-flags", Kind.TEXTS, (), ("CDI_FEATURE_FLAGS",), help="Features of the CDI specs."),
    Flag("cdi-disable-hooks", Kind.TEXTS, (), ("CDI_DISABLE_HOOKS",), help="CDI hooks to leave out; all: every one."),
)

# Of our own. They stand beside NVIDIA's and never in a config file.
OWN = (
    *own_flags("nvidia", "NVIDIA's plugin"),
    Flag(
        "also-whole",
        Kind.BOOL,
        False,
        ("FAIRLEAD_ALSO_WHOLE",),
        help="Offer shared GPUs whole too, under their own name. The shared ones need another: renameByDefault.",
    ),
    *last_flags(),
)
