"""The table of the flags of Google's plugin, with those of glog, and ours."""

from __future__ import annotations

from fairlead.dialects.goflags import Flag, Kind
from fairlead.dialects.gpus import KUBECONFIG, NODE_NAME
from fairlead.dialects.invocation import common_flags, help_flags

WHOSE = "Google's plugin"
HOST_PATH, CONTAINER_PATH = "host-path", "container-path"
HOST_VULKAN, CONTAINER_VULKAN = "host-vulkan-icd-path", "container-vulkan-icd-path"
HEALTH, PUBLISH = "enable-health-monitoring", "publish-driver-version"
GPU_CONFIG, DIVISOR_FILE = "gpu-config", "gpu-fraction-divisor-file"
METRICS, METRICS_PORT, METRICS_INTERVAL = (
    "enable-container-gpu-metrics",
    "gpu-metrics-port",
    "gpu-metrics-collection-interval",
)
DISCOVERY, METADATA, NODE = "discovery", "metadata-server", "node-name"
DRIVER_ROOT, HOST_ROOT, MPS_CONTROL = "driver-root", "host-root", "mps-control"

FLAGS = (
    Flag(HOST_PATH, Kind.TEXT, "/home/kubernetes/bin/nvidia", help="Directory of the driver, on the host."),
    Flag(CONTAINER_PATH, Kind.TEXT, "/usr/local/nvidia", help="Where containers find it."),
    Flag(
        HOST_VULKAN,
        Kind.TEXT,
        "/home/kubernetes/bin/nvidia/vulkan/icd.d",
        help="Directory of Vulkan's ICD files, on the host.",
    ),
    Flag(CONTAINER_VULKAN, Kind.TEXT, "/etc/vulkan/icd.d", help="Where containers find them."),
    Flag(
        "plugin-directory",
        Kind.TEXT,
        "/device-plugin",
        ("FAIRLEAD_PLUGIN_DIR",),
        ("plugin-dir",),
        into="kubelet.directory",
        always=True,
        help="The kubelet's device-plugin directory, as this container sees it.",
    ),
    Flag(METRICS, Kind.BOOL, False, help="Serve metrics of GPUs and of the containers that have them, at /metrics."),
    Flag(METRICS_PORT, Kind.INT, 2112, help="The port of metrics."),
    Flag(METRICS_INTERVAL, Kind.INT, 30000, help="No effect: GPUs are asked when metrics are, every 5 s at most."),
    Flag(
        HEALTH,
        Kind.BOOL,
        False,
        help="Watch the health of GPUs, and tell of XIDs on the Node: a condition and events.",
    ),
    Flag(GPU_CONFIG, Kind.TEXT, "/etc/nvidia/gpu_config.json", help="The GPU config file: partitions and sharing."),
    Flag(DIVISOR_FILE, Kind.TEXT, "/etc/nvidia/gpu-fraction-divisor.txt", help="How many VMs share a GPU."),
    Flag(PUBLISH, Kind.BOOL, False, help="Write the version of the driver into annotations of the Node."),
)
OWN = (
    *(flag for flag in common_flags("gke", WHOSE) if flag.name != "plugin-dir"),
    Flag(
        DISCOVERY,
        Kind.TEXT,
        "any",
        ("FAIRLEAD_DISCOVERY",),
        choices=("any", "nvml", "nodes"),
        into="backend.discovery",
        always=True,
        help="nvml: GPUs by NVML. nodes: by /dev/nvidia* alone, without health. any: by NVML if its library is found.",
    ),
    Flag(NODE, Kind.TEXT, "", (NODE_NAME,), help="Name of this Node. Left out: the metadata server is asked."),
    Flag(
        METADATA,
        Kind.TEXT,
        "metadata.google.internal",
        ("GCE_METADATA_HOST",),
        help="Metadata server that knows the name of the Node. Asked only where no name is given and one is needed.",
    ),
    Flag(
        DRIVER_ROOT,
        Kind.TEXT,
        "/usr/local/nvidia",
        ("FAIRLEAD_DRIVER_ROOT",),
        into="backend.driverRootMount",
        always=True,
        help="Directory of the driver, as this container sees it.",
    ),
    Flag(
        HOST_ROOT,
        Kind.TEXT,
        "/",
        ("FAIRLEAD_HOST_ROOT",),
        into="backend.hostRoot",
        help="Below it are /dev, /proc and /sys of the host, as this container sees them.",
    ),
    Flag(
        "dev-root",
        Kind.TEXT,
        "",
        ("FAIRLEAD_DEV_ROOT",),
        into="backend.devRoot",
        help="Below it is /dev with the nodes that containers get, on the host. Left out: /.",
    ),
    Flag(
        MPS_CONTROL,
        Kind.TEXT,
        "/usr/local/nvidia/bin/nvidia-cuda-mps-control",
        ("FAIRLEAD_MPS_CONTROL",),
        help="With MPS: the program that asks its control daemon how it is.",
    ),
    KUBECONFIG,
    *help_flags(),
)
