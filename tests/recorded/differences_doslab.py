"""Where ours answers otherwise than kube-device-plugin-mini, on purpose. The guide has this table; a test compares."""

from __future__ import annotations

from typing import Any

from tests.recorded.outcome import Difference, Differences, Place, Says

ZERO, ONE = "GPU-1a2b3c40-0000-4000-8000-000000000000", "GPU-1a2b3c41-0000-4000-8000-000000000001"
SERVED = "003 010 011 014 015 018 019 020 021 030 031 032 034 037 038 039 041 042 043 050 052 053 061 068 080 081"
TWO_CARDS = "003 010 011 014 015 018 019 020 021 030 031 032 034 037 038 039 041 042 043 050 052 053 080"
ONE_CARD = "061 066 067 068 069 073 074 081"
REGISTERED = ["doslab.io/gpu-memory", "doslab.sock", "v1beta1"]
LISTED = {
    "asked for a preference": True,
    "called before a start": False,
    "list count": 16384,
    "list bytes": 496794,
    "list ids": "0a33640260761bae8c9ffaa5c6bc82775124637e05cd3933d9893a8fbfd86218",
    "list health": {"Healthy": 16384},
    "list topology": {"none": 16384},
}


def env(answer: int, pod: str, gpu: str, units: int, of_pod: int) -> dict[str, Any]:
    """The whole of what a container is given."""
    given = {
        "DOSLAB_IO_GPU_RESOURCE_TOTAL": "32768",
        "DOSLAB_IO_GPU_RESOURCE_USED_BY_CONTAINER": str(units),
        "DOSLAB_IO_GPU_RESOURCE_USED_BY_POD": str(of_pod),
        "DOSLAB_IO_GPU_UUID": gpu,
        "LD_PRELOAD": "/kubeshare/library/libgemhook.so.1",
        "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
        "NVIDIA_VISIBLE_DEVICES": gpu,
        "POD_MANAGER_IP": "10.0.0.9",
        "POD_MANAGER_PORT": "50051",
        "POD_NAME": pod,
    }
    return {f"answer {answer}": "ok", **{f"answer {answer} {name}": text for name, text in given.items()}}


def amounts(cards: int, *places: str) -> dict[str, Any]:
    numbers = {"doslab.io/gpu-core": str(100 * cards), "doslab.io/gpu-count": str(cards)}
    parts = [f"{place} {part}" for place in places for part in ("capacity", "allocatable")]
    return {f"{part} {name}": number for part in parts for name, number in numbers.items()}


def refused(words: str, pod: str = "p1") -> dict[str, Any]:
    return {"answer 0": Says(words), f"pod default/{pod} doslab.io/gpu-assigned": "false"}


DIFFERENCES: Differences = {
    "preference": Difference(
        "The daemon prefers units of the GPU that is assigned to the pod, so the kubelet records the right ones; "
        "theirs offers no preference.",
        (Place(f"{SERVED} 069", {"asked for a preference": True}),),
    ),
    "right-pod": Difference(
        "A pod is chosen by its own amount, annotations and time; theirs takes the pod that is listed last for all, "
        "and serves an assigned one again.",
        (
            Place("015", env(0, "b", ONE, 100, 100) | {"pod default/b doslab.io/gpu-assigned": "true"}),
            Place(
                "019",
                {
                    "answer 0 DOSLAB_IO_GPU_UUID": ONE,
                    "answer 0 NVIDIA_VISIBLE_DEVICES": ONE,
                    "answer 0 POD_NAME": "b",
                    "pod default/b doslab.io/gpu-assigned": "true",
                },
            ),
        ),
    ),
    "each-container": Difference(
        "What a container asks for is compared with its own limit; theirs compares it with the whole pod's, so that a "
        "pod with two containers never starts.",
        (
            Place(
                "020",
                env(0, "mc", ONE, 60, 100)
                | env(1, "mc", ONE, 40, 100)
                | {"pod default/mc doslab.io/gpu-assigned": "true"},
            ),
        ),
    ),
    "gpu-checked": Difference(
        "A gpu-uuid that is missing, or that the node does not have, is an error that says so; theirs hands it to the "
        "container.",
        (
            Place("037", refused("default/p1: its annotation doslab.io/gpu-uuid is not there")),
            Place("038", refused("doslab.io/gpu-uuid names 'GPU-not-here'; this node has GPU-1a2b3c40")),
            Place("039", refused("doslab.io/gpu-uuid names '7'; this node has GPU-1a2b3c40")),
        ),
    ),
    "gpu-newest": Difference(
        "While the daemon waits for the annotations of the pod manager, a new gpu-uuid counts as well; theirs answers "
        "the one that it read first, and the pod names another.",
        (Place("041", {"answer 0 DOSLAB_IO_GPU_UUID": ZERO, "answer 0 NVIDIA_VISIBLE_DEVICES": ZERO}),),
    ),
    "annotated-later": Difference(
        "The daemon writes the pod's annotations when the kubelet shows that the pod has its units, and retries until "
        "the write succeeds; theirs writes them first, and refuses the container if the API server refuses the write.",
        (Place("043", env(0, "p1", ONE, 100, 100) | {"answer 1": Says("no pod asks for 100")}),),
    ),
    "ids-checked": Difference(
        "Ids that were never listed are refused; theirs counts them, whatever they are.",
        (Place("050", refused("unknown device ids: x, y, z")),),
    ),
    "amounts-stay": Difference(
        "gpu-count and gpu-core stay on the node when the plugin or the kubelet restarts; theirs sets them to 0, and "
        "pods that wait are not scheduled.",
        (Place(TWO_CARDS, amounts(2, "after")), Place(ONE_CARD, amounts(1, "after"))),
    ),
    "amounts-zero": Difference(
        "A node without a GPU has the amount 0; theirs writes nothing.",
        (Place("070 071", amounts(0, "node", "after")),),
    ),
    "node-odd": Difference(
        "A node without a capacity map, or that the API server does not know, is served, and status shows what could "
        "not be written; theirs crashes, or starts over for ever.",
        (
            Place("062", {"runs on": True, "exit": 0} | amounts(1, "node", "after")),
            Place("062 063", {"register": [REGISTERED]} | LISTED),
        ),
    ),
    "kubelet-late": Difference(
        "The daemon waits for an absent kubelet without a limit; theirs misses one that comes after 5 s.",
        (
            Place("066 073", {"files left": []}),
            Place("073", {"register": [REGISTERED]}),
            Place("073 074", LISTED),
        ),
    ),
    "socket-stale": Difference(
        "A socket that a crash left behind is replaced; theirs fails on it ten times a second, for ever.",
        (Place("067", {"register": [REGISTERED]} | LISTED),),
    ),
    "driver-late": Difference(
        "A driver that is not loaded is waited for; theirs exits.",
        (Place("070", {"runs on": True, "exit": 0}),),
    ),
    "unit-grows": Difference(
        "Where the list would be too long for the kubelet the unit is doubled until the list fits and the kubelet can "
        "bear it, and the journal says so; theirs sends it, and the node has no GPU memory.",
        (
            Place(
                "080",
                {
                    "list": None,
                    "list count": 1280,
                    "list bytes": 36900,
                    "list ids": "a6781c494573f29a64ea2c70415ef4fea9fca123fd030ba5380ac4ca407d98c9",
                    "list health": {"Healthy": 1280},
                    "list topology": {"none": 1280},
                },
            ),
        ),
    ),
    "sighup": Difference(
        "SIGHUP reads the settings again; theirs ends.",
        (Place("069", {"ends with SIGHUP": False}),),
    ),
    "exit-code": Difference(
        "SIGTERM ends ours with 0; theirs ends with 1, or crashes with 2.",
        (Place(f"{SERVED} 063 066 067 069 071 073 074", {"exit": 0}),),
    ),
}
