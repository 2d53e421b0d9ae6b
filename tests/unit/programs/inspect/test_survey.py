"""From nodes and pods to tables: what the recordings do not show."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.cluster.objects import PodObject
from fairlead.programs.inspect.survey import DIALECTS, GPUS_MAX, NodeObject, Survey, survey
from fairlead.programs.inspect.text import as_json, details, summary

WORDS = DIALECTS["gpushare"]
INDEX, SHARES = WORDS.device, WORDS.per_container
INTERNAL = ({"type": "InternalIP", "address": "10.0.0.1"},)


def node(name: str = "n1", memory: str = "32", count: str = "2", addresses: Any = INTERNAL, **more: Any) -> Any:
    amounts = {WORDS.resource: memory, WORDS.count: count}
    return {"metadata": {"name": name}, "status": {"addresses": addresses, "allocatable": amounts, **more}}


def container(memory: str, **more: Any) -> Any:
    return {"resources": {"limits": {WORDS.resource: memory}}, **more}


def pod(name: str, *memory: str, init: Any = (), on: str = "n1", **annotations: str) -> Any:
    return {
        "metadata": {"name": name, "namespace": "default", "annotations": annotations},
        "spec": {"nodeName": on, "containers": [container(one) for one in memory], "initContainers": list(init)},
        "status": {"phase": "Running"},
    }


def look(nodes: list[Any], pods: list[Any], dialect: str = "gpushare") -> Survey:
    """As the client reads them."""
    return survey(
        [msgspec.json.decode(json.dumps(one), type=NodeObject) for one in nodes],
        [msgspec.json.decode(json.dumps(one), type=PodObject) for one in pods],
        DIALECTS[dialect],
    )


def only(found: Survey) -> dict[int, int]:
    ((row,),) = (one.pods for one in found.nodes)
    return dict(row.gpus)


# --- Where a pod is ---------------------------------------------------------------------------------------------------


def test_containers_add_up():
    assert only(look([node()], [pod("a", "2", "3", **{INDEX: "1"})])) == {1: 5}


def test_a_pod_on_several_gpus_has_one_line():
    found = look([node()], [pod("a", "4", "5", **{SHARES: '{"0":{"0":4},"1":{"0":1,"1":4}}'})])
    assert only(found) == {0: 5, 1: 4}
    assert "a            default    5                4                \n" in details(found)
    assert not found.notes


def test_the_share_of_each_container_goes_before_the_index():
    assert only(look([node()], [pod("a", "4", **{INDEX: "0", SHARES: '{"0":{"1":4}}'})])) == {1: 4}


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "{}",
        '{"0":{}}',
        '{"0":{"x":4}}',
        '{"0":{"0":-4}}',
        '{"0":{"0":1e99}}',
        '{"0":{"999":4}}',
        "[" * 5000,
    ],
)
def test_a_share_that_cannot_be_read_is_told_and_the_index_counts(text: str):
    found = look([node()], [pod("a", "4", **{INDEX: "1", SHARES: text})])
    assert only(found) == {1: 4}
    (note,) = found.notes
    assert note.startswith("pod default/a: its annotation scheduler.framework.gpushare.allocation ")
    assert "pending" not in note
    assert len(note) < 200


def test_shares_that_are_not_what_the_pod_asks_for_are_told():
    found = look([node()], [pod("a", "4", **{SHARES: '{"0":{"1":3}}'})])
    assert only(found) == {1: 4}
    (note,) = found.notes
    assert note.endswith("allocation gives container  3 units, which asks for 4")


@pytest.mark.parametrize(("text", "gpus"), [("0,1", {0: 2, 1: 2}), (" 1\n", {1: 4}), ("1,1", {1: 4})])
def test_an_index_is_read_as_the_node_reads_it(text: str, gpus: dict[int, int]):
    found = look([node()], [pod("a", "4", **{INDEX: text})])
    assert (only(found), found.notes) == (gpus, ())


@pytest.mark.parametrize("text", ["x", "-1", "+1", "1.0", "256", "99999999999999999999", "٣"])
def test_what_is_no_index_is_pending_and_told(text: str):
    found = look([node()], [pod("a", "4", **{INDEX: text})])
    assert (only(found), found.nodes[0].pending) == ({}, 4)
    (note,) = found.notes
    assert note == (
        f"pod default/a: its annotation {INDEX} names {text!r}, which the node does not have. It counts as pending"
    )


def test_the_first_index_that_a_node_does_not_count_is_told():
    found = look([node()], [pod("a", "4", **{INDEX: "1"}), pod("b", "4", **{INDEX: "2"})])
    assert found.notes == ("pod default/b is on GPU 2, and node n1 counts 2: 0 to 1",)
    assert found.nodes[0].indexes == (0, 1, 2)


def test_an_init_container_that_needs_more_than_all_containers_counts():
    small = pod("a", "2", "3", init=[container("4")], **{INDEX: "0"})
    large = pod("b", "2", "3", init=[container("7"), container("1")], **{INDEX: "1"})
    assert [dict(row.gpus) for row in look([node()], [small, large]).nodes[0].pods] == [{0: 5}, {1: 7}]


def test_a_sidecar_runs_beside_the_containers():
    sidecar = container("2", restartPolicy="Always")
    found = look([node()], [pod("a", "3", init=[sidecar, container("4")], **{INDEX: "0"})])
    assert only(found) == {0: 6}  # 2 + 4 while the second starts, then 2 + 3


def test_pods_that_ask_for_nothing_have_ended_or_are_elsewhere_are_left_out():
    ended = pod("c", "4", **{INDEX: "0"})
    ended["status"]["phase"] = "Failed"
    found = look([node()], [pod("a"), pod("b", "0", **{INDEX: "0"}), ended, pod("d", "4", on="n2", **{INDEX: "0"})])
    assert not found.nodes[0].pods


def test_pods_are_by_gpu_and_those_without_one_come_last():
    found = look([node()], [pod("a", "1"), pod("b", "1", **{INDEX: "1"}), pod("c", "1", **{INDEX: "0"})])
    assert [row.name for row in found.nodes[0].pods] == ["c", "b", "a"]


# --- Nodes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("memory", "count", "unit"),
    [("141", "1", "GiB"), ("1128", "8", "GiB"), ("16384", "1", "MiB"), ("1024", "1", "MiB"), ("32", "0", "")],
)
def test_the_unit_is_guessed_from_the_size_of_a_gpu(memory: str, count: str, unit: str):
    assert look([node(memory=memory, count=count)], []).unit == unit


def test_nodes_that_count_in_different_units_are_told():
    found = look([node(), node("n2", memory="16384", count="1"), node("n3", count="0")], [])
    assert found.unit == "mixed"
    assert found.notes[-1] == "nodes count in different units: the sum over all of them means nothing"
    assert "GPU Memory(mixed)" in summary(found)


def test_a_node_whose_plugin_is_away_is_shown_with_its_pods():
    away = node(memory="0", count="0", capacity={WORDS.resource: "32", WORDS.count: "2"})
    found = look([away], [pod("a", "4", **{INDEX: "1"})])
    assert (found.allocated, found.total) == (4, 0)
    assert "n1    10.0.0.1   4/0                    4/0\n" in summary(found)


@pytest.mark.parametrize(
    ("addresses", "shown"),
    [
        ([{"type": "Hostname", "address": "h"}, *INTERNAL], "10.0.0.1"),
        ([{"type": "Hostname", "address": "h"}], "h"),
        ([], "unknown"),
        (None, "unknown"),
    ],
)
def test_a_node_is_shown_with_its_internal_address(addresses: Any, shown: str):
    assert look([node(addresses=addresses)], []).nodes[0].address == shown


def test_amounts_that_nobody_can_mean_are_told_and_harm_nothing():
    nodes = [node("n1", count="9223372036854775807"), node("n2", memory="-5"), node("n3", memory="99e99")]
    found = look(nodes, [pod("a", "1e30", "2", **{INDEX: "0"})])
    assert [row.name for row in found.nodes] == ["n1"]
    assert only(found) == {0: 2}
    assert len(found.notes) == 4
    assert summary(found)


def test_a_percentage_is_exact():
    found = look([node(memory="100", count="1")], [pod("a", "29", **{INDEX: "0"})])
    assert "29/100 (29%)" in summary(found)


def test_the_line_under_many_pods_is_no_longer_than_a_screen():
    found = look([node()], [pod(f"pod-{number}", "1", **{INDEX: "0"}) for number in range(100)])
    assert max(len(line) for line in details(found).splitlines()) == 120


def test_the_line_under_the_first_node_is_the_one_under_all():
    found = look([node(), node("n2")], [pod("a", "1", **{INDEX: "0"})])
    assert [line for line in details(found).splitlines() if line.startswith("-")] == ["-" * 25] * 2


def test_volcano_has_its_own_names():
    amounts = {"volcano.sh/gpu-memory": "80", "volcano.sh/gpu-number": "2"}
    one = {"metadata": {"name": "n1"}, "status": {"allocatable": amounts}}
    both = [pod("a", **{"volcano.sh/gpu-index": "1"}), pod("b", **{"volcano.sh/gpu-index": "0,1"})]
    for it in both:
        it["spec"]["containers"] = [{"resources": {"limits": {"volcano.sh/gpu-memory": "10"}}}]
    found = look([one], both, "volcano")
    assert [(dict(row.gpus), row.pending) for row in found.nodes[0].pods] == [({0: 5, 1: 5}, 0), ({1: 10}, 0)]
    assert found.unit == "blocks"


# --- Whatever comes ---------------------------------------------------------------------------------------------------

amounts = st.one_of(
    st.integers(-5, 300).map(str),
    st.sampled_from(["", "1k", "4Gi", "1500m", "-1", "9e99", "x", "1e-3"]),
    st.text(max_size=6),
)
shares = st.one_of(
    st.text(max_size=10),
    st.dictionaries(
        st.sampled_from(["0", "1", "x"]),
        st.dictionaries(st.sampled_from(["0", "1", "7", "-1", "a"]), st.integers(-1, 9)),
    ).map(json.dumps),
)
places = st.fixed_dictionaries(
    {}, optional={INDEX: st.one_of(st.integers(-1, 300).map(str), st.text(max_size=4)), SHARES: shares}
)
inits = st.lists(st.builds(container, amounts, restartPolicy=st.sampled_from(["", "Always"])), max_size=2)
pods_ = st.builds(
    lambda number, memory, init, on, notes: pod(f"p{number}", *memory, init=init, on=on, **notes),
    st.integers(0, 99),
    st.lists(amounts, max_size=3),
    inits,
    st.sampled_from(["n1", "n2", "n3"]),
    places,
)


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.builds(node, st.sampled_from(["n1", "n2"]), amounts, amounts), max_size=2), st.lists(pods_, max_size=6)
)
def test_every_unit_is_in_one_column_and_in_every_sum(nodes: list[Any], pods: list[Any]):
    found = look(nodes, pods)
    for row in found.nodes:
        assert row.allocated == row.pending + sum(row.allocated_on(index) for index in row.indexes)
        assert len(row.indexes) <= GPUS_MAX
        assert all(one.allocated > 0 for one in row.pods)
    text = summary(found).splitlines()
    assert text[-1].startswith(f"{found.allocated}/{found.total} (")
    assert len(text) == len(found.nodes) + 4
    assert len(details(found).splitlines()) == 3 + sum(8 + len(row.pods) for row in found.nodes)
    assert json.loads(json.dumps(as_json(found)))["allocated"] == found.allocated


# --- True sizes -------------------------------------------------------------------------------------------------------


def marked(units: str, total: str = "1024", allocatable: str = "") -> Any:
    """A node of ours: two GPUs, and how large a unit is."""
    made = node(memory=allocatable or total, capacity={WORDS.resource: total})
    made["metadata"]["annotations"] = {"units.fairlead/gpushare": units}
    return made


def test_units_of_a_node_that_says_how_large_they_are_are_shown_in_mib():
    found = look([marked(f"{WORDS.resource}=1024x16MiB")], [pod("a", "100", **{INDEX: "1"}), pod("b", "10")])
    (row,) = found.nodes
    assert (row.unit, row.total, row.total_of(1), row.allocated_on(1), row.pending) == ("MiB", 16384, 8192, 1600, 160)
    assert "GPU Memory(MiB)" in summary(found)
    assert as_json(found)["nodes"][0]["pods"][0]["gpus"] == [{"index": 1, "allocated": 1600}]


def test_units_of_whole_gib_are_shown_in_gib():
    (row,) = look([marked(f"volcano.sh/gpu-memory=9x1MiB,{WORDS.resource}=1024x2048MiB")], []).nodes
    assert (row.unit, row.total) == ("GiB", 2048)


def test_a_gpu_that_is_withdrawn_changes_no_size():
    (row,) = look([marked(f"{WORDS.resource}=1024x16MiB", allocatable="512")], []).nodes
    assert (row.unit, row.total) == ("MiB", 8192)


@pytest.mark.parametrize("text", ["", "x", "=1x1MiB", "aliyun.com/gpu-mem=1024x0MiB", "aliyun.com/gpu-mem=2048x16MiB"])
def test_a_mark_that_is_nonsense_or_of_an_earlier_plugin_does_not_count(text: str):
    (row,) = look([marked(text)], [pod("a", "100", **{INDEX: "1"})]).nodes
    assert (row.unit, row.total, row.allocated) == ("GiB", 1024, 100)
