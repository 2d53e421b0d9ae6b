"""Where ours answers otherwise than Aliyun's gpushare plugin, on purpose. The guide has this table; a test compares."""

from __future__ import annotations

from typing import Any

from tests.recorded.outcome import NOW_NS, Difference, Differences, Place, Says

PREFIX = "ALIYUN_COM_GPU_MEM_"
SERVED = (
    "002 004 005 008 011 012 014 015 016 017 020 021 022 030 031 032 037 038 041 042 043 046 047 048 049 050 051 052 "
    "055 056 058 063 064 065 066 070 071 073 087 090 091"
)
REGISTERED = ["aliyun.com/gpu-mem", "aliyungpushare.sock", "v1beta1"]
ONE_CARD = {
    "asked for a preference": True,
    "called before a start": False,
    "list count": 16,
    "list bytes": 918,
    "list ids": "8b40446b0dbc0385875c5334e9218f4f3a5e6166ce73f6782f208a99c6ae1197",
    "list health": {"Healthy": 16},
    "list topology": {"none": 16},
}
LIST = ("list count", "list bytes", "list ids", "list health", "list topology")


def index(answer: int, number: int) -> dict[str, Any]:
    return {f"answer {answer} {PREFIX}IDX": str(number), f"answer {answer} NVIDIA_VISIBLE_DEVICES": str(number)}


def marked(pod: str) -> dict[str, Any]:
    return {f"pod default/{pod} {PREFIX}ASSIGNED": "true", f"pod default/{pod} {PREFIX}ASSUME_TIME": NOW_NS}


def unmarked(pod: str, time: str = "1700000000000000000") -> dict[str, Any]:
    return {f"pod default/{pod} {PREFIX}ASSIGNED": "false", f"pod default/{pod} {PREFIX}ASSUME_TIME": time}


def counts(cards: str | None, *places: str) -> dict[str, Any]:
    parts = [f"{place} {part}" for place in places for part in ("capacity", "allocatable")]
    return {f"{part} aliyun.com/gpu-count": cards for part in parts}


DIFFERENCES: Differences = {
    "preference": Difference(
        "The daemon prefers units of the GPU that is assigned to the pod, so the kubelet records the right ones; "
        "theirs offers no preference.",
        (Place(SERVED, {"asked for a preference": True}),),
    ),
    "no-fake-success": Difference(
        "A container that matches no pod, or whose index the node does not have, is refused with the reason; theirs "
        "is admitted with NVIDIA_VISIBLE_DEVICES=no-gpu-has-4GiB-to-run, and fails later.",
        (
            Place("011", {"answer 1": Says("no device for 4 of it on node 'node-1': no pod asks for 4")}),
            Place("030 041", {"answer 0": Says("no device for 4 of it on node 'node-1': no pod asks for 4")}),
            Place("032", {"answer 0": Says("no pod asks for 4; default/p1 asks for 5")}),
            Place("037", {"answer 0": Says("default/p1: its annotation ALIYUN_COM_GPU_MEM_IDX names 'one'")}),
            Place("038", {"answer 0": Says("ALIYUN_COM_GPU_MEM_IDX names '7'; this node has 0, 1")}),
            Place("050", {"answer 1": Says("no device for 5 of it on node 'node-1': no pod asks for 5")}),
        ),
    ),
    "each-card": Difference(
        "Each GPU has its own number of units; theirs takes that of the first one for all.",
        (
            Place(
                "004",
                {
                    "list count": 56,
                    "list bytes": 3220,
                    "list ids": "3fc307c95c59de7f8a65b24b27858d27523cdd9c52275ef33537aa5c5a6e33bd",
                    "list health": {"Healthy": 56},
                    "list topology": {"none": 56},
                },
            ),
        ),
    ),
    "each-container": Difference(
        "What a container asks for is compared with its own limit; theirs compares it with the whole pod's, so that a "
        "pod with two containers is never found.",
        (
            Place("020", index(0, 1) | index(1, 1)),
            Place("020 021", {f"answer {n} {PREFIX}POD": "4" for n in (0, 1)} | marked("mc")),
            Place("021", {f"answer {n} NVIDIA_VISIBLE_DEVICES": "0" for n in (0, 1)}),
        ),
    ),
    "one-card-index": Difference(
        "The only GPU of a node is named by its index, as in all other answers; theirs names it by UUID when the "
        "container matches no pod.",
        (Place("031 052", {"answer 0 NVIDIA_VISIBLE_DEVICES": "0"}),),
    ),
    "index-is-index": Difference(
        "The index annotation is NVML's index, which is what the scheduler counts and what NVIDIA_VISIBLE_DEVICES "
        "means; theirs compares it with the number of the /dev node.",
        (
            Place("042", index(0, 1) | marked("p1") | unmarked("p2")),
            Place("042", {"answer 1": Says("default/p2: its annotation ALIYUN_COM_GPU_MEM_IDX names '5'")}),
        ),
    ),
    "same-time": Difference(
        "Of pods with one assume time the older one, or the first by name, is served; theirs takes the last of the "
        "list.",
        (
            Place("014", index(0, 0) | index(1, 1)),
            Place("017", index(0, 0) | index(2, 2)),
        ),
    ),
    "bad-time": Difference(
        "An assume time that is no number comes last; theirs counts it as 0, and serves it first.",
        (Place("015", index(0, 0) | marked("early") | unmarked("bad", "soon")),),
    ),
    "same-uid": Difference(
        "Of two pods with one uid, which no cluster has, the daemon knows the one that the watch sent last; theirs "
        "knows the first.",
        (Place("016", index(0, 1) | marked("b")),),
    ),
    "annotated-later": Difference(
        "The daemon writes the pod's annotations when the kubelet shows that the pod has its units, and retries until "
        "the write succeeds; theirs writes them first, and answers with a fake success if the API server refuses.",
        (Place("046", index(0, 1) | marked("p1")),),
    ),
    "server-away": Difference(
        "While the API server fails, the daemon asks it again, for as long as the kubelet may wait; theirs gives up "
        "after four tries, with a fake success.",
        (
            Place("048", index(0, 1) | marked("p1")),
            Place("049", index(0, 0) | marked("p1")),
        ),
    ),
    "ids-checked": Difference(
        "Ids that were never listed are refused; theirs counts them, whatever they are.",
        (Place("055", {"answer 0": Says("unknown device ids: x, y")} | unmarked("p1")),),
    ),
    "allocate-nothing": Difference(
        "A request without an id or a container is refused; theirs answers it.",
        (Place("056", {"answer 0": Says("names no device"), "answer 1": Says("names no container")}),),
    ),
    "list-once": Difference(
        "The daemon sends one list for a fault; theirs sends one for each unit of the GPU, a thousand in a row.",
        (
            Place("065 066", {"answer 0 lists sent": 1}),
            Place("066", {"answer 0 health": {"Healthy": 1024, "Unhealthy": 1024}}),
        ),
    ),
    "unhealthy-refused": Difference(
        "Units of a GPU that is unhealthy are not handed out; theirs starts the container with them.",
        (Place("065", {"answer 1": Says("GPU has fallen off the bus")} | unmarked("p1")),),
    ),
    "no-events": Difference(
        "A GPU that reports no events is offered, probed and reported; theirs withdraws it.",
        (Place("064", {"answer 0 health": None, "answer 0 lists sent": 0}),),
    ),
    "stray-xid": Difference(
        "After an XID for which the driver names no GPU the daemon probes every GPU; theirs withdraws them all.",
        (Place("063", {"answer 0 health": None, "answer 0 lists sent": 0}),),
    ),
    "unit-known": Difference(
        "A --memory-unit that is neither GiB nor MiB is refused unless --lenient; theirs takes it for GiB.",
        (
            Place(
                "003",
                {"register": [], "exit": 2, "asked for a preference": None, "called before a start": None}
                | dict.fromkeys(LIST)
                | counts(None, "node", "after"),
            ),
        ),
    ),
    "amounts-zero": Difference(
        "A node without a GPU has the amount 0; theirs waits for ever, and writes nothing.",
        shown_by="tests/recorded/test_sharing.py::test_a_node_without_a_gpu_says_that_it_has_none",
    ),
    "driver-late": Difference(
        "Without a driver ours looks for one again and again; theirs waits for ever.",
        shown_by="tests/system/test_nvidia.py::test_a_driver_that_comes_late_is_waited_for",
    ),
    "restart-remembers": Difference(
        "After a restart a GPU is withdrawn again if its driver still asks for a reset or its rows wait for one; "
        "theirs forgets every fault.",
        shown_by="tests/unit/backends/nvidia/test_resets.py::test_a_new_daemon_finds_rows_that_wait_for_a_reset",
    ),
    "node-odd": Difference(
        "A node that the API server does not know, or that the daemon may not change, is served, and status shows "
        "what could not be written; theirs exits.",
        (Place("083 084", {"register": [REGISTERED], "runs on": True, "exit": 0} | ONE_CARD),),
    ),
    "kubelet-refuses": Difference(
        "The daemon retries a kubelet that refuses it; theirs exits.",
        (Place("085", {"runs on": True, "exit": 0}),),
    ),
    "sighup": Difference(
        "SIGHUP reads the settings again and interrupts no call; theirs closes its socket and registers again.",
        (Place("091", {"answer 0 registered again": False, "register": [REGISTERED]}),),
    ),
    "exit-code": Difference(
        "A start without NODE_NAME ends with 1; theirs with 255.",
        (Place("081", {"exit": 1}),),
    ),
}
