"""Pods that have another card than they were promised, or of which nothing says which: counted, told, marked."""

from __future__ import annotations

from msgspec.structs import replace
from tests.unit.scheduled.cards import KEEP, MEMORY, ROOM, make_cards
from tests.unit.scheduled.node_model import Node, Shape

from fairlead.model.resource import Terms

FOUR = Shape((4,))


def keeping() -> Node:
    """A node whose scheduler counts by what it wrote."""
    return Node(resource=replace(make_cards(2), terms=Terms(assign=KEEP)))


def bound(node: Node, shape: Shape, card: str) -> str:
    uid = node.bind(shape, card)
    assert uid is not None
    node.sync()
    return uid


def told(node: Node, uid: str) -> tuple[str, ...]:
    (given,) = node.ledger[uid].values()
    return given.told


async def test_equal_pods_admitted_in_reverse_leave_the_schedulers_books_right():
    node = keeping()
    first, second = bound(node, FOUR, "0"), bound(node, FOUR, "1")
    assert await node.admit(second)
    assert await node.admit(first)
    assert told(node, first) == ("0",), "it was seen in time whose the first answer was"
    await node.settle()
    assert [node.api[uid].annotations["card"] for uid in (first, second)] == ["0", "1"]
    assert node.api[second].annotations["actual"] == '{"main0":{"0":4}}'
    assert "actual" not in node.api[first].annotations
    assert all(node.api[uid].annotations["assigned"] == "true" for uid in (first, second))
    assert node.problems[f"assign {MEMORY}"].startswith("default/p2 has GPU-0, and was assigned 1")
    assert "assignment-wrong" in dict(node.facts)
    node.end(first)
    node.end(second)
    assert [node.extender.free(card) for card in ("0", "1")] == [ROOM, ROOM]
    for card in ("0", "1"):
        assert await node.admit(bound(node, Shape((ROOM,)), card))
    await node.settle()
    assert not node.problems[f"assign {MEMORY}"]


async def test_a_full_card_sends_the_pod_to_the_one_that_is_free_because_of_it_and_never_beyond_its_size():
    node = keeping()
    first, second = bound(node, Shape((ROOM,)), "0"), bound(node, Shape((ROOM,)), "1")
    assert await node.admit(second)
    assert await node.admit(first)
    node.check_room()
    assert (told(node, second), told(node, first)) == (("0",), ("1",))
    await node.settle()
    assert node.wrong == {first, second}
    # In the scheduler's books card 0 is free now. In truth it is card 1.
    node.end(first)
    third = bound(node, Shape((ROOM,)), "0")
    assert await node.admit(third)
    node.check_room()
    assert told(node, third) == ("1",)


async def test_a_daemon_that_is_started_anew_knows_who_is_astray():
    node = keeping()
    first, second = bound(node, FOUR, "0"), bound(node, FOUR, "1")
    assert await node.admit(second)
    await node.settle()
    node.end(first)
    node.start()
    await node.settle()
    assert told(node, second) == ("0",)
    assert node.wrong == {second}
    node.check_known()


async def test_after_a_change_of_plugins_a_kill_before_the_mark_promises_nothing_twice():
    """Ids of card 1 are gone, so ours has ids of card 0 and is told card 1. Nothing says so after the kill."""
    node = Node()
    old = bound(node, Shape((ROOM,)), "0")
    node.serve_by_another_plugin(old)
    node.ledger[old]["main0"].slots = frozenset(f"1-{number}" for number in range(ROOM))  # as the kubelet chose
    node.start()
    ours = bound(node, FOUR, "1")
    assert await node.admit(ours, kill_at=1)
    assert told(node, ours) == ("1",)
    node.sync()
    twice = bound(node, Shape((6,)), "1")
    assert not await node.admit(twice)
    node.check_room()
    assert "do not fit" in node.refused[twice]
    await node.settle()
    assert "which device default/p2 has is not known: its ids are of GPU-0" in node.problems[f"assign {MEMORY}"]
    assert "card" in node.api[ours].annotations
    node.check_known()


async def test_a_pod_that_took_the_place_of_a_stale_one_is_found_and_marked_at_the_first_look():
    node = Node()
    stale = bound(node, FOUR, "1")
    node.api.pop(stale)  # and the watch says nothing
    new = node.bind(FOUR, "2")
    assert new is not None
    assert await node.admit(new)
    assert told(node, new) == ("1",)
    await node.verify()
    assert ("assignment-unknown-pod", {"resource": MEMORY, "pod": "default/p2", "container": "main0"}) in node.facts
    node.write()
    await node.verify()
    node.write()
    assert node.api[new].annotations == {"card": "1", "time": "2", "assigned": "true"}
    assert not node.problems[f"strangers {MEMORY}"]


async def test_a_pod_that_the_api_server_does_not_know_is_told():
    node = Node()
    uid = bound(node, FOUR, "1")
    assert await node.admit(uid)
    await node.settle()
    node.vanish(uid)
    node.sync()
    await node.verify()
    assert node.problems[f"strangers {MEMORY}"].startswith("default/p1: the kubelet lists example.com/memory for it")
    node.end(uid)
    await node.verify()
    assert not node.problems[f"strangers {MEMORY}"]


async def test_the_status_shows_the_device_that_a_container_was_told_and_not_that_of_its_ids():
    node = Node()
    old = bound(node, FOUR, "0")
    node.serve_by_another_plugin(old)
    node.ledger[old]["main0"].slots = frozenset({"0-3", "1-0", "1-1", "2-5"})  # as the kubelet chose
    node.start()
    await node.settle()
    assert node.assigner.actual_devices() == {(MEMORY, slot): "GPU-0" for slot in ("1-0", "1-1", "2-5")}
    node.end(old)
    await node.settle()
    assert node.assigner.actual_devices() == {}
