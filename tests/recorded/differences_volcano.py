"""Where ours answers otherwise than volcano-sh/devices, on purpose. The guide has this table; a test compares."""

from __future__ import annotations

import json
from typing import Any

from tests.recorded.outcome import Difference, Differences, Place, Says, number
from tests.vectors.sharing import sharing

NUMBER = "volcano.sh/gpu-number"
NODE = "node annotation"
UNHEALTHY = "volcano.sh/gpu-unhealthy-ids"
SIGNATURE = {"amounts.fairlead/volcano": NUMBER}
SHARED = (
    "001 004 006 013 020 023 024 025 026 027 028 029 030 031 033 035 036 037 040 041 042 044 045 046 047 048 049 050 "
    "067 075 080"
)
CRASHED = "068"
WHOLE = "002 014 055 057 061 062 063 064 065 066 072"
LIST = ("list count", "list bytes", "list ids", "list health", "list topology")
TWO_CARDS = {
    "list count": 2,
    "list bytes": 106,
    "list ids": "f61a9a2c975b4ace0e0679994484ed36a3f271ec135f59314e6b7d842cf842cb",
    "list health": {"Healthy": 2},
    "list topology": {"none": 2},
}


def env(answer: int, index: int, units: int) -> dict[str, Any]:
    """The whole of what a container is given."""
    given = {
        "NVIDIA_VISIBLE_DEVICES": str(index),
        "VOLCANO_GPU_ALLOCATED": str(units),
        "VOLCANO_GPU_MEMORY_TOTAL": "16384",
    }
    return {f"answer {answer}": "ok", **{f"answer {answer} {name}": text for name, text in given.items()}}


def units(*cases: str, place: str = "node annotation") -> tuple[Place, ...]:
    """How large units are, as the node says it: each GPU's own number of them."""
    found = []
    for name, case in sharing("volcano").items():
        if number(name) in " ".join(cases).split():
            factor = 1000 if "1000" in name else 1
            count = sum(card.memory_bytes // (factor << 20) for card in case.inputs.gpus)
            text = f"volcano.sh/gpu-memory={count}x{factor}MiB"
            found.append(Place(number(name), {f"{place} units.fairlead/volcano": text}))
    return tuple(found)


def devices(
    cases: str, *places: str, whole: bool = False, ill: tuple[int, ...] = (), numa: tuple[int, ...] = ()
) -> tuple[Place, ...]:
    """What the node tells of its single GPUs, and which of them are unusable."""
    found = []
    for name, case in sharing("volcano").items():
        if number(name) not in cases.split():
            continue
        block = (1000 if "1000" in name else 1) << 20
        told: list[dict[str, Any]] = []
        for place, card in enumerate(case.inputs.gpus):
            one = {"i": str(place), "d": card.uuid, "u": 1 if whole else card.memory_bytes // block}
            told.append(one | ({"x": True} if place in ill else {}) | ({"n": numa[place]} if place < len(numa) else {}))
        key = f"devices.fairlead/volcano.sh_{'gpu-number' if whole else 'gpu-memory'}"
        text = json.dumps(told, separators=(",", ":"))
        found.append(Place(number(name), {f"{place} {key}": text for place in places}))
    return tuple(found)


def numbers(cards: str | None, *places: str) -> dict[str, Any]:
    parts = [f"{place} {part}" for place in places for part in ("capacity", "allocatable")]
    return {f"{part} {NUMBER}": cards for part in parts}


DIFFERENCES: Differences = {
    "preference": Difference(
        "The daemon prefers units of the GPU that is assigned to the pod, so the kubelet records the right ones; "
        "theirs does not know the call.",
        (
            Place(f"{SHARED} {CRASHED} {WHOLE} 009 081", {"asked for a preference": True}),
            Place("001", {"answer 0": "ok"}),
        ),
    ),
    "each-container": Difference(
        "Every container of a pod is served, init containers too; theirs writes the pod's annotations after the "
        "first, fails the second, and does not look at init containers.",
        (Place("027", env(1, 1, 40)), Place("029", env(0, 1, 300))),
    ),
    "each-card": Difference(
        "Each GPU has its own number of units; theirs takes that of the first one for all.",
        (
            Place(
                "006",
                {
                    "list count": 24576,
                    "list bytes": 471108,
                    "list ids": "e615531045281303f9fda2b0abd221acb7e8be016016dc3fd04127483084c7a1",
                    "list health": {"Healthy": 24576},
                    "list topology": {"none": 24576},
                },
            ),
        ),
    ),
    "same-time": Difference(
        "Of pods with one predicate time the older one, or the first by name, is served; theirs takes the last of the "
        "list.",
        (Place("024", {"answer 0 NVIDIA_VISIBLE_DEVICES": "0", "answer 2 NVIDIA_VISIBLE_DEVICES": "2"}),),
    ),
    "refused-pod": Difference(
        "The daemon knows a pod that the kubelet has refused by its phase, Failed, and one that has its GPU from the "
        "kubelet; theirs passes over pods for a reason or a message in their status.",
        (Place("042", env(0, 1, 100) | {"pod default/p volcano.sh/gpu-assigned": "true"}),),
    ),
    "annotated-later": Difference(
        "The daemon writes the pod's annotations when the kubelet shows that the pod has its units, and retries until "
        "the write succeeds; theirs writes them first, and refuses the container if the API server refuses the write.",
        (Place("046", env(0, 1, 100) | {"answer 1": Says("no pod asks for 100")}),),
    ),
    "ids-checked": Difference(
        "Ids that were never listed are refused; theirs counts them, whatever they are.",
        (Place("050", {"answer 0": Says("unknown device ids: x, y"), "pod default/p volcano.sh/gpu-assigned": None}),),
    ),
    "units-unhealthy": Difference(
        "The units of a GPU that is unhealthy are unhealthy too; theirs go on, and a node without annotations ends the "
        "plugin.",
        (
            Place(
                CRASHED,
                {
                    "answer 0 health": {"Healthy": 16384, "Unhealthy": 16384},
                    "answer 0 lists sent": 1,
                    "answer 0 alive": True,
                    f"answer 0 node {UNHEALTHY}": "0",
                    f"node annotation {UNHEALTHY}": "0",
                    "files left": [],
                    "exit": 0,
                },
            ),
        ),
    ),
    "no-events": Difference(
        "A GPU that reports no events is offered, probed and reported; theirs withdraws it.",
        (Place("066", {f"answer 0 node {UNHEALTHY}": None, f"node annotation {UNHEALTHY}": None}),),
    ),
    "stray-xid": Difference(
        "After an XID for which the driver names no GPU the daemon probes every GPU; theirs withdraws them all.",
        (
            Place(
                "063",
                {
                    "answer 0 health": None,
                    "answer 0 lists sent": 0,
                    f"answer 0 node {UNHEALTHY}": None,
                    f"node annotation {UNHEALTHY}": None,
                },
            ),
        ),
    ),
    "signed": Difference(
        "The node has an annotation that lists the amounts of the daemon, so that they can be removed again.",
        (
            Place(
                f"{SHARED} {CRASHED} 071 076 081", {f"node annotation {key}": text for key, text in SIGNATURE.items()}
            ),
            Place("067 068", {f"answer 0 node {key}": text for key, text in SIGNATURE.items()}),
        ),
    ),
    "unit-annotation": Difference(
        "The node has an annotation that gives the size of a unit of memory, and the number of units.",
        (*units(SHARED, CRASHED, "071 081"), *units("067 068", place="answer 0 node")),
    ),
    "devices-annotation": Difference(
        "The node has an annotation that tells schedulers of its single GPUs; theirs publishes a total.",
        (
            *devices(f"{SHARED} 071 081", NODE),
            *devices("067", "answer 0 node"),
            *devices(CRASHED, NODE, "answer 0 node", ill=(0,)),
            *devices("002 009 055 057", NODE, whole=True),
            *devices("014", NODE, whole=True, numa=(0, 1)),
            *devices("061", "answer 0 node", whole=True, ill=(0,)),
            *devices("061", NODE, "answer 1 node", whole=True, ill=(0, 1)),
            *devices("062", NODE, "answer 0 node", "answer 1 node", "answer 2 node", whole=True),
            *devices("063 064 065 066", NODE, "answer 0 node", whole=True),
        ),
    ),
    "amounts-zero": Difference(
        "A node without a GPU has the amount 0; theirs writes nothing.",
        (Place("076", numbers("0", "node", "after")),),
    ),
    "node-odd": Difference(
        "A node without a capacity map is given one; theirs crashes.",
        (
            Place(
                "071",
                {
                    "register": [["volcano.sh/gpu-memory", "volcano.sock", "v1beta1"]],
                    "runs on": True,
                    "exit": 0,
                    "asked for a preference": True,
                    "called before a start": False,
                    "list count": 16384,
                    "list bytes": 316570,
                    "list ids": "0e920ff006d2a23cb89aefc22eea4e6dac4b9ba881b9427a7ac36ec01540255b",
                    "list health": {"Healthy": 16384},
                    "list topology": {"none": 16384},
                }
                | numbers("1", "node", "after"),
            ),
        ),
    ),
    "file-counts": Difference(
        "What the config file says is in force, below flags and environment; theirs puts its defaults over it.",
        (
            Place(
                "009",
                {"register": [[NUMBER, "volcano.sock", "v1beta1"]]} | TWO_CARDS | numbers(None, "node", "after"),
            ),
        ),
    ),
    "strategy-known": Difference(
        "A --gpu-strategy that is neither share nor number is refused unless --lenient; theirs takes it for number.",
        (
            Place(
                "008",
                {"register": [], "exit": 1, "asked for a preference": None, "called before a start": None}
                | dict.fromkeys(LIST),
            ),
        ),
    ),
    "sighup": Difference(
        "SIGHUP reads the settings again; theirs ends.",
        (Place("081", {"ends with SIGHUP": False}),),
    ),
    "exit-code": Difference(
        "SIGTERM ends ours with 0, and what it cannot start with ends it with 1; theirs ends with 255, or crashes with "
        "2.",
        (
            Place(f"{SHARED} {WHOLE} 009 076 081", {"exit": 0}),
            Place("005 078", {"exit": 1}),
        ),
    ),
}
