"""Slots that a container was given a moment ago are not preferred for the next one, while there are others."""

from __future__ import annotations

from collections.abc import Sequence

from tests.clock import FakeClock
from tests.unit.policy.placement.cards import GIB, node, shared

from fairlead.engine.allocator import Allocator, Ask
from fairlead.engine.recent import AVOIDED_S, RecentGrants
from fairlead.model.device import Device
from fairlead.model.edits import Edits, Grant
from fairlead.model.inventory import ALL_HEALTHY, Inventory
from fairlead.model.names import DeviceId, ResourceName
from fairlead.model.resource import MemoryTerms, Resource
from fairlead.policy.offering.rules import ANY, Rule, make_offering


async def prepare(_resource: Resource, _grant: Grant) -> None: ...


class Bench:
    def __init__(self, resource: Resource) -> None:
        self.clock = FakeClock()
        self.resource = resource
        self.slots = [slot.id for slot in resource.slots]
        self.allocator = Allocator(
            lambda *_: Edits(), prepare, lambda *_args, **_keys: None, recent=RecentGrants(self.clock)
        )

    def prefer(self, size: int, available: Sequence[str] | None = None, must: Sequence[str] = ()) -> list[str]:
        answers = self.allocator.prefer(self.resource, [Ask(available or self.slots, must, size)])
        assert isinstance(answers, list)
        return sorted(answers[0])

    def allocate(self, *slots: str) -> None:
        assert self.allocator.allocate(self.resource, ALL_HEALTHY, [slots]) == [Edits()]


def gpus(count: int) -> Bench:
    devices = tuple(Device(DeviceId(f"gpu{number}"), index=str(number)) for number in range(count))
    (resource,) = make_offering(Inventory(devices), [Rule(ANY, ResourceName("example.com/gpu"))]).resources
    return Bench(resource)


def test_what_was_just_granted_is_not_preferred_again_though_the_kubelet_counts_it_as_free():
    bench = gpus(4)
    assert bench.prefer(1) == ["gpu0"]
    bench.allocate("gpu0")
    assert bench.prefer(1) == ["gpu1"]
    assert bench.prefer(3) == ["gpu1", "gpu2", "gpu3"]


def test_it_is_preferred_when_the_others_are_no_longer_listed():
    bench = gpus(2)
    bench.allocate("gpu0")
    assert bench.prefer(2, ["gone", "gpu0", "gpu1"]) == ["gpu0", "gpu1"]


def test_it_is_preferred_when_there_is_nothing_else():
    bench = gpus(2)
    bench.allocate("gpu0")
    assert bench.prefer(2) == ["gpu0", "gpu1"]
    assert bench.prefer(1, ["gpu0"]) == ["gpu0"]


def test_what_an_init_container_has_had_is_preferred_for_the_next_container_of_its_pod():
    bench = gpus(4)
    bench.allocate("gpu3")
    assert bench.prefer(2, must=["gpu3"]) == ["gpu0", "gpu3"]


async def test_after_a_while_it_is_as_good_as_any():
    bench = gpus(4)
    bench.allocate("gpu0")
    await bench.clock.advance(AVOIDED_S)
    assert bench.prefer(1) == ["gpu0"]


def test_memory_of_one_container_stays_on_one_device_rather_than_off_recent_units():
    bench = Bench(shared(node(4 * GIB, 4 * GIB), MemoryTerms(GIB, grow=False)))
    first = bench.prefer(2)
    bench.allocate(*first)
    others = [slot for slot in bench.slots if slot.split("-")[0] == first[0].split("-")[0]]
    assert set(bench.prefer(3, others)) & set(first)  # three of its four units are needed
    assert not set(bench.prefer(2, others)) & set(first)
