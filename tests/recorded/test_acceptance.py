"""The cases that NVIDIA's own tests pin, asked of ours: counts, sets and sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from fairlead.engine.grants import make_grant
from fairlead.model.device import Device
from fairlead.model.errors import BadAsk, UnknownSlots
from fairlead.model.inventory import ALL_HEALTHY, Inventory, Links
from fairlead.model.names import DeviceId, ResourceName, SlotId
from fairlead.model.resource import Resource, Strategy, Terms
from fairlead.policy.offering.rules import Rule, Selector, make_offering
from fairlead.policy.placement.place import place

GPU = ResourceName("nvidia.com/gpu")
# NVLinks of a DGX-1V, and what PCI adds: one switch, one CPU, or neither.
NVLINKS = "01:1 02:1 03:2 04:2 12:2 13:1 15:2 23:2 26:1 37:1 45:1 46:1 47:2 56:2 57:1 67:2"


def shared(gpus: str, replicas: int, strategy: Strategy) -> Resource:
    devices = tuple(Device(DeviceId(name), index=str(number)) for number, name in enumerate(gpus))
    rule = Rule(Selector(), GPU, replicas=replicas, terms=Terms(strategy=strategy))
    return make_offering(Inventory(devices), [rule]).resources[0]


def counts(resource: Resource, size: int, available: Sequence[str] | None = None) -> list[int]:
    slots = [SlotId(slot) for slot in available] if available else [slot.id for slot in resource.slots]
    chosen = place(resource, slots, [], size).slots
    return sorted(Counter(slot.partition("::")[0] for slot in chosen).values(), reverse=True)


@pytest.mark.parametrize(
    ("gpus", "replicas", "size", "expected"),
    [("ab", 4, 2, [1, 1]), ("abc", 2, 3, [1, 1, 1]), ("ab", 4, 4, [2, 2])],
)
def test_1_to_3_distributed(gpus: str, replicas: int, size: int, expected: list[int]):
    for strategy in (Strategy.ALIGNED, Strategy.SPREAD):
        assert counts(shared(gpus, replicas, strategy), size) == expected


def test_4_a_gpu_in_use_is_not_taken_twice():
    assert counts(shared("ab", 2, Strategy.ALIGNED), 2, ["a::0", "a::1", "b::1"]) == [1, 1]


@pytest.mark.parametrize(
    ("gpus", "replicas", "size", "expected"),
    [("ab", 4, 2, [2]), ("ab", 4, 4, [4]), ("ab", 4, 5, [4, 1]), ("abc", 2, 3, [2, 1])],
)
def test_5_and_6_packed(gpus: str, replicas: int, size: int, expected: list[int]):
    assert counts(shared(gpus, replicas, Strategy.PACK), size) == expected


@pytest.mark.parametrize("strategy", list(Strategy))
def test_7_more_than_there_is(strategy: Strategy):
    with pytest.raises(BadAsk, match="only 2 are available"):
        counts(shared("a", 2, strategy), 5)


def dgx1v() -> Resource:
    scores = {}
    links = {tuple(map(int, word[:2])): int(word[3]) for word in NVLINKS.split()}
    for one in range(8):
        for other in range(one + 1, 8):
            pci = 50 if one // 2 == other // 2 else 30 if one // 4 == other // 4 else 10
            scores[DeviceId(str(one)), DeviceId(str(other))] = pci + 100 * links.get((one, other), 0)
    devices = tuple(Device(DeviceId(str(number)), index=str(number)) for number in range(8))
    return make_offering(Inventory(devices, Links(scores)), [Rule(Selector(), GPU)]).resources[0]


@pytest.mark.parametrize(("size", "chosen"), [(1, "0"), (2, "03"), (3, "023"), (4, "0123"), (8, "01234567")])
def test_9_best_effort_on_a_dgx1v(size: int, chosen: str):
    resource = dgx1v()
    assert "".join(place(resource, [slot.id for slot in resource.slots], [], size).slots) == chosen


@pytest.mark.parametrize(("available", "must", "size"), [("01", "", 3), ("01", "5", 2)])
def test_11_what_cannot_be_met(available: str, must: str, size: int):
    with pytest.raises(BadAsk):
        place(dgx1v(), [SlotId(slot) for slot in available], [SlotId(slot) for slot in must], size)


def test_13_an_unknown_device_is_named():
    resource = make_offering(
        Inventory((Device(DeviceId("device0")), Device(DeviceId("device1")))), [Rule(Selector(), GPU)]
    ).resources[0]
    with pytest.raises(UnknownSlots, match="device2"):
        make_grant(resource, ALL_HEALTHY, ["device1", "device2"])


def test_14_more_than_one_replica_where_one_is_the_limit():
    devices = (Device(DeviceId("device0")), Device(DeviceId("device1")))
    for most, refused in ((1, True), (0, False)):
        resource = make_offering(
            Inventory(devices), [Rule(Selector(), GPU, replicas=2, terms=Terms(per_container=most))]
        ).resources[0]
        assert make_grant(resource, ALL_HEALTHY, ["device0::1"]).slots == ("device0::1",)
        if refused:
            with pytest.raises(BadAsk, match="one container may have 1 of it, not 2"):
                make_grant(resource, ALL_HEALTHY, ["device0::1", "device1::0"])
        else:
            assert len(make_grant(resource, ALL_HEALTHY, ["device0::1", "device1::0"]).devices) == 2
