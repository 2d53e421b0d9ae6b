"""Assigning against an API server that is slow, away or forbids: bounded waits, plain errors, and it goes on after."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from msgspec.structs import replace
from tests.apiserver.server import Fault
from tests.apiserver.trouble import TroubledServer, troubled_server
from tests.unit.app.node_model import ASSIGN, MEMORY, make_cards

from fairlead.app.assigning import Assigner
from fairlead.app.cluster import Cluster
from fairlead.cluster.access import Access, parse_server
from fairlead.cluster.client import Client
from fairlead.cluster.credentials import Fixed
from fairlead.cluster.tls import Trust
from fairlead.kubelet.podresources import Holder, Holdings, Unknown
from fairlead.model.assign import Assign, NodeEnv
from fairlead.model.clock import SystemClock
from fairlead.model.edits import Edits, Grant
from fairlead.model.errors import ClusterAway, NotAssigned
from fairlead.model.names import SlotId
from fairlead.model.ports import Clock
from fairlead.model.resource import Resource

FAST = replace(ASSIGN, wait_s=0.05)


class Desk:
    def __init__(self, server: TroubledServer, resource: Resource, clock: Clock) -> None:
        access = Access(parse_server(server.url), Trust(), Fixed(), source="test")
        self.cluster = Cluster(Client(access, clock), "n1")
        self.server, self.resource = server, resource
        self.facts: list[tuple[str, dict[str, Any]]] = []
        self.problems: dict[str, str] = {}
        self.held: dict[tuple[Any, SlotId], Holder] = {}
        self.blind = ""
        self.news = asyncio.Event()
        self.assigner = Assigner(self.cluster, clock, self._record, self._note, self._holders)
        self.use(resource)

    def use(self, *resources: Resource) -> None:
        self.assigner.read([resource.assign for resource in resources if resource.assign])
        self.assigner.tell(resources)

    def _record(self, kind: str, **keys: Any) -> None:
        self.facts.append((kind, keys))
        self.news.set()

    def _note(self, topic: str, problem: str) -> None:
        self.problems[topic] = problem
        self.news.set()

    async def _holders(self, _timeout_s: float) -> Holdings | Unknown:
        return Unknown(self.blind) if self.blind else Holdings(self.held)

    async def until(self, condition: Callable[[], Any]) -> None:
        """Until something was recorded, noted or stored that makes it true."""
        async with asyncio.timeout(20):
            while not condition():
                self.news.clear()
                waits = [asyncio.ensure_future(self.news.wait()), asyncio.ensure_future(self.server.store.news())]
                _, pending = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                for wait in pending:
                    wait.cancel()

    def bind(self, name: str, amount: int, resource: str = MEMORY, **annotations: str) -> None:
        meta = {"name": name, "namespace": "default", "uid": f"uid-{name}", "annotations": annotations}
        container = {"name": "main", "resources": {"limits": {resource: str(amount)}}}
        spec = {"nodeName": "n1", "containers": [container]}
        self.server.store.put("pods", {"metadata": meta, "spec": spec, "status": {"phase": "Pending"}}, "default")

    async def seen(self) -> None:
        """The watch has told all there is."""
        names = {name for kind, _, name in self.server.store.objects if kind == "pods"}
        async with asyncio.timeout(20):
            async for now in self.assigner.pods.latest.follow():
                if now.complete and not now.problem and {pod.name for pod in now.pods.values()} == names:
                    return

    async def admit(self, pod: str, amount: int, resource: Resource | None = None) -> Grant:
        resource = resource or self.resource
        taken = {slot for name, slot in self.held if name == resource.name}
        free = [slot.id for slot in resource.slots if slot.id not in taken]
        chosen = list(free[:amount])
        with suppress(NotAssigned, ClusterAway):
            chosen = list(await self.assigner.prefer(resource, free, [], amount)) or chosen
        try:
            grant = await self.assigner.confirm(resource, chosen)
        except (NotAssigned, ClusterAway):
            self.assigner.forget(resource, [])
            raise
        self.held |= {(resource.name, SlotId(slot)): Holder("default", pod, "main") for slot in chosen}
        return grant

    def annotations(self, name: str) -> dict[str, str]:
        found: dict[str, str] = self.server.store.get("pods", name, "default")["metadata"]["annotations"]
        return found


@asynccontextmanager
async def desk(
    assign: Assign = FAST, *, node: bool = True, run: bool = True, clock: Clock | None = None
) -> AsyncIterator[Desk]:
    async with troubled_server() as server:
        if node:
            meta = {"name": "n1", "annotations": {"lock": "x"}, "labels": {}}
            server.store.put("nodes", {"metadata": meta, "status": {}})
        at = Desk(server, replace(make_cards(), assign=assign), clock or SystemClock())
        task = asyncio.create_task(at.assigner.run()) if run else None
        try:
            if run:
                await at.seen()
            yield at
        finally:
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            await at.cluster.close()


async def test_a_pod_is_marked_and_the_node_unlocked():
    async with desk() as at:
        at.bind("p", 4, card="1", time="1")
        await at.seen()
        grant = await at.admit("p", 4)
        assert [device.index for device in grant.devices] == ["1"]
        assert grant.words["podName"] == "p"
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
        await at.until(lambda: "pod default/p is not marked" in at.problems.get("marks", ""))
        assert "patch" in at.problems["marks"]
        assert "node 'n1' keeps its annotation lock" in at.problems["marks"]
        at.server.allowed.add(("patch", "pods"))
        await at.until(lambda: at.annotations("p").get("assigned") == "true")
        await at.until(lambda: "is not marked" not in at.problems["marks"])
        assert "keeps its annotation lock" in at.problems["marks"]
        at.server.allowed.add(("patch", "nodes"))
        await at.until(lambda: not at.problems["marks"])


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
        assert (grant.words["podName"], grant.words["annotation:port"]) == ("old", "6")


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
        assert (await at.admit("young", 4)).words["podName"] == "young"


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
        at.use(replace(at.resource, assign=replace(labelled, wait_s=20.0)))
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
        assert grant.words["podName"] == "other"
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
        await at.assigner._reconcile(at.assigner._books[MEMORY], 1.0, grace_s=0.0)
        assert not at.assigner._marker._due
        assert [device.index for device in (await at.admit("p", 3, other)).devices] == ["1"]
        await at.until(lambda: at.annotations("p").get("assigned") == "true")


async def test_a_rule_that_loses_its_assign_while_a_question_is_under_way():
    async with desk() as at:
        at.use()
        with pytest.raises(NotAssigned, match="the rule has just lost its assign"):
            await at.admit("p", 4)
        assert at.assigner.env(at.resource) == {}


async def test_a_container_that_was_told_another_pods_name_is_reported():
    async with desk() as at:
        at.use(replace(at.resource, extra=Edits(env={"POD": "{podName}"})))
        at.bind("a", 4, card="1", time="1")
        at.bind("b", 4, card="2", time="2")
        await at.seen()
        await at.admit("b", 4)
        await at.admit("a", 4)
        topic = f"assign {MEMORY}"
        await at.until(lambda: "default/b was told the name and annotations of default/a" in at.problems.get(topic, ""))
        assert "Delete the pod, so that it is admitted anew" in at.problems[topic]
        await at.until(lambda: at.annotations("b").get("card") == "1")


@pytest.mark.parametrize(("card", "served"), [("", True), ("0", True), ("3", False)])
async def test_the_only_device_goes_to_whoever_asks_unless_another_was_meant(card: str, served: bool):
    only = replace(FAST, only_device=True, time_required=True)
    async with desk(only) as at:
        at.resource = replace(make_cards(1), assign=only)
        at.use(at.resource)
        at.bind("p", 4, **({"card": card, "time": "1"} if card else {}))
        await at.seen()
        if served:
            assert [device.index for device in (await at.admit("p", 4)).devices] == ["0"]
        else:
            with pytest.raises(NotAssigned, match="names '3'; this node has 0"):
                await at.admit("p", 4)
