"""What the extender knows, from what watches show: nodes that change under their pods, and pods that say odd things."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.scheduler.rig import COUNT, INDEX, MEMORY, as_node, as_pod, node, placed, pod, view_of

from fairlead.policy.packing.node import DeviceRoom
from fairlead.policy.packing.packing import Origin
from fairlead.policy.packing.told import key_of, write_told
from fairlead.policy.pods.contract import GPUSHARE, VOLCANO_MEMORY, native
from fairlead.policy.pods.requests import Fault
from fairlead.scheduler.answers import best_nodes, refusals, scores
from fairlead.scheduler.objects import read_pod
from fairlead.scheduler.view import TENTATIVE_S, WAITING_S, Asked, Terms, View


def asked(view: View, thing: dict[str, Any]) -> Asked:
    found = view.asked(read_pod(as_pod(thing), view.keeps))
    assert isinstance(found, Asked)
    return found


def test_pods_that_are_seen_before_their_node_count_when_it_comes():
    view = view_of(placed("a", 9, "n1", 1), node("n1"))
    assert view.packings[0].nodes["n1"].used == (0, 9)
    assert view.faults == {}


@pytest.mark.parametrize("names", [["small", "full", "none"], ["none", "full", "small"]])
def test_each_node_is_refused_for_its_own_devices(names: list[str]):
    view = view_of(node("small", 16), node("full", 32), placed("a", 9, "full", 0), placed("b", 12, "full", 1))
    why = refusals(view, asked(view, pod("p", 10)), names)
    assert set(why.now) == {"full"}
    assert set(why.for_good) == {"small", "none"}
    assert "10 asked, at most 7 free" in why.now["full"]
    assert "smaller or fewer" in why.for_good["small"]


def test_devices_that_the_node_names_otherwise_now_are_found_again():
    view = view_of(node("n1"), placed("a", 9, "n1", 1))
    told = write_told([DeviceRoom("1", "GPU-b", 20), DeviceRoom("0", "GPU-a", 12)])
    annotations = {key_of(MEMORY): told}
    assert view.put_node(as_node(node("n1", annotations=annotations)))
    assert view.packings[0].nodes["n1"].used == (9, 0)
    assert not view.put_node(as_node(node("n1", annotations=annotations)))


def test_a_pod_that_does_not_say_where_it_is_counts_where_there_is_one_device():
    view = view_of(node("one", 16, 1), node("two", 32, 2), pod("a", 5, on="one"), pod("b", 5, on="two"))
    assert view.packings[0].nodes["one"].used == (5,)
    assert view.packings[0].nodes["two"].used == (0, 0)
    assert view.faults == dict.fromkeys(("uid-a", "uid-b"), "it says nothing of its devices")


def test_a_device_that_the_node_does_not_have_is_a_fault_of_the_pod():
    view = view_of(node("n1"), placed("a", 5, "n1", 7))
    assert "names '7', which the node does not have" in view.faults["uid-a"]
    assert view.drop_pod("uid-a") is False
    assert view.faults == {}


@pytest.mark.parametrize("sidecar", [False, True])
def test_what_an_init_container_asks_for_stays_booked_when_annotations_name_the_others_only(sidecar: bool):
    policy = {"restartPolicy": "Always"} if sidecar else {}
    first = {"name": "init", "resources": {"limits": {MEMORY: "10"}}, **policy}
    bound = pod("p", 4, on="n1", spec={"initContainers": [first]})
    bound["metadata"]["annotations"] = {INDEX: "1", GPUSHARE.per_container: '{"0":{"1":4}}'}
    view = view_of(node("n1"), bound)
    assert view.packings[0].nodes["n1"].used == (0, 14 if sidecar else 10)


def test_a_pod_that_has_another_device_than_it_was_assigned_counts_where_it_is():
    """The daemons of gpushare and doslab leave the scheduler's annotations as they are, and write this one."""
    first = {"name": "init", "resources": {"limits": {MEMORY: "10"}}}
    bound = pod("p", 4, 3, on="n1", spec={"initContainers": [first]})
    bound["metadata"]["annotations"] = {INDEX: "1", GPUSHARE.per_container: '{"0":{"1":4},"1":{"1":3}}'}
    view = view_of(node("n1"), bound)
    assert view.packings[0].nodes["n1"].used == (0, 10)
    bound["metadata"]["annotations"][GPUSHARE.actual] = '{"c0":{"0":4},"c1":{"0":3},"init":{"0":10}}'
    assert view.put_pod(as_pod(bound)), "what it does not have is free"
    assert view.packings[0].nodes["n1"].used == (10, 0)
    bound["metadata"]["annotations"][GPUSHARE.actual] = ""  # it was put right
    assert view.put_pod(as_pod(bound))
    assert view.packings[0].nodes["n1"].used == (0, 10)


def test_what_we_have_bound_stays_booked_until_the_pod_says_where_it_is():
    view = view_of(node("n1"))
    waiting = asked(view, pod("p", 10))
    view.book(waiting, "n1", ((1,),), Origin.BOUND)
    view.put_pod(as_pod(pod("p", 10, on="n1")))  # its annotations are not there: another program has bound it
    assert view.packings[0].nodes["n1"].used == (0, 10)
    assert view.put_pod(as_pod(placed("p", 10, "n1", 0)))  # room became free on the other
    assert view.packings[0].nodes["n1"].used == (10, 0)


def test_a_pod_that_becomes_another_is_forgotten_and_one_that_asks_for_nothing_is_not_known():
    view = view_of(node("n1"), placed("a", 5, "n1", 0), pod("c", 1, resource="cpu"))
    assert list(view.pods()) == ["uid-a"]
    odd = placed("a", 5, "n1", 0)
    odd["spec"]["containers"][0]["resources"]["limits"][MEMORY] = "many"
    assert view.put_pod(as_pod(odd)) is True
    assert list(view.pods()) == []
    assert isinstance(view.asked(read_pod(as_pod(odd), view.keeps)), Fault)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_holds_nothing(phase: str):
    view = view_of(node("n1"), placed("a", 5, "n1", 0))
    assert view.put_pod(as_pod(placed("a", 5, "n1", 0, status={"phase": phase}))) is True
    assert view.packings[0].nodes["n1"].used == (0, 0)


def test_tentative_room_ends_and_lasts_longer_for_pods_that_wait_for_others():
    view = view_of(node("n1"))
    plain = asked(view, pod("p", 4))
    volume = {"volumes": [{"persistentVolumeClaim": {"claimName": "data"}}]}
    group = {"labels": {"scheduling.x-k8s.io/pod-group": "g"}}
    waits = [asked(view, pod("v", 4, spec=volume)), asked(view, pod("g", 4, meta=group))]
    for one in (plain, *waits):
        view.book(one, "n1", ((0,),), Origin.TENTATIVE, now_s=100.0)
    assert not view.expire(100.0 + TENTATIVE_S - 1)
    assert view.expire(100.0 + TENTATIVE_S)
    assert view.packings[0].nodes["n1"].used == (8, 0)
    assert view.expire(100.0 + WAITING_S)
    assert view.packings[0].nodes["n1"].used == (0, 0)


def test_labels_of_a_node_choose_how_its_devices_are_filled():
    spread = node("n1", labels={GPUSHARE.preference_label: "spread", GPUSHARE.pods_max_label: "2"})
    view = view_of(spread, placed("a", 4, "n1", 0))
    assert view.choose(asked(view, pod("p", 4)), "n1") == ((1,),)
    for name in ("b", "c", "d"):
        view.put_pod(as_pod(placed(name, 1, "n1", 0 if name == "b" else 1)))
    assert view.choose(asked(view, pod("p", 4)), "n1") is None  # two pods are on each


def test_a_pod_that_asks_for_two_of_our_resources_gets_both_or_nothing():
    view = View([Terms(GPUSHARE), Terms(VOLCANO_MEMORY)])
    amounts = {MEMORY: "32", COUNT: "2", "volcano.sh/gpu-memory": "8", "volcano.sh/gpu-number": "1"}
    both: dict[str, Any] = {"metadata": {"name": "both"}, "status": {"capacity": amounts, "allocatable": amounts}}
    for thing in (both, node("n1")):
        view.put_node(as_node(thing))
    thing = pod("p", 4)
    thing["spec"]["containers"][0]["resources"]["limits"]["volcano.sh/gpu-memory"] = "6"
    waiting = asked(view, thing)
    assert best_nodes(view, waiting, ["n1", "both"], 5) == ["both"]
    assert scores(view, waiting, ["n1", "both"]) == {"n1": 0, "both": 10}
    view.book(waiting, "both", view.choose(waiting, "both") or (), Origin.BOUND)
    other = pod("q", 4)
    other["spec"]["containers"][0]["resources"]["limits"]["volcano.sh/gpu-memory"] = "6"
    assert best_nodes(view, asked(view, other), ["n1", "both"], 5) == []


def test_our_own_contract_serves_memory_under_any_name():
    contract = native("example.com/gpu-memory", "example.com/gpus")
    amounts = {"example.com/gpu-memory": "160", "example.com/gpus": "2"}
    thing = {"metadata": {"name": "n1"}, "status": {"capacity": {}, "allocatable": amounts}}
    view = view_of(thing, contract=contract)
    waiting = asked(view, pod("p", 60, resource="example.com/gpu-memory"))
    assert view.choose(waiting, "n1") == ((0,),)


def test_a_promise_on_a_node_that_is_full_is_kept_where_most_is_free():
    view = view_of(node("n1"), placed("a", 12, "n1", 0), placed("b", 10, "n1", 1))
    view.put_pod(as_pod(pod("p", 16, status={"nominatedNodeName": "n1"})))
    assert view.packings[0].nodes["n1"].used == (12, 26)
    view.put_pod(as_pod(pod("p", 16)))  # it is nominated no more
    assert view.packings[0].nodes["n1"].used == (12, 10)
    view.put_pod(as_pod(pod("p", 16, status={"nominatedNodeName": "gone"})))


def test_a_filter_keeps_its_room_when_the_watch_shows_the_pod_later():
    """The scheduler's watch may be ahead of ours. Seen with volumes, whose pods are bound long after their filter."""
    view = view_of(node("n1", 16, 1))
    waiting = asked(view, pod("p", 16))
    view.book(waiting, "n1", ((0,),), Origin.TENTATIVE, now_s=0.0)
    view.put_pod(as_pod(pod("p", 16)))
    assert view.packings[0].nodes["n1"].used == (16,)
    assert view.expire(TENTATIVE_S)  # and no longer than any other
    assert view.packings[0].nodes["n1"].used == (0,)


def test_the_index_is_what_the_annotation_says():
    assert INDEX == "ALIYUN_COM_GPU_MEM_IDX"
