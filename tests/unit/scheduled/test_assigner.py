"""Assigning against an API server that is slow, away or forbids: bounded waits, plain errors, and it goes on after."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace
from tests.apiserver.server import Fault
from tests.unit.scheduled.cards import ASSIGN, MEMORY, ROOM, make_cards
from tests.unit.scheduled.desk import FAST, desk

from fairlead.model.assign import NodeEnv
from fairlead.model.edits import Edits
from fairlead.model.errors import ClusterAway, NotAssigned
from fairlead.model.holdings import Holdings
from fairlead.model.resource import Terms


async def test_a_pod_is_marked_and_the_node_unlocked():
    async with desk() as at:
        at.bind("p", 4, card="1", time="1")
        await at.seen()
        grant = await at.admit("p", 4)
        assert [device.index for device in grant.devices] == ["1"]
        assert grant.variables["podName"] == "p"
        await at.until(lambda: at.annotations("p").get("assigned") == "true")
        await at.until(lambda: "lock" not in at.server.store.get("nodes", "n1")["metadata"]["annotations"])


async def test_before_the_pods_are_read_the_wait_is_bounded():
    async with desk(run=False) as at:
        with pytest.raises(ClusterAway, match=r"which pod of node 'n1' asks for 4 of it is not known: no answer yet"):
            await at.admit("p", 4)


async def test_an_api_server_that_is_away_is_told_and_comes_back():
    async with desk() as at:
        at.bind("p", 4, card="1", time="1")
        await at.seen()
        await at.server.stop()
        async with asyncio.timeout(20):
            async for now in at.assigner.pods.latest.follow():
                if now.problem:
                    break
        with pytest.raises(ClusterAway, match=r"asks for 4 of it is not known: .*127\.0\.0\.1"):
            await at.admit("p", 4)
        await at.server.start()
        await at.seen()
        assert [device.index for device in (await at.admit("p", 4)).devices] == ["1"]


async def test_marks_that_are_forbidden_are_told_with_the_verb_and_are_written_when_they_may_be():
    async with desk() as at:
        at.server.allowed = {("list", "pods"), ("watch", "pods")}
        at.bind("p", 4, card="1", time="1")
        await at.seen()
        await at.admit("p", 4)
        # Neither waits for the other.
        await at.until(lambda: "pod default/p is not annotated" in at.problems.get("annotations", ""))
        assert "patch" in at.problems["annotations"]
        assert "node 'n1' keeps its annotation lock" in at.problems["annotations"]
        at.server.allowed.add(("patch", "pods"))
        await at.until(lambda: at.annotations("p").get("assigned") == "true")
        await at.until(lambda: "is not annotated" not in at.problems["annotations"])
        assert "keeps its annotation lock" in at.problems["annotations"]
        at.server.allowed.add(("patch", "nodes"))
        await at.until(lambda: not at.problems["annotations"])


async def test_a_server_that_hangs_delays_marks_and_nothing_else():
    async with desk() as at:
        at.server.faults.append(Fault(hang=True, methods="PATCH"))
        for card in ("1", "2"):
            at.bind(f"p{card}", 4, card=card, time=card)
            await at.seen()
            assert [device.index for device in (await at.admit(f"p{card}", 4)).devices] == [card]


async def test_a_pod_that_comes_while_the_kubelet_waits():
    async with desk(replace(ASSIGN, wait_s=20.0)) as at:
        waiting = asyncio.create_task(at.admit("p", 4))
        await asyncio.sleep(0)
        at.bind("p", 4, card="2", time="1")
        assert [device.index for device in (await waiting).devices] == ["2"]


async def test_an_older_pod_that_lacks_something_is_waited_for_before_a_younger_one_is_served():
    async with desk(replace(ASSIGN, wait_s=20.0, needs=("port",))) as at:
        at.bind("old", 4, card="1", time="1")
        at.bind("young", 4, card="2", time="2", port="7")
        await at.seen()
        waiting = asyncio.create_task(at.admit("old", 4))
        await asyncio.sleep(0)
        at.bind("old", 4, card="1", time="1", port="6")
        grant = await waiting
        assert (grant.variables["podName"], grant.variables["annotation:port"]) == ("old", "6")


@pytest.mark.parametrize("card", ["7", ""], ids=["index", "no-index"])
async def test_a_faulty_pod_is_refused_with_its_fault_and_the_next_one_gets_its_device(card: str):
    async with desk() as at:
        at.bind("faulty", 4, **({"card": card} if card else {}))
        at.bind("good", 4, card="1", time="1")
        await at.seen()
        with pytest.raises(NotAssigned, match="default/faulty: its annotation card"):
            await at.admit("faulty", 4)
        at.server.store.remove("pods", "faulty", "default")  # the kubelet has failed it
        assert [device.index for device in (await at.admit("good", 4)).devices] == ["1"]
        await at.until(lambda: at.annotations("good").get("assigned") == "true")


async def test_an_older_pod_that_never_gets_what_it_needs_is_refused_and_the_younger_one_served():
    async with desk(replace(FAST, needs=("port",))) as at:
        at.bind("old", 4, card="1", time="1")
        at.bind("young", 4, card="2", time="2", port="7")
        await at.seen()
        with pytest.raises(NotAssigned, match="default/old: its annotation port is not there"):
            await at.admit("old", 4)
        assert (await at.admit("young", 4)).variables["podName"] == "young"


async def test_whether_a_faulty_pod_was_refused_is_seen_before_the_next_one_is_served():
    """The kubelet asked for the good one first, against the order. So the question after that is for the faulty one."""
    async with desk(replace(FAST, wait_s=20.0)) as at:
        at.bind("faulty", 4, card="7")
        at.bind("good", 4, card="1", time="1")
        await at.seen()
        with pytest.raises(NotAssigned, match="default/faulty"):
            await at.admit("good", 4)
        asking = asyncio.create_task(at.admit("faulty", 4))
        await asyncio.sleep(0)
        at.server.store.remove("pods", "good", "default")
        with pytest.raises(NotAssigned, match="default/faulty: its annotation card names '7'"):
            await asking


async def test_a_pod_whose_place_another_was_refused_in_is_served_when_it_asks_itself():
    """A kubelet that was killed asks anew for a pod that has ended, and that the API server still calls Running."""
    async with desk() as at:
        at.bind("first", ROOM, card="1", time="1")
        await at.seen()
        await at.admit("first", ROOM)
        at.bind("p", 4, card="1", time="2")
        await at.seen()
        with pytest.raises(NotAssigned, match="default/p: 4 units do not fit"):
            await at.admit("ended", 4)
        at.held.clear()
        at.server.store.remove("pods", "first", "default")
        await at.seen()
        assert (await at.admit("p", 4)).variables["podName"] == "p"


async def test_a_container_that_no_pod_explains_is_refused_without_a_wait():
    """The pods were read after the question: a pod that is not among them does not come."""
    async with asyncio.timeout(20), desk(replace(ASSIGN, wait_s=600.0)) as at:
        at.bind("p", 3, card="1", time="1")
        await at.seen()
        with pytest.raises(NotAssigned, match="no pod asks for 4; default/p asks for 3"):
            await at.admit("x", 4)


async def test_a_lock_is_taken_off_when_the_pod_fails_between_two_containers():
    async with desk() as at:
        meta = {"name": "p", "namespace": "default", "uid": "u", "annotations": {"card": "1", "time": "1"}}
        containers = [{"name": f"c{n}", "resources": {"limits": {MEMORY: "2"}}} for n in range(2)]
        spec = {"nodeName": "n1", "containers": containers}
        at.server.store.put("pods", {"metadata": meta, "spec": spec, "status": {"phase": "Pending"}}, "default")
        await at.seen()
        await at.admit("p", 2)
        assert "lock" in at.server.store.get("nodes", "n1")["metadata"]["annotations"]
        at.held.clear()
        at.server.store.remove("pods", "p", "default")
        await at.until(lambda: "lock" not in at.server.store.get("nodes", "n1")["metadata"]["annotations"])


async def test_labels_of_the_node_are_known_before_a_container_begins():
    labelled = replace(FAST, node_env=(NodeEnv("isolation", "off", {"PLAIN": "yes"}),))
    async with desk(labelled, node=False) as at:
        at.bind("p", 4, card="1", time="1")
        await at.seen()
        with pytest.raises(ClusterAway, match="its labels are not read yet"):
            await at.admit("p", 4)
        at.server.store.put("nodes", {"metadata": {"name": "n1", "labels": {"isolation": "off"}}, "status": {}})
        at.use(replace(at.resource, terms=Terms(assign=replace(labelled, wait_s=20.0))))
        await at.admit("p", 4)
        assert at.assigner.env(at.resource) == {"PLAIN": "yes"}


async def test_who_has_what_is_not_known():
    async with desk() as at:
        at.blind = "the socket is not there"
        at.bind("old", 6, card="1", time="1", assigned="true")
        at.server.store.put(
            "pods", {**at.server.store.get("pods", "old", "default"), "status": {"phase": "Running"}}, "default"
        )
        at.bind("new", 4, card="1", time="2")
        at.bind("other", 4, card="2", time="3")
        await at.seen()
        # What pods say of themselves counts.
        grant = await at.admit("other", 4)
        assert grant.variables["podName"] == "other"
        at.server.store.remove("pods", "other", "default")
        await at.seen()
        with pytest.raises(NotAssigned, match="default/new: 4 units do not fit: GPU-1 has 2"):
            await at.admit("new", 4)
        assert at.problems["assign"] == "whether pods have the right devices is not known: the socket is not there"


async def test_a_pod_with_two_resources_is_marked_when_it_has_both():
    async with desk() as at:
        other = replace(at.resource, name="example.com/other")
        at.use(at.resource, other)
        limits = {MEMORY: "2", "example.com/other": "3"}
        meta = {"name": "p", "namespace": "default", "uid": "u", "annotations": {"card": "1", "time": "1"}}
        spec = {"nodeName": "n1", "containers": [{"name": "main", "resources": {"limits": limits}}]}
        at.server.store.put("pods", {"metadata": meta, "spec": spec, "status": {"phase": "Pending"}}, "default")
        await at.seen()
        await at.admit("p", 2)
        await at.assigner._observe(MEMORY, 1.0, grace_s=0.0)
        assert not at.assigner._annotator._pending
        assert [device.index for device in (await at.admit("p", 3, other)).devices] == ["1"]
        await at.until(lambda: at.annotations("p").get("assigned") == "true")


async def test_a_rule_that_loses_its_assign_while_a_question_is_under_way():
    async with desk() as at:
        at.use()
        with pytest.raises(NotAssigned, match="the rule has just lost its assign"):
            await at.admit("p", 4)
        assert at.assigner.env(at.resource) == {}


async def test_a_rule_that_loses_its_assign_while_another_resource_is_verified():
    async with desk() as at:
        other = replace(at.resource, name="example.com/other")

        async def reload_meanwhile(_timeout_s: float) -> Holdings:
            at.use(at.resource)
            return Holdings(at.held)

        at.assigner._read_holders = reload_meanwhile
        at.use(at.resource, other)
        await at.until(lambda: f"assign {MEMORY}" in at.problems)  # the first is verified, and the second is gone
        await asyncio.sleep(0.05)
        at.bind("p", 4, card="1", time="1")
        await at.seen()
        assert [device.index for device in (await at.admit("p", 4)).devices] == ["1"]
        await at.until(lambda: at.annotations("p").get("assigned") == "true")


async def test_a_pod_that_was_refused_stays_so_while_the_pods_are_read_anew():
    async with desk() as at:
        at.bind("a", 4, card="9", time="1")
        await at.seen()
        with pytest.raises(NotAssigned, match="names '9'"):
            await at.admit("a", 4)
        at.server.freeze()
        at.assigner._reread.set()  # as rules that read other annotations do
        async with asyncio.timeout(20):
            async for now in at.assigner.pods.latest.follow():
                if not now.complete:
                    break
        explained = at.assigner.explain(MEMORY, 4)
        assert explained is not None
        assert explained.reason == "its pods are not read yet"
        at.server.thaw()
        at.bind("b", 4, card="1", time="2")
        await at.seen()
        assert [device.index for device in (await at.admit("b", 4)).devices] == ["1"]


@pytest.mark.parametrize("path", ["/pods/", "/nodes/"])
async def test_what_a_run_that_was_cancelled_has_not_written_is_written_by_the_next(path: str):
    async with desk(run=False) as at:
        first = asyncio.create_task(at.assigner.run())
        at.server.faults.append(Fault(hang=True, methods="PATCH", path=path))
        at.bind("p", 4, card="1", time="1")
        await at.seen()
        await at.admit("p", 4)
        async with asyncio.timeout(20):
            while at.server.faults:  # noqa: ASYNC110 - a fault that is met sets no event
                await asyncio.sleep(0.01)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        second = asyncio.create_task(at.assigner.run())
        try:
            await at.until(lambda: at.annotations("p").get("assigned") == "true")
            await at.until(lambda: "lock" not in at.server.store.get("nodes", "n1")["metadata"]["annotations"])
        finally:
            second.cancel()
            await asyncio.gather(second, return_exceptions=True)


async def test_a_container_that_was_told_another_pods_name_is_reported():
    async with desk() as at:
        at.use(replace(at.resource, terms=replace(at.resource.terms, extra=Edits(env={"POD": "{podName}"}))))
        at.bind("a", 4, card="1", time="1")
        at.bind("b", 4, card="2", time="2")
        await at.seen()
        await at.admit("b", 4)
        await at.admit("a", 4)
        topic = f"assign {MEMORY}"
        await at.until(
            lambda: "default/b was given the name and annotations of default/a" in at.problems.get(topic, "")
        )
        assert "Delete the pod, so that it is admitted anew" in at.problems[topic]
        await at.until(lambda: at.annotations("b").get("card") == "1")


@pytest.mark.parametrize(("card", "served"), [("", True), ("0", True), ("3", False)])
async def test_the_only_device_goes_to_whoever_asks_unless_another_was_meant(card: str, served: bool):
    only = replace(FAST, only_device=True, time_required=True)
    async with desk(only) as at:
        at.resource = replace(make_cards(1), terms=Terms(assign=only))
        at.use(at.resource)
        at.bind("p", 4, **({"card": card, "time": "1"} if card else {}))
        await at.seen()
        if served:
            assert [device.index for device in (await at.admit("p", 4)).devices] == ["0"]
        else:
            with pytest.raises(NotAssigned, match="names '3'; this node has 0"):
                await at.admit("p", 4)
