"""The calls of a resource whose devices a scheduler chose: what is passed on, refused, and taken back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace
from tests.unit.fronts.deviceplugin.resources import broken, resource

from fairlead.engine.allocator import Allocator
from fairlead.engine.grants import grant_on
from fairlead.fronts.deviceplugin.caller import Caller
from fairlead.fronts.deviceplugin.encoding import DeviceList, make_device_list
from fairlead.fronts.deviceplugin.service import Service
from fairlead.kit.latest import Latest
from fairlead.model.assign import Assign
from fairlead.model.edits import Edits, Grant
from fairlead.model.errors import ClusterAway, EditConflict, Elsewhere, FairleadError, NotAssigned, UnfitSlots
from fairlead.model.inventory import ALL_HEALTHY
from fairlead.model.names import DeviceId, SlotId
from fairlead.model.resource import Resource, Terms
from fairlead.wire import deviceplugin as dp
from fairlead.wire.rpc import RpcError, Status

ASSIGNED = replace(resource(), terms=Terms(assign=Assign(device="card")))
D0, D1, D2 = (DeviceId(f"d{number}") for number in range(3))


class Chooser:
    """Gives d2, whatever is asked for, or fails as it is told."""

    def __init__(self) -> None:
        self.fails: FairleadError | None = None
        self.forgotten: list[Sequence[str]] = []

    async def prefer(self, _resource: Resource, *_ask: Any) -> tuple[SlotId, ...]:
        if self.fails is not None:
            raise self.fails
        return (SlotId("d2"),)

    async def confirm(self, given: Resource, ids: Sequence[str]) -> Grant:
        if self.fails is not None:
            raise self.fails
        return grant_on(given, ALL_HEALTHY, ids, {D2: len(ids)}, {"podName": "p"}, strict=False)

    def forget(self, _resource: Resource, ids: Sequence[str]) -> None:
        self.forgotten.append(list(ids))


class Bench:
    def __init__(self) -> None:
        self.chooser = Chooser()
        self.facts: list[tuple[str, dict[str, Any]]] = []
        self.edits: Any = lambda _resource, grant: Edits(env={"IDS": ",".join(device.id for device in grant.devices)})

        async def prepare(_resource: Resource, _grant: Grant) -> None: ...

        device_lists: Latest[DeviceList] = Latest(make_device_list(ASSIGNED, ALL_HEALTHY))

        def record(event: str, **keys: Any) -> None:
            self.facts.append((event, keys))

        allocator = Allocator(lambda *args: self.edits(*args), prepare, record, chosen=lambda: self.chooser)
        self.service = Service(device_lists, allocator, record, Caller(lambda _change: None))

    async def prefer(self, available: Sequence[str], must: Sequence[str] = (), size: int = 1) -> tuple[str, ...]:
        ask = dp.ContainerPreferredAllocationRequest(
            available_ids=tuple(available), must_include_ids=tuple(must), allocation_size=size
        )
        call: Any = None
        answer: Any = await self.service.prefer(dp.PreferredAllocationRequest(container_requests=(ask,)), call)  # type: ignore[misc]  # with assign it is awaited
        return tuple(answer.container_responses[0].device_ids)

    async def allocate(self, *containers: Sequence[str]) -> list[dict[str, str]]:
        asks = tuple(dp.ContainerAllocateRequest(device_ids=tuple(ids)) for ids in containers)
        call: Any = None
        answer: Any = await self.service.allocate(dp.AllocateRequest(container_requests=asks), call)  # type: ignore[misc]  # with assign it is awaited
        return [dict(response.envs) for response in answer.container_responses]


async def test_the_choice_goes_before_the_ids():
    bench = Bench()
    assert await bench.prefer(["d0", "d1", "d2"]) == ("d2",)
    assert await bench.allocate(["d1"]) == [{"IDS": "d2"}]
    assert bench.facts[-1] == ("allocated", {"resource": ASSIGNED.name, "slots": ("d1",)})
    assert bench.chooser.forgotten == []


@pytest.mark.parametrize(("must", "size"), [(["gone"], 1), ([], 0), ([], 9), (["d0", "d1"], 1)])
async def test_a_question_that_makes_no_sense_is_not_passed_on(must: list[str], size: int):
    bench = Bench()
    assert await bench.prefer(["d0", "d1"], must, size) == ()
    assert bench.facts[-1][0] == "preference-declined"


@pytest.mark.parametrize(
    ("failure", "status"),
    [
        (NotAssigned("r", 4, "n1", "no pod asks for 4"), Status.FAILED_PRECONDITION),
        (ClusterAway("r", 4, "n1", "it is away"), Status.UNAVAILABLE),
        (Elsewhere("r", ["d0"], ["d1"]), Status.FAILED_PRECONDITION),
    ],
)
async def test_a_refusal_is_told_by_allocate_only_and_ends_the_admission(failure: FairleadError, status: Status):
    bench = Bench()
    bench.chooser.fails = failure
    assert await bench.prefer(["d0"]) == ()  # an error here would reject the pod without our reason
    with pytest.raises(RpcError) as caught:
        await bench.allocate(["d0"])
    assert (caught.value.status, caught.value.message) == (status, str(failure))
    assert bench.chooser.forgotten == [[]]
    assert bench.facts[-1] == ("allocate-refused", {"resource": ASSIGNED.name, "reason": str(failure)})


async def test_what_was_confirmed_for_earlier_containers_of_a_refused_call_is_taken_back():
    bench = Bench()
    with pytest.raises(RpcError, match="gone"):
        await bench.allocate(["d0"], ["gone"])
    assert bench.chooser.forgotten == [["d0"]]

    def conflict(*_args: Any) -> Edits:
        raise EditConflict("variable", "A", "1", "2")

    bench.edits = conflict
    with pytest.raises(RpcError, match="would be set twice"):
        await bench.allocate(["d1"])
    assert bench.chooser.forgotten[-1] == ["d1"]
    with pytest.raises(RpcError, match="names no container"):
        await bench.allocate()


def test_a_grant_on_chosen_devices():
    assert [device.id for device in grant_on(ASSIGNED, ALL_HEALTHY, ["d0"], {D1: 1}, {}, strict=False).devices] == [
        "d1"
    ]
    with pytest.raises(Elsewhere, match="the slots lie on d0, but the pod was assigned d1"):
        grant_on(ASSIGNED, ALL_HEALTHY, ["d0"], {D1: 1}, {}, strict=True)
    with pytest.raises(UnfitSlots, match="d1"):
        grant_on(ASSIGNED, broken(1), ["d0"], {D1: 1}, {}, strict=False)
    memory = replace(resource(replicas=4), unit_bytes=1 << 20)
    elsewhere = grant_on(memory, ALL_HEALTHY, ["d0::0", "d0::1", "d0::2"], {D1: 2, D2: 1}, {}, strict=False)
    assert (elsewhere.units, [device.id for device in elsewhere.devices]) == ((2, 1), ["d1", "d2"])
    there = grant_on(memory, ALL_HEALTHY, ["d2::0", "d2::1", "d1::3"], {D1: 1, D2: 2}, {}, strict=True)
    assert there.units == (1, 2)
