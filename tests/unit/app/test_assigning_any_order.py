"""Whatever happens in whatever order: no card is given out twice, and what pods say is what their containers have."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.app.node_model import Node, Shape

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


async def play(plan: list[tuple[str, int]], seed: int) -> Node:
    node = Node(seed)
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
                node.start()
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
