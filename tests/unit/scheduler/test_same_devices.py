"""Two resources on the same devices: a device that is taken whole has no memory left, and one in parts is not whole."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.scheduler.rig import as_node, as_pod, pod

from fairlead.policy.packing.demand import write_annotations
from fairlead.policy.packing.packing import Origin
from fairlead.policy.pods.contract import VOLCANO_MEMORY, VOLCANO_NUMBER
from fairlead.policy.pods.requests import Fault
from fairlead.programs.packing import Cluster, inspect
from fairlead.scheduler.answers import best_nodes, refusals, victims
from fairlead.scheduler.objects import read_pod
from fairlead.scheduler.view import Asked, Terms, View

UNITS, CARDS = 16, 3
MEMORY, NUMBER = 0, 1
TERMS = (Terms(VOLCANO_MEMORY), Terms(VOLCANO_NUMBER))
KEY = VOLCANO_MEMORY.device


def node(name: str = "n1") -> dict[str, Any]:
    """A node with Volcano's plugin that shares memory. It publishes how many cards there are, too."""
    amounts = {VOLCANO_MEMORY.resource: str(UNITS * CARDS), VOLCANO_NUMBER.resource: str(CARDS)}
    return {"metadata": {"name": name}, "status": {"capacity": amounts, "allocatable": dict(amounts)}}


def asking(name: str, which: int, units: int, **more: Any) -> dict[str, Any]:
    return pod(name, units, resource=TERMS[which].contract.resource, **more)


def view_of(*things: dict[str, Any]) -> View:
    view = View(TERMS)
    for thing in things:
        if "spec" in thing:
            view.put_pod(as_pod(thing))
        else:
            view.put_node(as_node(thing))
    return view


def on(name: str, which: int, units: int, cards: str, **more: Any) -> dict[str, Any]:
    return asking(name, which, units, on="n1", meta={"annotations": {KEY: cards}}, **more)


def fits(view: View, thing: dict[str, Any]) -> bool:
    found = view.asked(read_pod(as_pod(thing), view.keeps))
    assert isinstance(found, Asked)
    return bool(best_nodes(view, found, ["n1"], 1))


def test_a_card_that_is_taken_whole_has_no_memory_left():
    view = view_of(node(), on("a", NUMBER, 2, "0,2"), on("b", MEMORY, 10, "1"))
    assert view.packings[MEMORY].nodes["n1"].free == (0, 6, 0)
    assert fits(view, asking("c", MEMORY, 6))
    assert not fits(view, asking("d", MEMORY, 7))
    assert view.drop_pod("uid-a")
    assert fits(view, asking("d", MEMORY, 7))


def test_a_card_with_a_pod_on_a_part_of_it_is_not_given_whole():
    view = view_of(node(), on("a", MEMORY, 1, "0"), on("b", MEMORY, 1, "0"), on("c", MEMORY, 1, "2"))
    assert fits(view, asking("d", NUMBER, 1))
    assert not fits(view, asking("e", NUMBER, 2))
    view.drop_pod("uid-a")
    assert not fits(view, asking("e", NUMBER, 2))
    view.drop_pod("uid-b")
    assert fits(view, asking("e", NUMBER, 2))


def test_pods_that_are_seen_before_their_node_count_for_both():
    view = view_of(on("a", NUMBER, 1, "1"), on("b", MEMORY, 4, "0"), node())
    assert view.packings[MEMORY].nodes["n1"].free == (12, 0, 16)
    assert not fits(view, asking("c", NUMBER, 2))


def test_pods_with_memory_leave_for_one_that_wants_the_card():
    view = view_of(node(), *(on(f"p{card}", MEMORY, 4, str(card)) for card in range(CARDS)))
    wanted = view.asked(read_pod(as_pod(asking("x", NUMBER, 1, spec={"priority": 10})), view.keeps))
    assert isinstance(wanted, Asked)
    (gone,) = victims(view, wanted, {"n1": []})["n1"]
    assert gone in {"uid-p0", "uid-p1", "uid-p2"}


def test_people_see_that_a_card_in_parts_is_not_free_as_a_whole():
    cluster = Cluster(view_of(node(), on("a", MEMORY, 1, "0"), on("b", MEMORY, 2, "0"), on("c", NUMBER, 1, "2")), {})
    by_number = {row.resource: row for row in inspect(cluster).nodes}[VOLCANO_NUMBER.resource]
    assert [(one.used, one.units) for one in by_number.devices] == [(1, 1), (0, 1), (1, 1)]
    assert (by_number.used, by_number.units) == (2, 3)


def test_a_pod_that_asks_for_both_is_told_so():
    both = pod("p", 4, resource=VOLCANO_MEMORY.resource)
    both["spec"]["containers"][0]["resources"]["limits"][VOLCANO_NUMBER.resource] = "1"
    view = view_of(node())
    found = view.asked(read_pod(as_pod(both), view.keeps))
    assert isinstance(found, Fault)
    assert found.text == (
        "it asks for volcano.sh/gpu-memory and volcano.sh/gpu-number, which are on the same devices. "
        "Ask for one of them"
    )
    assert refusals(view, found, ["n1"]).for_good == {"n1": found.text}


Step = tuple[int, int, int]  # which resource, how much, and which pod leaves first
steps = st.lists(
    st.one_of(
        st.tuples(st.just(MEMORY), st.integers(1, UNITS + 1), st.integers(0, 3)),
        st.tuples(st.just(NUMBER), st.integers(1, CARDS), st.integers(0, 3)),
    ),
    max_size=20,
)


@settings(deadline=None, max_examples=150)
@given(steps)
def test_no_card_is_given_twice_and_nothing_that_fits_is_refused(taken: list[Step]):
    view = view_of(node())
    parts: dict[str, dict[int, int]] = {}  # by pod: units of each card, as the annotations that were written say
    stored: dict[str, dict[str, Any]] = {}
    for number, (which, amount, leaves) in enumerate(taken):
        if leaves < len(parts):
            gone = list(parts)[leaves]
            view.drop_pod(f"uid-{gone}")
            del parts[gone], stored[gone]
        name = f"p{number}"
        thing = asking(name, which, amount)
        view.put_pod(as_pod(thing))
        asked = view.waiting(f"uid-{name}")
        assert asked is not None
        free = [UNITS - sum(part.get(card, 0) for part in parts.values()) for card in range(CARDS)]
        could = free.count(UNITS) >= amount if which == NUMBER else max(free) >= amount
        assert bool(best_nodes(view, asked, ["n1"], 1)) is could
        places = view.choose(asked, "n1")
        assert (places is not None) is could
        if places is None:
            view.drop_pod(f"uid-{name}")
            continue
        view.book(asked, "n1", places, Origin.BOUND)
        devices = view.packings[which].nodes["n1"].devices
        texts = write_annotations(asked.seen.pod, TERMS[which].contract, devices, places[0], 1)
        stored[name] = asking(name, which, amount, on="n1", meta={"annotations": texts})
        view.put_pod(as_pod(stored[name]))
        parts[name] = {int(card): UNITS if which == NUMBER else amount for card in texts[KEY].split(",")}
        assert all(sum(part.get(card, 0) for part in parts.values()) <= UNITS for card in range(CARDS))
        # One that starts now comes to the same.
        anew = view_of(*stored.values(), node())
        assert [one.nodes for one in anew.packings] == [one.nodes for one in view.packings]
