"""One codec for the scheduler, the node and inspect: what one of them reads of a pod, the others read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from fairlead.model.assign import Assign
from fairlead.model.names import ResourceName
from fairlead.model.pod import Container, Pod
from fairlead.policy.packing.demand import read_demand, read_shares, write_annotations
from fairlead.policy.packing.node import Demand, DeviceRoom, make_room
from fairlead.policy.pods.annotations import read_taken
from fairlead.policy.pods.contract import DOSLAB, GPUSHARE, VOLCANO_MEMORY, Contract, native
from fairlead.policy.pods.requests import footprint
from fairlead.policy.scheduled.pending import read_pod

MEMORY = [GPUSHARE, VOLCANO_MEMORY, DOSLAB, native("example.com/gpu-memory")]
DEVICES = tuple(DeviceRoom(str(place), f"GPU-{place}", 64) for place in range(4))


def names_of(contract: Contract) -> dict[str, str]:
    return {word: word for word in ((one.id if contract.by_id else one.index) for one in DEVICES)}


def assign_of(contract: Contract) -> Assign:
    return Assign(device=contract.device, by_id=contract.by_id, per_container=contract.per_container)


def pod(contract: Contract, init: list[tuple[int, bool]], amounts: list[int], **more: Any) -> Pod:
    def container(name: str, amount: int, sidecar: bool = False) -> Container:
        return Container(name, {contract.resource: str(amount)}, sidecar=sidecar)

    return Pod(
        "u",
        "default",
        "p",
        init_containers=tuple(container(f"i{n}", units, sidecar) for n, (units, sidecar) in enumerate(init)),
        containers=tuple(container(f"c{n}", units) for n, units in enumerate(amounts)),
        **more,
    )


@pytest.mark.parametrize("contract", MEMORY, ids=lambda contract: contract.resource)
@given(st.data())
def test_what_the_extender_writes_the_node_gives_and_all_count_the_same(contract: Contract, data: st.DataObject):
    devices = data.draw(st.integers(1, 3)) if contract.devices_label else 1
    init = data.draw(st.lists(st.tuples(st.integers(1, 3), st.booleans()), max_size=3))
    amounts = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    labels = {contract.devices_label: str(devices)} if contract.devices_label else {}
    times = [(units * devices, sidecar) for units, sidecar in init]
    asking = pod(contract, times, [units * devices for units in amounts], labels=labels)
    demand = read_demand(asking, contract)
    assert isinstance(demand, Demand)
    places = make_room(DEVICES).choose(demand)
    bound = replace(asking, annotations=write_annotations(asking, contract, DEVICES, places, 1))

    names = names_of(contract)
    given_ = read_pod(bound, ResourceName(contract.resource), assign_of(contract), names)
    assert given_ is not None
    assert given_.fault is None
    shares = read_shares(bound, demand, contract, DEVICES)
    taken = read_taken(bound, contract, names)
    assert isinstance(shares, tuple)
    by_device = {list(names)[share.device]: share.units for share in shares}
    assert by_device == dict(taken.units) == footprint(given_.requests, given_.assigned)
    assert (taken.nowhere, taken.fault) == (0, None)
    # Room for all of it was asked for: no device has more of the pod than its filter and bind have booked.
    assert {share.device for share in shares} == set(places)
    assert max(by_device.values()) == demand.units


@pytest.mark.parametrize(
    ("annotations", "units"),
    [
        # What can be read counts, the newest first: a plugin may know only the older one.
        ({GPUSHARE.per_container: "{", GPUSHARE.device: "1"}, {"1": 4}),
        ({GPUSHARE.per_container: '{"0":{"9":4}}', GPUSHARE.also_read[0]: '{"0":{"2":4}}'}, {"2": 4}),
        # Containers have what they ask for.
        ({GPUSHARE.per_container: '{"0":{"1":3}}'}, {"1": 4}),
        # The daemon says that it gave another device than the scheduler chose.
        ({GPUSHARE.device: "1", GPUSHARE.actual: '{"c0":{"3":4}}'}, {"3": 4}),
        ({GPUSHARE.device: "1", GPUSHARE.actual: '{"c0":{"3":9}}'}, {"1": 4}),
        ({GPUSHARE.device: "0,1"}, {"0": 2, "1": 2}),
        ({}, {}),
    ],
)
def test_what_those_count_who_only_look(annotations: dict[str, str], units: dict[str, int]):
    taken = read_taken(pod(GPUSHARE, [], [4], annotations=annotations), GPUSHARE, names_of(GPUSHARE))
    assert dict(taken.units) == units
    assert taken.nowhere == (0 if units else 4)


def test_a_sidecar_counts_beside_the_init_containers_behind_it():
    init = [(3, True), (9, False)]
    asking = pod(GPUSHARE, init, [5], annotations={GPUSHARE.device: "0"})
    assert dict(read_taken(asking, GPUSHARE, names_of(GPUSHARE)).units) == {"0": 12}
    pending = read_pod(asking, ResourceName(GPUSHARE.resource), assign_of(GPUSHARE), names_of(GPUSHARE))
    assert pending is not None
    assert pending.footprint(pending.assigned) == {"0": 12}


def test_an_init_container_is_counted_though_the_json_has_no_number_for_it():
    spread = json.dumps({"0": {"1": 2}, "1": {"1": 2}})
    asking = pod(GPUSHARE, [(8, False)], [2, 2], annotations={GPUSHARE.per_container: spread})
    assert read_shares(asking, Demand(8), GPUSHARE, DEVICES) == make_room(DEVICES).shares(Demand(8), (1,))
