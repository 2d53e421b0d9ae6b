"""Where ours answers otherwise than NVIDIA's plugin, on purpose. The guide has this table; a test compares."""

from __future__ import annotations

DIFFERENCES = {
    "allocate-twice": (
        "A request that names a device twice is refused: the kubelet never makes one, and NVIDIA's counts it as one."
    ),
    "allocate-nothing": (
        "A request without a device or a container is refused; NVIDIA's starts a container without a GPU. "
    ),
    "allocate-order": (
        "Devices are named in the order of their index; NVIDIA's keeps the order of the request, which is random."
    ),
    "annotation-key": (
        "The key of the CDI annotation is made from the resource; NVIDIA's holds a new random UUID each time."
    ),
    "device-once": "A device node is named once; NVIDIA's repeats it for each replica of a GPU.",
    "mps-only-shared": (
        "MPS variables and mounts are for what is shared by MPS; NVIDIA's adds them to every resource. "
    ),
    "mig-none-cdi": "Whole GPUs with MIG on have a CDI device too; NVIDIA's names one that is not in its spec.",
    "no-strategy": "An empty deviceListStrategy is refused unless --lenient; NVIDIA's containers get nothing.",
    "prefer-crash": (
        "Requests that end NVIDIA's process (a duplicate id, a padded group, one-sided links) get an answer. "
    ),
    "prefer-error": (
        "A preference is never an error: the kubelet would refuse the pod. What cannot be met gets an empty answer."
    ),
    "prefer-tie": (
        "Of sets that are worth as much to the node ours is always the same, and at most a fifth weaker than the "
        "strongest; NVIDIA's depends on the random order of the request. "
    ),
    "prefer-spread": "Between equally used GPUs ours takes those with the best links; NVIDIA's takes any.",
    "prefer-pack": (
        "Packing opens no idle GPU while others have room, then takes the fewest GPUs, and MIG instances of one GPU; "
        "NVIDIA's fills the most used GPU first."
    ),
    "prefer-unmet": "must_include beyond the size, or not available, gets an empty answer; NVIDIA's repeats the ids.",
    "prefer-large": "With 14 GPUs or more NVIDIA's own search overwrites its best answer; ours is exact.",
    "mig-own-name": (
        "Compute instances smaller than their GPU instance, and newer profiles, are offered by name; NVIDIA's exits."
    ),
    "one-gpu-fails": "A GPU that fails a call is reported and left out; NVIDIA's exits.",
    "same-uuid": "Two GPUs with one UUID are one device, as with NVIDIA's, and are reported.",
    "mps-waits": "Until MPS answers nothing is offered, and it is asked again at once; NVIDIA's tries every 30 s.",
    "driver-late": (
        "Without a driver --fail-on-init-error=false waits for it; NVIDIA's never looks again. CDI makes no difference."
    ),
    "no-gpu-waits": "Without a GPU ours looks for one again and again; NVIDIA's never does, and exits if CDI is used.",
    "fault-every-slot": "A fault reaches every replica of its GPU; NVIDIA's withdraws one of them, any one.",
    "fault-instance": (
        "A fault reaches the MIG instance that it names, or all of its GPU; NVIDIA's reports one per GPU, any one."
    ),
    "ecc-counts": "A double-bit ECC error withdraws the GPU; NVIDIA's receives and ignores it.",
    "event-error": "When the wait for events fails every GPU is asked how it is; NVIDIA's withdraws them all.",
    "no-events": (
        "A GPU that reports no events, or whose events cannot be asked for, is offered, probed and reported: probes "
        "find what events would have. NVIDIA's says nothing of the first and withdraws the second."
    ),
    "xid-enabled": (
        "DP_DISABLE_HEALTHCHECKS=all with DP_ENABLE_HEALTHCHECKS=79 watches XID 79; NVIDIA's watches nothing."
    ),
    "list-once": "A list is sent when it says something new; NVIDIA's repeats it for each fault.",
    "every-stream": (
        "Every stream begins with the current list and gets every change; NVIDIA's sends each fault to one stream only."
    ),
    "unhealthy-refused": "A device that is unhealthy is not handed out; NVIDIA's starts the container with it.",
    "comes-back": "A GPU comes back when its fault is over, after a reset where only that cures it; NVIDIA's needs a "
    "restart or SIGHUP, whatever the GPU has.",
    "sighup-differs": (
        "SIGHUP changes what differs, and no health; NVIDIA's starts everything anew, with all GPUs healthy."
    ),
    "config-kept": "A bad config file at SIGHUP is reported, and the old one stays in force; NVIDIA's exits.",
    "gpus-gone": (
        "GPUs that leave are seen without SIGHUP and stay listed, unhealthy, while a pod may hold them; "
        "NVIDIA's drops them at SIGHUP."
    ),
    "socket-back": "A removed socket is made again and registered; NVIDIA's does not notice.",
    "kubelet-late": (
        "A kubelet that is missing or refuses is asked again within seconds, by each resource for itself; NVIDIA's "
        "takes all sockets away for 30 s, and exits where the directory is missing."
    ),
    "kubelet-path": "A relative --kubelet-socket is refused; NVIDIA's tries it for ever.",
    "mps-path": "A relative --mps-root is refused; NVIDIA's serves, and no runtime takes the mount.",
    "numa-file": (
        "A numa_node file that holds no number of a node is reported, and the GPU has no NUMA node; NVIDIA's exits, or "
        "passes a number of any size on to the kubelet."
    ),
    "lock-files": (
        "The kubelet's directory also has .fairlead-nvidia.lock and a lock for each socket (.nvidia-gpu.sock.lock), so "
        "that two plugins do not fight; and .fairlead-nvidia.inventory, what it found. They stay when it ends; the "
        "kubelet ignores them."
    ),
    "stream-end": (
        "When it ends, ListAndWatch ends with OK; NVIDIA's breaks the connection (UNAVAILABLE). The kubelet does the "
        "same after both."
    ),
    "pre-start": (
        "PreStartContainer refuses ids that are not in the list; NVIDIA's takes any. No kubelet asks: the options say "
        "that it is not required."
    ),
    "error-texts": (
        "Errors have sentences and codes of their own (INVALID_ARGUMENT, FAILED_PRECONDITION); NVIDIA's code is always "
        "UNKNOWN. The kubelet copies the text into the pod's status and reads neither."
    ),
}

# Of `fairlead nvidia labels`, from gpu-feature-discovery.
LABEL_DIFFERENCES = {
    "models": "Of several GPU models the most numerous is labelled; gpu-feature-discovery takes one by chance.",
    "cut": "A value over 63 characters is cut; Kubernetes would refuse it.",
    "thor": "Compute capability 11 is of the family blackwell; gpu-feature-discovery says undefined.",
    "mode": (
        "The PCI class is known without a numa_node file, and any other class is unknown; gpu-feature-discovery says "
        "unknown without the file, and crashes if a class is neither 0x0300 nor 0x0302."
    ),
    "one-fails": (
        "A GPU that fails a call costs its own labels only; gpu-feature-discovery exits, or leaves a value out."
    ),
    "driver-late": (
        "Without a driver --fail-on-init-error=false looks again each time; gpu-feature-discovery does so after SIGHUP "
        "only."
    ),
    "directory": "A missing directory of --output-file is made; gpu-feature-discovery exits.",
    "conflict": "A NodeFeature object that changed meanwhile is written again; gpu-feature-discovery exits with 409.",
    "own-names": "Names and devices that NVIDIA's programs read and drop are in force, unless --lenient is given.",
}
