"""Where `fairlead gke` is otherwise than Google's plugin, and means to be. The guide has these lines, word for word."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.recorded.outcome import Difference, Differences, Place, Says

SERVED = (
    "003 004 005 006 007 008 011 012 013 014 016 026 027 031 032 041 042 048 049 061 062 063 064 066 067 069 070 071 "
    "072 073 074 075"
)
CONTROL = [
    (("/dev/nvidia-modeset", "/dev/nvidia-modeset", "mrw"), 1),
    (("/dev/nvidia-uvm", "/dev/nvidia-uvm", "mrw"), 1),
    (("/dev/nvidia-uvm-tools", "/dev/nvidia-uvm-tools", "mrw"), 1),
    (("/dev/nvidia0", "/dev/nvidia0", "mrw"), 1),
    (("/dev/nvidiactl", "/dev/nvidiactl", "mrw"), 1),
]
GONE: Mapping[str, Any] = {"register": [], "files left": [], "asked for a preference": None, "exit": 0}

DIFFERENCES: Differences = {
    "preference": Difference(
        "The kubelet asks for a preference, and gets GPUs that are well linked, or the share of the GPU with the "
        "fewest in use. Theirs leaves the choice to the kubelet.",
        (Place(SERVED, {"asked for a preference": True}),),
    ),
    "end": Difference(
        "SIGTERM ends with 0, and our socket is removed, as are those that killed processes left. Theirs is killed by "
        "the signal, and leaves its socket.",
        (Place(SERVED, {"exit": 0, "files left": []}), Place("009 010 023", {"exit": 0})),
    ),
    "nodes-once": Difference(
        "A container with several shares of a GPU gets its nodes once, not once for each share.",
        (
            Place("006", {f"answer {number} nodes": CONTROL for number in (1, 2, 3)}),
            Place("008", {f"answer {number} nodes": CONTROL for number in (1, 2)}),
        ),
    ),
    "unlisted-share": Difference(
        "A share that is not listed is refused. Theirs checks the GPU, and not the number of the share.",
        (Place("003", {"answer 4": Says("unknown device ids: nvidia0/vgpu9")}),),
    ),
    "bad-part": Difference(
        "A part of the config file that is wrong is named and left out, and the other parts count. Theirs drops the "
        "partition size with a wrong sharing part, and offers GPUs that are cut, or should be, as whole ones.",
        (Place("017", {**GONE, "list nvidia0": None}),),
    ),
    "uncut-gpu": Difference(
        "A GPU that is not cut as the config file says is named and not offered; the others are. Theirs offers "
        "nothing.",
        (
            Place(
                "022",
                {
                    "register": [["nvidia.com/gpu", "nvidiaGPU-<NOW_S>.sock", "v1beta1"]],
                    "asked for a preference": True,
                    "list nvidia0/gi1": ["Healthy", [0]],
                    "list nvidia0/gi2": ["Healthy", [0]],
                    "exit": 0,
                },
            ),
        ),
    ),
    "bad-size": Difference(
        "A partition size that does not exist ends the start with code 1 and the nearest size. Theirs runs on, "
        "and tries the same again for ever.",
        (Place("024", {"exit": 1, "runs on": False}),),
    ),
    "no-node": Difference(
        "A GPU whose device node is missing is named and not offered. With theirs its containers cannot start.",
        (Place("042", {"list nvidia1": None, "answer 0": Says("unknown device ids: nvidia1")}),),
    ),
    "no-gpu": Difference(
        "Without a GPU nothing is registered, and status says why. Theirs registers an empty list.",
        (Place("046", GONE),),
    ),
    "one-list": Difference(
        "Faults of several GPUs at one moment make one list, not one for each GPU.",
        (Place("064", {"answer 0 lists": 1}),),
    ),
    "patches": Difference(
        "The condition is written by a patch of this one condition. Theirs writes the whole status of the Node, "
        "and what others wrote in between is lost or refuses it.",
        shown_by="tests/unit/fronts/nodestatus/test_condition.py::test_only_this_condition_is_written",
    ),
    "event-count": Difference(
        "An XID that comes again raises the count of its Event, with one request. A driver that reports without end "
        "makes no more than a request every 12 s.",
        shown_by="tests/unit/fronts/nodestatus/test_events.py::test_what_comes_again_is_counted",
    ),
    "recovery": Difference(
        "A GPU comes back when a reset is seen, or when probes find nothing after its hold. Theirs stays "
        "unhealthy until it is restarted.",
        shown_by="tests/system/test_gke.py::test_a_gpu_comes_back_after_a_reset",
    ),
    "late-kubelet": Difference(
        "A kubelet that starts after the plugin gets its registration. Theirs never registers.",
        shown_by="tests/system/test_gke.py::test_a_kubelet_that_comes_late_is_registered_with",
    ),
    "shrink": Difference(
        "A GPU whose node goes is unhealthy at once, and leaves the list when no pod holds it. Theirs sees only more "
        "GPUs, after 10 s, and starts anew for them.",
        shown_by="tests/system/test_gke.py::test_capacity_follows_nodes_that_come_and_go",
    ),
    "own-sizes": Difference(
        "4g.20gb and 4g.40gb are partition sizes. Google's partition_gpu makes them, and its plugin refuses them.",
        shown_by="tests/unit/dialects/test_gke.py::test_sizes_that_the_partition_tool_makes_are_sizes",
    ),
    "profile": Difference(
        "With NVML the profile of each instance must be the one of the config file. Theirs compares only how many "
        "there are, and takes 7g.40gb for 4g.40gb.",
        shown_by="tests/unit/backends/nvidia/test_shape.py::test_instances_of_another_profile_are_not_offered",
    ),
    "fraction": Difference(
        "With a fraction divisor over 1 a GPU brings the capability nodes of the MIG instance on it. Theirs finds "
        "them, and leaves them out of the answer.",
        shown_by="tests/unit/backends/nvidia/test_shape.py::test_a_share_of_a_gpu_brings_the_nodes_of_its_instances",
    ),
    "mps-memory": Difference(
        "The limit of memory for MPS is a share of the device that the container has. Theirs takes the memory of the "
        "first GPU for all, and for MIG instances too.",
        shown_by="tests/unit/backends/nvidia/test_edits.py::test_limits_for_mps_are_shares_of_the_device",
    ),
    "mps-down": Difference(
        "When the MPS control daemon stops answering, its shares are unhealthy until it answers again. Theirs asks it "
        "once, at the start.",
        shown_by="tests/system/test_gke.py::test_shares_are_unhealthy_while_the_mps_daemon_is_down",
    ),
    "no-nvml": Difference(
        "Where NVML's library is not found, GPUs are offered by their device nodes alone, and status says that "
        "there is no health. Theirs ends.",
        shown_by="tests/system/test_gke.py::"
        "test_without_the_library_of_nvml_gpus_are_found_by_their_nodes_and_status_says_so",
    ),
}
