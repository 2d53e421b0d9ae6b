"""Which pod a request would be for now, and why it is for no other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace
from tests.unit.policy.scheduled.pods import ASSIGN, NAMES, RESOURCE, ROOM, A, B, give, order, pod, slots

from fairlead.model.pod import Pod
from fairlead.model.resource import Resource
from fairlead.policy.scheduled.allocations import Allocations, Draft
from fairlead.policy.scheduled.decide import PodsKnown
from fairlead.policy.scheduled.explain import Explanation, explain
from fairlead.policy.scheduled.state import PodsRead, Refusal, State

KNOWN = PodsKnown(complete=True, problem="", read_s=0.0, silent_s=0.0, away=False, budget_s=0.0)


def state(pods: Sequence[Pod], allocations: Allocations, refused: Mapping[str, Refusal] | None = None) -> State:
    read = PodsRead(pending=tuple(order(*pods)))
    return State(Resource(RESOURCE, ()), ASSIGN, NAMES, ROOM, pods=read, allocations=allocations, refused=refused or {})


def test_the_pod_its_devices_and_why_others_are_not_meant():
    waiting = [
        pod("a-running", 4),
        pod("b-full", 4, time=1),
        pod("c-faulty", 4, card="9", time=9),
        pod("d-meant", 4, card="1", time=2),
        pod("e-later", 4, card="2", time=3),
        pod("f-small", 2, time=4),
        pod("g-done", 4, assigned="true", time=5),
        pod("h-served", 1, time=6),
        pod("i-refused", 4, time=0),
        replace(pod("j-ending", 4, time=7), deleting=True),
    ]
    waiting[0] = replace(waiting[0], phase="Running")
    allocations = Draft()
    give(allocations, "h-served", "main0", A, slots(0, 0), confirmed=True)
    give(allocations, "x", "main0", A, slots(0, 1, 2, 3, 4), confirmed=True)
    allocations.latest = ""
    found = explain(state(waiting, allocations, refused={"i-refused": Refusal(0.0, 4, frozenset())}), 4, KNOWN)
    assert (found.pod, found.container, found.devices, found.reason) == ("default/d-meant", "main0", (B,), "")
    assert dict(found.others) == {
        "default/a-running": "it is Running",
        "default/b-full": "default/b-full: 4 units do not fit: GPU-a has 8, and pods hold 5 of them",
        "default/c-faulty": "its annotation card names '9'; this node has 0, 1, 2",
        "default/e-later": "another pod comes before it",
        "default/f-small": "its next container, main0, asks for 2",
        "default/g-done": "its annotations say that it has its devices",
        "default/h-served": "all its containers have their devices",
        "default/i-refused": "it was refused a moment ago",
        "default/j-ending": "it is being deleted",
    }


def test_without_a_pod_the_reason():
    assert explain(state([], Draft()), 4, KNOWN) == Explanation(reason="no pod asks for 4")
    found = explain(state([pod("small", 2)], Draft()), 4, KNOWN)
    assert found.reason == "no pod asks for 4; default/small asks for 2"
    assert found.others == (("default/small", "its next container, main0, asks for 2"),)
