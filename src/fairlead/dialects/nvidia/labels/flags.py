"""The flags and variables of gpu-feature-discovery. Data only."""

from __future__ import annotations

from fairlead.dialects.goflags import Flag, Kind

FLAGS = (
    Flag(
        "mig-strategy",
        Kind.TEXT,
        "none",
        ("GFD_MIG_STRATEGY", "MIG_STRATEGY"),
        key="flags.migStrategy",
        help="none, single or mixed.",
    ),
    Flag(
        "fail-on-init-error",
        Kind.BOOL,
        True,
        ("GFD_FAIL_ON_INIT_ERROR", "FAIL_ON_INIT_ERROR"),
        key="flags.failOnInitError",
        help="End when the driver cannot be used; else label without it, and look again each time.",
    ),
    Flag("oneshot", Kind.BOOL, False, ("GFD_ONESHOT",), key="flags.gfd.oneshot", help="Label once, and end."),
    Flag(
        "no-timestamp",
        Kind.BOOL,
        False,
        ("GFD_NO_TIMESTAMP",),
        key="flags.gfd.noTimestamp",
        help="Leave the timestamp label out.",
    ),
    Flag(
        "sleep-interval",
        Kind.DURATION,
        60.0,
        ("GFD_SLEEP_INTERVAL",),
        key="flags.gfd.sleepInterval",
        help="Time between two looks, or infinite.",
    ),
    Flag(
        "output-file",
        Kind.TEXT,
        "/etc/kubernetes/node-feature-discovery/features.d/gfd",
        ("GFD_OUTPUT_FILE",),
        ("output", "o"),
        "flags.gfd.outputFile",
        "Where the labels go without the NodeFeature API. Empty: standard output.",
    ),
    Flag(
        "machine-type-file",
        Kind.TEXT,
        "/sys/class/dmi/id/product_name",
        ("GFD_MACHINE_TYPE_FILE",),
        key="flags.gfd.machineTypeFile",
        help="Names the machine.",
    ),
    Flag("config-file", Kind.TEXT, "", ("GFD_CONFIG_FILE", "CONFIG_FILE"), help="NVIDIA's config file, version v1."),
    Flag(
        "use-node-feature-api",
        Kind.BOOL,
        True,
        ("GFD_USE_NODE_FEATURE_API", "USE_NODE_FEATURE_API"),
        key="flags.useNodeFeatureAPI",
        help="Write a NodeFeature object instead of a file.",
    ),
    Flag(
        "device-discovery-strategy",
        Kind.TEXT,
        "auto",
        ("DEVICE_DISCOVERY_STRATEGY",),
        key="flags.deviceDiscoveryStrategy",
        help="auto, nvml, tegra or vfio.",
    ),
    Flag(
        "driver-root-ctr-path",
        Kind.TEXT,
        "/driver-root",
        ("DRIVER_ROOT_CTR_PATH", "CONTAINER_DRIVER_ROOT"),
        ("container-driver-root",),
        help="Where the driver root is mounted in this container.",
    ),
    Flag("kubeconfig", Kind.TEXT, "", ("KUBECONFIG",), help="How to reach the API server. Empty: as a pod does."),
    Flag("kube-api-qps", Kind.FLOAT, 5.0, ("KUBE_API_QPS",), help="Taken and not needed: one request in a look."),
    Flag("kube-api-burst", Kind.INT, 10, ("KUBE_API_BURST",), help="As above."),
    Flag("namespace", Kind.TEXT, "default", ("NAMESPACE",), help="Namespace of the NodeFeature object."),
    Flag("node-name", Kind.TEXT, "", ("NODE_NAME",), help="The node that the labels are for."),
    Flag("pod-name", Kind.TEXT, "", ("POD_NAME",), help="Our own pod, which owns the NodeFeature object."),
)

OWN = (
    Flag(
        "to-node",
        Kind.BOOL,
        False,
        ("FAIRLEAD_LABELS_TO_NODE",),
        help="Label the node itself; needs no NFD.",
    ),
    Flag("host-root", Kind.TEXT, "/", ("FAIRLEAD_HOST_ROOT",), help="Where the host's /sys and /proc are seen."),
    Flag("lenient", Kind.BOOL, False, ("FAIRLEAD_LENIENT",), help="Overlook what NVIDIA's overlooks."),
    Flag("help", Kind.BOOL, False, aliases=("h",), help="Print this, and end."),
)
