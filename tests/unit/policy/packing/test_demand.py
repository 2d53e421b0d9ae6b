"""What pods ask for, what their annotations say, and what is written on them: one codec for every system."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.model.pod import Container, Pod
from fairlead.policy.packing.demand import node_settings, read_demand, read_shares, write_annotations
from fairlead.policy.packing.node import Demand, DeviceRoom, Share, make_room
from fairlead.policy.packing.told import key_of, read_devices, read_told, write_told
from fairlead.policy.pods.contract import DOSLAB, GPUSHARE, VOLCANO_MEMORY, VOLCANO_NUMBER, Contract, native
from fairlead.policy.pods.requests import Fault

NATIVE = native("example.com/gpu-memory")
ALL = [GPUSHARE, VOLCANO_MEMORY, VOLCANO_NUMBER, DOSLAB, NATIVE]
DEVICES = tuple(DeviceRoom(str(place), f"GPU-{place}", 16) for place in range(4))


def pod(contract: Contract, *amounts: str, init: tuple[tuple[str, bool], ...] = (), **more: Any) -> Pod:
    def container(name: str, amount: str, sidecar: bool = False) -> Container:
        return Container(name, {contract.resource: amount}, sidecar=sidecar)

    return Pod(
        "u",
        "default",
        "p",
        init_containers=tuple(container(f"i{n}", amount, sidecar) for n, (amount, sidecar) in enumerate(init)),
        containers=tuple(container(f"c{n}", amount) for n, amount in enumerate(amounts)),
        **more,
    )


@pytest.mark.parametrize(
    ("asking", "total"),
    [
        (pod(GPUSHARE, "10"), 10),
        (pod(GPUSHARE, "5", "6"), 11),
        (pod(GPUSHARE, "5", init=(("8", False),)), 8),
        (pod(GPUSHARE, "5", init=(("8", True),)), 13),
        (pod(GPUSHARE, "5", init=(("3", True), ("9", False))), 12),
        (pod(GPUSHARE, "1500m"), 2),
        (pod(GPUSHARE, "1k"), 1000),
    ],
)
def test_a_pod_asks_for_what_the_kubelet_counts(asking: Pod, total: int):
    assert read_demand(asking, GPUSHARE) == Demand(total)


def test_a_pod_that_asks_for_nothing_is_none_of_ours():
    assert read_demand(pod(GPUSHARE, "0"), GPUSHARE) is None
    assert read_demand(pod(GPUSHARE, "4"), DOSLAB) is None


def test_labels_spread_a_pod_over_devices_and_ask_for_whole_ones():
    count, (place, value) = GPUSHARE.devices_label, GPUSHARE.whole_label
    assert read_demand(pod(GPUSHARE, "8", "4", labels={count: "2"}), GPUSHARE) == Demand(6, 2)
    assert read_demand(pod(GPUSHARE, "8", labels={place: value}), GPUSHARE) == Demand(8, whole=True)
    assert read_demand(pod(VOLCANO_NUMBER, "2"), VOLCANO_NUMBER) == Demand(0, 2, whole=True)


@pytest.mark.parametrize(
    ("asking", "said"),
    [
        (pod(GPUSHARE, "many"), "it is not a quantity"),
        (pod(GPUSHARE, "-1"), "is out of range"),
        (pod(GPUSHARE, "8", labels={GPUSHARE.devices_label: "two"}), "which is no number of devices"),
        (pod(GPUSHARE, "8", labels={GPUSHARE.devices_label: "0"}), "which is no number of devices"),
        (pod(GPUSHARE, "8", labels={GPUSHARE.devices_label: "3"}), "cannot be divided among 3 devices"),
        (pod(GPUSHARE, "999", labels={GPUSHARE.devices_label: "999"}), "no node has more than 256"),
        (pod(GPUSHARE, "9223372036854775807", "9223372036854775807"), "more than any node has"),
    ],
)
def test_what_cannot_be_served_anywhere_is_said(asking: Pod, said: str):
    fault = read_demand(asking, GPUSHARE)
    assert isinstance(fault, Fault)
    assert said in fault.text


@pytest.mark.parametrize("contract", ALL, ids=lambda contract: contract.resource)
@given(st.data())
def test_what_is_written_is_read_back_as_it_was_chosen(contract: Contract, data: st.DataObject):
    devices = 1 if contract.whole or not contract.devices_label else data.draw(st.integers(1, 3))
    amounts = [str(devices * units) for units in data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))]
    if contract.whole:
        amounts = amounts[:1]
    asking = pod(contract, *amounts, labels={contract.devices_label: str(devices)} if contract.devices_label else {})
    demand = read_demand(asking, contract)
    assert isinstance(demand, Demand)
    node = make_room(DEVICES)
    places = node.choose(demand)
    if not places:
        return
    written = write_annotations(asking, contract, DEVICES, places, 7)
    placed = pod(contract, *amounts, labels=asking.labels, annotations=written)
    assert read_shares(placed, demand, contract, DEVICES) == node.shares(demand, places)


def test_gpushares_annotations_are_those_that_its_plugin_reads():
    asking = pod(GPUSHARE, "10")
    prefix = "ALIYUN_COM_GPU_MEM_"
    assert write_annotations(asking, GPUSHARE, DEVICES, (1,), 123) == {
        f"{prefix}IDX": "1",
        f"{prefix}POD": "10",
        f"{prefix}DEV": "16",
        f"{prefix}ASSIGNED": "false",
        f"{prefix}ASSUME_TIME": "123",
    }


def test_several_containers_or_devices_are_written_in_the_second_generation_too():
    asking = pod(GPUSHARE, "8", "4", labels={GPUSHARE.devices_label: "2"})
    written = write_annotations(asking, GPUSHARE, DEVICES, (0, 3), 1)
    assert json.loads(written[GPUSHARE.per_container]) == {"0": {"0": 4, "3": 4}, "1": {"0": 2, "3": 2}}
    assert written[GPUSHARE.device] == "0,3"


def test_doslab_names_devices_by_their_ids():
    written = write_annotations(pod(DOSLAB, "4"), DOSLAB, DEVICES, (2,), 9)
    assert written == {
        "doslab.io/gpu-uuid": "GPU-2",
        "doslab.io/gpu-assume-time": "9",
        "doslab.io/gpu-assigned": "false",
    }


@pytest.mark.parametrize(
    ("annotations", "shares"),
    [
        ({}, None),
        ({GPUSHARE.device: "1"}, (Share(1, 10),)),
        ({GPUSHARE.device: "1", GPUSHARE.pod_units: "3"}, (Share(1, 10),)),
        ({GPUSHARE.per_container: '{"0": {"1": 4, "2": 6}}', GPUSHARE.device: "0"}, (Share(1, 4), Share(2, 6))),
        ({GPUSHARE.also_read[0]: '{"0": {"3": 10}}'}, (Share(3, 10),)),
        ({GPUSHARE.device: "9"}, "names '9', which the node does not have"),
        ({GPUSHARE.device: "x" * 5000}, "has 5000 characters"),
        ({GPUSHARE.per_container: "[1]"}, "is not JSON of the form"),
        ({GPUSHARE.per_container: '{"0": {"1": -4}}'}, "is not JSON of the form"),
    ],
)
def test_what_a_pod_says_that_it_has(annotations: dict[str, str], shares: object):
    found = read_shares(pod(GPUSHARE, "10", annotations=annotations), Demand(10), GPUSHARE, DEVICES)
    if isinstance(shares, str):
        assert isinstance(found, Fault)
        assert shares in found.text
    else:
        assert found == shares


@given(st.dictionaries(st.sampled_from([GPUSHARE.device, GPUSHARE.per_container, *GPUSHARE.also_read]), st.text()))
def test_no_annotation_raises(annotations: dict[str, str]):
    found = read_shares(pod(GPUSHARE, "10", annotations=annotations), Demand(10), GPUSHARE, DEVICES)
    assert found is None or isinstance(found, Fault | tuple)


# --- Nodes ------------------------------------------------------------------------------------------------------------


@given(
    st.lists(
        st.builds(DeviceRoom, st.text(max_size=3), st.text(max_size=9), st.integers(0, 2**40), st.booleans()),
        unique_by=lambda device: device.index,
        max_size=9,
    )
)
def test_a_node_tells_its_devices_and_they_are_read_back(devices: list[DeviceRoom]):
    assert read_told(write_told(devices)) == tuple(devices)


@pytest.mark.parametrize("text", ["", "{}", "[1]", '[{"i":"0","u":-1}]', '[{"i":"0"},{"i":"0"}]', "[" * 70000])
def test_what_no_daemon_wrote_tells_nothing(text: str):
    assert read_told(text) is None


def test_the_key_of_a_long_resource_is_a_valid_annotation():
    key = key_of("a" * 60 + ".example.com/" + "b" * 60)
    assert len(key.partition("/")[2]) <= 63
    assert key_of("aliyun.com/gpu-mem") == "devices.fairlead/aliyun.com_gpu-mem"


def test_without_an_annotation_the_total_is_divided():
    amounts = {"aliyun.com/gpu-mem": "33", "aliyun.com/gpu-count": "2"}
    assert [one.units for one in read_devices({}, amounts, {}, GPUSHARE)] == [16, 16]
    assert read_devices({}, {}, amounts, GPUSHARE) == ()  # what the node has counts, not what is allocatable
    assert read_devices({}, {"aliyun.com/gpu-mem": "33"}, {}, GPUSHARE) == ()
    assert read_devices({}, {"aliyun.com/gpu-mem": "x", "aliyun.com/gpu-count": "2"}, {}, GPUSHARE) == ()
    number = {"volcano.sh/gpu-number": "3"}
    assert [one.index for one in read_devices({}, {}, number, VOLCANO_NUMBER)] == ["0", "1", "2"]


def test_what_the_node_tells_goes_before_its_totals():
    told = (DeviceRoom("0", "GPU-a", 80), DeviceRoom("1", "GPU-b", 24, usable=False, numa=1))
    annotations = {key_of(DOSLAB.resource): write_told(told)}
    amounts = {DOSLAB.resource: "104"}
    assert read_devices(annotations, amounts, amounts, DOSLAB) == told
    assert read_devices(annotations, {}, {}, DOSLAB) == ()  # its plugin is away


def test_labels_of_a_node_say_how_to_choose():
    labels = {GPUSHARE.preference_label: "spread", GPUSHARE.pods_max_label: "4"}
    assert node_settings(labels, GPUSHARE) == ("spread", 4)
    assert node_settings({GPUSHARE.pods_max_label: "many"}, GPUSHARE) == ("", 0)
    assert node_settings(labels, DOSLAB) == ("", 0)
