"""Whatever happens in whatever order: no card is given out twice, and what pods say is what their containers have."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.unit.scheduled.cards import KEEP, make_cards
from tests.unit.scheduled.node_model import Node, Shape

from fairlead.model.assign import Assign
from fairlead.model.resource import Terms

SINGLE = [Shape((2,)), Shape((4,)), Shape((4,))]
SHAPES = [
    *SINGLE,
    Shape((2, 4)),
    Shape((4, 2)),
    Shape((4, 4)),
    Shape((2,), init=(4,)),
    Shape((4,), init=(4,)),
    Shape((4,), init=(2, 6)),
]
STEPS = (
    *("bind",) * 5,
    *("admit",) * 5,
    *("end", "verify", "write", "sync", "sync"),
    *("vanish", "stop", "restart", "fail", "forget", "time"),
)
steps = st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 2**16)), min_size=1, max_size=40)


async def play(plan: list[tuple[str, int]], seed: int, assign: Assign | None = None) -> Node:
    node = Node(seed, replace(make_cards(), terms=Terms(assign=assign)) if assign is not None else None)
    for step, number in plan:
        waiting = [uid for uid, pod in node.api.items() if pod.phase == "Pending" and uid not in node.ledger]
        running = [uid for uid, pod in node.api.items() if pod.phase == "Running"]
        ghosts = [uid for uid in node.ledger if uid not in node.api]
        match step:
            case "bind":
                node.bind(SHAPES[number % len(SHAPES)])
            case "admit" | "fail" | "forget" if waiting:
                uid = waiting[number % len(waiting)]
                places = len(node.api[uid].init_containers) + len(node.api[uid].containers)
                at = 1 + number % places
                # Init containers are not listed by the kubelet: one that it forgot and asks for again cannot be told
                # from that of another pod.
                again = step == "forget" and not node.api[uid].init_containers
                await node.admit(uid, fail_after=at if step == "fail" else -1, forget_after=at if again else -1)
            case "end" if running:
                node.end(running[number % len(running)])
            case "vanish" if running:
                node.vanish(running[number % len(running)])
            case "stop" if ghosts:
                node.end(ghosts[number % len(ghosts)])
            case "verify":
                await node.verify()
            case "write":
                node.write()
            case "sync":
                node.sync()
            case "restart":
                await node.restart()
            case "kill" if waiting:
                uid = waiting[number % len(waiting)]
                places = len(node.api[uid].init_containers) + len(node.api[uid].containers)
                await node.admit(uid, kill_at=number % (places + 1))
            case "another" if waiting:  # ours is taken away for a while, and comes back
                await node.calm()
                node.serve_by_another_plugin(waiting[number % len(waiting)])
                node.start()
            case "kubelet":
                node.restart_kubelet()
            case "have pods":
                node.have_pods()
            case "faulty":
                node.bind(SHAPES[number % len(SHAPES)], card=("7", "")[number % 2])
            case "time":
                await node.clock.advance(number % 15)
        node.check_room()
    return node


@settings(deadline=None, max_examples=40)
@given(steps, st.integers(0, 2**16))
def test_no_card_is_given_out_twice_and_pods_say_what_they_have(plan: list[tuple[str, int]], seed: int):
    async def run() -> None:
        node = await play(plan, seed)
        await node.settle()
        node.check_room()
        node.check_settled()

    asyncio.run(run())


# Each once ended with a card given out twice, or with ids that are not of the card that the container was told.
ONCE_WRONG = {
    "the pod it was taken for has other ids, and no pod is left to hand it to": (
        *("bind 8", "bind 8", "admit 15", "fail 19", "bind 7", "admit 6", "restart 1", "bind 7", "bind 15", "admit 7"),
        "admit 17",
    ),
    "an init container was taken for one of a pod that has other ids": (
        *("bind 6", "bind 6", "bind 6", "bind 6", "bind 7", "admit 18", "admit 6", "restart 19", "bind 7", "admit 17"),
        "admit 19",
    ),
    "a pod that waits is assigned a card that is full": (
        *("bind 7", "admit 0", "bind 7", "bind 7", "bind 7", "bind 6", "vanish 12", "admit 7", "admit 10", "admit 4"),
        "admit 1",
    ),
    "a pod that waits is assigned a card that another pod may have": (
        *("bind 7", "bind 6", "admit 19", "bind 8", "restart 7", "admit 15", "admit 0", "vanish 15", "bind 19"),
        *("bind 6", "admit 16", "admit 4"),
    ),
}


@pytest.mark.parametrize(("plan", "seed"), list(zip(ONCE_WRONG.values(), (1, 3, 4, 1), strict=True)), ids=ONCE_WRONG)
async def test_what_once_went_wrong(plan: tuple[str, ...], seed: int):
    node = await play([(step, int(number)) for step, number in map(str.split, plan)], seed)
    await node.settle()
    node.check_room()
    node.check_settled()


KUBELET = (*STEPS, "kubelet", "have pods")  # then ids may be another card's
HARSH = (*KUBELET, *("kill",) * 3, *("another",) * 2, "faulty")
kubelet = st.lists(st.tuples(st.sampled_from(KUBELET), st.integers(0, 2**16)), min_size=1, max_size=40)
harsh = st.lists(st.tuples(st.sampled_from(HARSH), st.integers(0, 2**16)), min_size=1, max_size=40)


@settings(deadline=None, max_examples=40)
@given(harsh, st.integers(0, 2**16), st.sampled_from([None, KEEP]))
def test_after_kills_faulty_pods_and_a_change_of_plugins_as_well(
    plan: list[tuple[str, int]], seed: int, assign: Assign | None
):
    """What is not known is counted on every card where it may be, and told."""

    async def run() -> None:
        node = await play(plan, seed, assign)
        await node.settle()
        node.check_room()
        node.check_known()
        node.check_settled(ids=False)

    asyncio.run(run())


@settings(deadline=None, max_examples=40)
@given(kubelet, st.integers(0, 2**16))
def test_a_scheduler_that_counts_by_what_it_wrote_counts_right_at_every_moment(plan: list[tuple[str, int]], seed: int):
    """In any order of admissions, what it wrote stays; and an empty node is empty in its books."""

    async def run() -> None:
        node = await play(plan, seed, KEEP)
        await node.settle()
        node.check_settled(ids=False)
        for card, booked in node.extender.pods.items():
            assert set(booked) == {uid for uid, pod in node.api.items() if pod.annotations["card"] == card}
        for uid in [*node.api, *node.ledger]:
            node.end(uid)
        node.have_pods()
        await node.settle()
        assert not any(node.extender.pods.values())
        for _ in node.extender.pods:
            whole = node.bind(Shape((8,)))
            assert whole is not None
            node.sync()
            assert await node.admit(whole), node.refused

    asyncio.run(run())


@settings(deadline=None, max_examples=30)
@given(st.data(), st.integers(0, 2**16), st.sampled_from([None, KEEP]))
def test_in_the_kubelets_order_faulty_pods_are_refused_and_all_others_get_what_they_were_promised(
    data: st.DataObject, seed: int, assign: Assign | None
):
    """Whether or not the watch has told that those before have failed."""

    async def run() -> None:
        node = Node(seed, replace(make_cards(), terms=Terms(assign=assign)) if assign is not None else None)
        bound: dict[str, str | None] = {}
        for card in data.draw(st.lists(st.sampled_from([None, None, "7", ""]), min_size=1, max_size=10)):
            if (new := node.bind(data.draw(st.sampled_from(SHAPES)), card)) is not None:
                bound[new] = node.api[new].annotations["card"] if card is None else None
        node.sync()
        for uid, promised in bound.items():
            assert await node.admit(uid) is (promised is not None), (uid, node.refused)
            if promised is not None:
                assert {given.told for given in node.ledger[uid].values()} == {(promised,)}
            for step in data.draw(st.lists(st.sampled_from(["verify", "write", "sync"]), max_size=2)):
                match step:
                    case "verify":
                        await node.verify()
                    case "write":
                        node.write()
                    case "sync":
                        node.sync()
        await node.settle()
        assert not node.wrong

    asyncio.run(run())


@settings(deadline=None, max_examples=30)
@given(st.data(), st.integers(0, 2**16))
def test_nobody_is_refused_whose_promise_can_be_kept(data: st.DataObject, seed: int):
    """In any order, with looks at the kubelet at any time, while the watch tells everything."""

    async def run() -> None:
        node = Node(seed)
        for _ in range(data.draw(st.integers(1, 3))):
            bound = [node.bind(data.draw(st.sampled_from(SINGLE))) for _ in range(data.draw(st.integers(1, 6)))]
            for uid in data.draw(st.permutations([uid for uid in bound if uid is not None])):
                node.sync()
                assert await node.admit(uid), node.refused
                node.check_room()
                for step in data.draw(st.lists(st.sampled_from(["verify", "write", "restart"]), max_size=2)):
                    if step == "verify":
                        await node.verify()
                    elif step == "write":
                        node.write()
                    else:
                        node.start()
            await node.settle()
            node.check_settled()
            assert not node.wrong
            for uid in data.draw(st.lists(st.sampled_from(sorted(node.api)), unique=True)):
                node.end(uid)
            node.sync()

    asyncio.run(run())


@settings(deadline=None, max_examples=30)
@given(st.data(), st.integers(0, 2**16), st.sampled_from([None, KEEP]))
def test_a_kubelet_that_restarted_and_counts_ended_pods_costs_no_pod_its_card(
    data: st.DataObject, seed: int, assign: Assign | None
):
    """It offers no ids of a card that it takes to be full: ids of another card then stand for it."""

    async def run() -> None:
        node = Node(seed, replace(make_cards(), terms=Terms(assign=assign)) if assign is not None else None)
        for _ in range(data.draw(st.integers(1, 3))):
            for uid in [node.bind(data.draw(st.sampled_from(SINGLE))) for _ in range(data.draw(st.integers(1, 4)))]:
                if uid is not None and len(node.resource.slots) - len(node.counted) - sum(node.load().values()) >= 4:
                    node.sync()
                    promised = node.api[uid].annotations["card"]
                    assert await node.admit(uid), node.refused
                    assert {given.told for given in node.ledger[uid].values()} == {(promised,)}
                    node.check_room()
                    await node.verify()
            await node.settle()
            for uid in data.draw(st.lists(st.sampled_from(sorted(node.api)), unique=True)):
                node.end(uid)
            node.sync()
            if data.draw(st.booleans()):
                await node.verify()
            node.restart_kubelet()
        assert not node.wrong

    asyncio.run(run())
