"""Copies of pods and nodes are read once and share what they have in common; nothing is read otherwise for that."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.apiserver.server import api_server
from tests.unit.scheduler.rig import INDEX, MEMORY, as_node, as_pod, node, placed, pod, view_of

from fairlead.cluster.access import Access, parse_server
from fairlead.cluster.client import Client
from fairlead.cluster.kinds import PODS
from fairlead.kit.clock import SystemClock
from fairlead.policy.packing.demand import read_shares
from fairlead.policy.packing.node import Demand, DeviceRoom, Preference
from fairlead.policy.packing.told import key_of, write_told
from fairlead.policy.pods.contract import GPUSHARE
from fairlead.scheduler import alike
from fairlead.scheduler.objects import GROUP_LABELS, PodObject, SeenPod, read_pod
from fairlead.scheduler.reading import Reader, Shape, read_copies_shares
from fairlead.scheduler.view import Terms, View

DEVICES = tuple(tuple(DeviceRoom(str(place), "", 16) for place in range(count)) for count in (1, 2))
WHOLE, HOW = GPUSHARE.whole_label
# Few of each, so that copies are frequent, and each differs from the others in one thing that counts.
pods = st.builds(
    lambda name, amounts, index, label, spec, phase: pod(
        name,
        *amounts,
        meta={"annotations": {"other": name, **index}, "labels": {"app": name, **label}},
        spec=spec,
        status=phase,
    ),
    st.sampled_from(["a", "b"]),
    st.sampled_from([(4,), (5,), (4, 4), ()]),
    st.sampled_from([{}, {INDEX: "0"}, {INDEX: "1"}, {INDEX: "x" * 2000}]),
    st.sampled_from([{}, {WHOLE: HOW}, {GROUP_LABELS[0]: "g"}, {GPUSHARE.devices_label: "2"}]),
    st.sampled_from(
        [
            {},
            {"nodeName": "n1", "priority": 7},
            {"volumes": [{"name": "v"}, {"name": "w", "persistentVolumeClaim": {"claimName": "c"}}]},
            {"schedulingGroup": {"podGroupName": "g"}},
            {"initContainers": [{"name": "i", "resources": {"limits": {MEMORY: "9"}}}]},
            {"initContainers": [{"name": "i", "restartPolicy": "Always", "resources": {"limits": {MEMORY: "9"}}}]},
        ]
    ),
    st.sampled_from([{}, {"phase": "Running"}, {"nominatedNodeName": "n2"}]),
)


def reader() -> Reader:
    return Reader([GPUSHARE], [Preference.TIGHTEST])


@given(st.lists(pods, max_size=12), st.sampled_from([4, 10_000]))
def test_each_pod_is_read_as_if_it_were_the_only_one(things: list[dict[str, Any]], most: int):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(alike, "MOST", most)
        reads = reader()
        for thing in things:
            found = as_pod(thing)
            check(reads, found, reads.pod(found))
            check(reads, found, reads.pod(reads.small_pod(found), small=True))


def check(reads: Reader, found: PodObject, read: tuple[SeenPod, Shape]) -> None:
    seen, shape = read
    alone = read_pod(found, reads.keeps)
    assert seen == alone
    assert shape.demands == reader().demands(alone.pod)
    for devices in DEVICES:
        shares = read_copies_shares(seen.pod, Demand(4), GPUSHARE, devices, shape)
        assert shares == read_shares(alone.pod, Demand(4), GPUSHARE, devices)


def test_copies_of_a_pod_share_what_they_have_in_common():
    reads = reader()
    first, second, other = (
        reads.pod(as_pod(placed(name, units, "n1", 0)))[0].pod for name, units in (("a", 4), ("b", 4), ("c", 5))
    )
    assert (first.uid, second.uid) == ("uid-a", "uid-b")
    assert first.containers is second.containers
    assert first.annotations is second.annotations
    assert first.containers != other.containers


def test_what_a_node_tells_of_its_devices_is_its_own():
    reads = reader()
    told = [write_told([DeviceRoom("0", name, 8)]) for name in ("GPU-a", "GPU-b")]
    nodes = [as_node(node(f"n{place}", annotations={key_of(MEMORY): text})) for place, text in enumerate(told)]
    assert [reads.node(one).devices[0][0].id for one in nodes] == ["GPU-a", "GPU-b"]
    assert [reads.node(reads.small_node(one)).devices[0][0].id for one in nodes] == ["GPU-a", "GPU-b"]


def test_a_node_that_differs_in_an_amount_or_a_label_is_no_copy():
    reads = reader()
    labelled = node("d", labels={GPUSHARE.pods_max_label: "3"})
    plain, again, larger, fewer = (reads.node(as_node(one)) for one in (node("a"), node("b"), node("c", 64), labelled))
    assert plain is again
    assert [device.units for device in larger.devices[0]] == [32, 32]
    assert (plain.pods_max, fewer.pods_max) == ((0,), (3,))


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(alike, "MOST", 50)
    reads = reader()
    for number in range(500):
        reads.pod(as_pod(placed(f"p{number}", 1 + number, f"n{number}", 0)))
    assert len(reads._alike._known) <= 50


def test_what_an_answer_was_worked_out_from_is_held_as_long_as_the_answer():
    class Part:
        pass

    worked, part = alike.Worked[str](), Part()
    held = weakref.ref(part)
    assert worked.get((part,), lambda: "first") == worked.get((part,), lambda: "second") == "first"
    del part
    assert held() is not None  # else another object could have its identity
    assert worked.get((Part(),), lambda: "another") == "another"


def test_nodes_that_come_together_after_their_pods_have_what_their_pods_say():
    things = [placed(f"p{number}", 2 + number, f"n{number % 3}", number % 2) for number in range(9)]
    nodes = [node(f"n{number}") for number in range(3)]
    expected = view_of(*nodes, *things).packings[0].nodes
    view = View([Terms(GPUSHARE)])
    for thing in things:
        view.put_pod(as_pod(thing))
    assert view.put_nodes(map(as_node, nodes))
    assert view.packings[0].nodes == expected
    assert not view.faults
    assert not view.put_nodes(map(as_node, nodes))


async def test_objects_of_a_list_are_made_small_page_by_page():
    async with api_server() as server:
        for number in range(3):
            thing = placed(f"p{number}", 4, "n1", 0)
            thing["metadata"]["annotations"]["other"] = "x" * 1000
            server.store.put("pods", thing, "default")
        client = Client(Access(parse_server(server.url, where="test"), source="test"), SystemClock())
        reads, asked = reader(), list[int]()

        def shrink(found: PodObject) -> PodObject:
            asked.append(len(server.requests))
            return reads.small_pod(found)

        listed = await client.list(PODS, PodObject, page=1, shrink=shrink)
        await client.close()
    assert asked == [1, 2, 3]
    assert [one.metadata.annotations for one in listed.items] == [{INDEX: "0"}] * 3
    assert [one.metadata.uid for one in listed.items] == ["uid-p0", "uid-p1", "uid-p2"]
