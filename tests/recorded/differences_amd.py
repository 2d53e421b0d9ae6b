"""Where ours answers otherwise than AMD's device plugin, on purpose. The guide has this table; a test compares."""

from __future__ import annotations

from typing import Any

from tests.recorded.outcome import Difference, Differences, Place, Says

GPU = [("amd.com/gpu", "amd.com_gpu", "v1beta1")]
PREFERS = {f"gpu {one}": ["get_preferred_allocation_available"] for one in ("options", "register options")}
FIRST_TWO = ["0000:03:00.0", "0000:26:00.0"]


def nodes(*numbers: int) -> list[str]:
    """What a container has for these cards."""
    cards = [f"/dev/dri/{name}" for n in numbers for name in (f"card{n}", f"renderD{n + 127}")]
    return sorted(f"{path} {path} rw" for path in ["/dev/kfd", *cards])


def empty(*answers: int) -> dict[str, Any]:
    return {f"gpu {number}": [[]] for number in answers}


def here(*ids: str, numa: list[int] | None = None) -> dict[str, Any]:
    return {f"gpu {one}": numa or [] for one in ids} | {f"gpu {one} is": "Healthy" for one in ids}


DIFFERENCES: Differences = {
    "own-devices": Difference(
        "In a request for several containers each gets its own devices; theirs gives all of them those of the last.",
        (Place("001", {"gpu 2": [nodes(3), nodes(4)]}), Place("003 005", {"gpu 2": [nodes(1), nodes(9)]})),
    ),
    "ids-checked": Difference(
        "An id that was never listed is refused; theirs starts the container with /dev/kfd and no GPU.",
        (Place("001 003 005", {"gpu 3": Says("unknown device ids: nope")}),),
    ),
    "allocate-nothing": Difference(
        "A request without an id or a container is refused; theirs answers it.",
        (Place("001 003 005", {"gpu 4": Says("names no device"), "gpu 5": Says("names no container")}),),
    ),
    "prefer-nothing": Difference(
        "A preference that cannot be met is answered with no ids, and the kubelet chooses by itself; theirs is an "
        "error, for which the kubelet rejects the pod.",
        (
            Place("001", empty(24, 25, 26, 27, 28, 30, 31)),
            Place("003", empty(26, 27, 28, 29, 30, 32, 33)),
            Place("025", empty(3)),
        ),
    ),
    "prefer-known": Difference(
        "In a preference, ids that are not listed are left out, because the list may have changed since the kubelet "
        "looked; theirs is an error, or ends the process.",
        (
            Place("001", {"gpu 29": [FIRST_TWO]}),
            Place("003", {"gpu 31": [["0000:e5:00.0", "amdgpu_xcp_50"]]}),
            Place("031", {"gpu 1": [FIRST_TWO], "gpu 2": [FIRST_TWO], "runs on": True, "exit": 0}),
        ),
    ),
    "prefer-always": Difference(
        "The kubelet is always asked to ask; theirs chooses nothing on a node with one GPU, or without links.",
        (
            Place("008 015 019 025", PREFERS),
            Place(
                "008",
                {
                    "gpu 3": [["0000:19:00.0"]],
                    "gpu 4": [["0000:19:00.0", "0000:1a:00.0"]],
                    "gpu 5": [["0000:1a:00.0"]],
                },
            ),
            Place("025", {"gpu 2": [["0000:63:00.0"]]}),
        ),
    ),
    "prefer-order": Difference(
        "The ids of a preference come in the order of the list; theirs come group by group. The kubelet reads a set.",
        shown_by="tests/recorded/test_amd.py::test_a_preference_comes_in_the_order_of_the_list",
    ),
    "prefer-time": Difference(
        "Every preference is answered within milliseconds; theirs tries all orders of GPUs, and six of sixteen take it "
        "seconds, eight minutes.",
        shown_by="tests/unit/policy/placement/test_closest.py::test_sixteen_gpus_take_few_steps",
    ),
    "prefer-recent": Difference(
        "Devices that were granted in the last ten seconds are preferred last, because a kubelet may forget an "
        "Allocate that is on its way; theirs offers them again.",
        shown_by="tests/recorded/test_amd.py::test_what_was_granted_a_moment_ago_is_not_preferred",
    ),
    "link-unknown": Difference(
        "A pair between which the kernel shows no link is the worst; with theirs it is the best.",
        shown_by="tests/unit/policy/placement/test_closest.py::test_a_link_that_is_not_known_is_the_worst",
    ),
    "numa-unknown": Difference(
        "A GPU whose NUMA node is -1, unreadable or not there is listed without one; theirs sends the kubelet node -1, "
        "drops the others, and drops every partition of such a GPU.",
        (Place("012", here("0000:03:00.0", "0000:43:00.0") | {"gpu 0000:26:00.0": []}),),
    ),
    "partition-unknown": Difference(
        "A device of which the driver does not say both partitions is amd.com/gpu; theirs advertises such a GPU "
        "nowhere beside others with partitions, and drops platform devices.",
        (
            Place(
                "024",
                PREFERS
                | here("0000:05:00.0", numa=[0])
                | {
                    "register": [
                        ("amd.com/cpx_nps1", "amd.com_cpx_nps1", "v1beta1"),
                        *GPU,
                        ("amd.com/spx_nps1", "amd.com_spx_nps1", "v1beta1"),
                    ]
                },
            ),
            Place("030", here(*(f"amdgpu_xcp_{n}" for n in range(1, 13)), numa=[0])),
            Place("030", here(*(f"amdgpu_xcp_{n}" for n in range(13, 25)), numa=[1])),
        ),
    ),
    "own-nodes": Difference(
        "A PCI function without a render node is left out, by name; theirs gives it the nodes of the one before, and a "
        "preference may name an id twice.",
        shown_by="tests/unit/backends/amd/test_bad_input.py::test_a_gpu_without_render_node_is_left_out_by_name",
    ),
    "domain-unknown": Difference(
        "On a kernel whose KFD does not say the PCI domain, each GPU is one of its own; theirs takes all for one.",
        shown_by="tests/unit/backends/amd/test_devices.py::test_two_gpus_of_an_old_kernel_are_two_gpus",
    ),
    "driver-late": Difference(
        "Without the driver, or without KFD, ours waits, and serves when they come; theirs exits, or idles for ever.",
        (Place("010", {"runs on": True, "exit": 0}),),
    ),
    "changes-seen": Difference(
        "GPUs that come or go, and partitions that are cut anew, change the list without a restart; theirs reads them "
        "once.",
        shown_by="tests/recorded/test_amd.py::test_a_gpu_that_is_cut_anew_changes_the_list",
    ),
    "old-kernel": Difference(
        "A GPU is healthy if KFD shows its render node; theirs wants a gfx_target_version of the whole node, which old "
        "kernels do not have, and withdraws everything.",
        (
            Place("015", {"gpu 0000:19:00.0 is": "Healthy", "gpu 0000:1a:00.0 is": "Healthy"}),
            Place("019", {"gpu 0000:1a:00.0 is": "Healthy"}),
        ),
    ),
    "exporter-word": Difference(
        "What AMD's metrics exporter calls unhealthy is withdrawn, whatever the case of its letters; with theirs only "
        "the word in lower case counts.",
        (Place("017", {"gpu 0000:43:00.0 is": "Unhealthy"}),),
    ),
    "health-always": Difference(
        "Health is looked at without -pulse too, every five seconds; theirs never does. --health-checks=none is off.",
        shown_by="tests/recorded/test_amd.py::test_health_is_looked_at_without_a_pulse",
    ),
    "list-once": Difference(
        "A list is sent when it changes; theirs sends the same one at each pulse, to one of its resources in turn.",
        (Place("014 015 017 018 019", {"gpu list repeated": False}),),
    ),
    "stream-ends": Difference(
        "When the kubelet ends a stream, ours registers again; theirs exits.",
        (Place("022", {"runs on": True, "exit": 0}),),
    ),
    "socket-removed": Difference(
        "The socket is removed at the end; theirs stays behind.",
        (
            Place(
                "001 002 003 004 005 006 008 012 014 015 017 018 019 021 022 024 025 028 029 030 031 033",
                {"files left": []},
            ),
        ),
    ),
    "mixed-refused": Difference(
        "Where partitions differ under single, ours ends with 1 as theirs, and names the kinds. If that happens while "
        "it runs, it keeps what it has offered and says so in its status; theirs does not look again.",
        shown_by="tests/recorded/test_amd.py::test_partitions_that_differ_are_refused_under_single",
    ),
    "pulse-checked": Difference(
        "A -pulse below 0 is refused unless --lenient; theirs takes it for 0.",
        shown_by="tests/unit/dialects/test_amd.py::test_a_value_that_cannot_be_meant_is_refused",
    ),
    "words-left": Difference(
        "Words after the flags are refused unless --lenient; theirs passes them over.",
        shown_by="tests/unit/dialects/test_amd.py::test_what_cannot_be_understood_ends_as_in_go",
    ),
}
