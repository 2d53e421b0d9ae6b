"""The five calls of one resource, without a socket: what is asked, what is answered, what is refused and how."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace
from tests.unit.fronts.deviceplugin.resources import broken, resource

from fairlead.engine.allocator import Allocator
from fairlead.engine.grants import make_grant
from fairlead.fronts.deviceplugin import service as service_module
from fairlead.fronts.deviceplugin.caller import Caller
from fairlead.fronts.deviceplugin.encoding import DeviceList, container_response, encode_devices, make_device_list
from fairlead.fronts.deviceplugin.service import Service
from fairlead.kit.latest import Latest
from fairlead.model.device import DeviceNode
from fairlead.model.edits import Edits, Grant, Mount
from fairlead.model.errors import EditConflict, FairleadError, Oversize
from fairlead.model.inventory import ALL_HEALTHY, Conditions
from fairlead.model.names import DeviceId, SlotId
from fairlead.model.resource import Resource, Slot
from fairlead.wire import deviceplugin as dp
from fairlead.wire.proto import decode
from fairlead.wire.rpc import Call, Peer, RpcError, Status

CALL = Call(Peer())


class Bench:
    """A service with its surroundings in view."""

    def __init__(self, given: Resource, conditions: Conditions = ALL_HEALTHY, *, prepares: bool = False) -> None:
        self.facts: list[tuple[str, dict[str, Any]]] = []
        self.streams = 0
        self.edits: Any = lambda _resource, grant: Edits(env={"IDS": ",".join(grant.slots)})
        self.prepared: list[Grant] = []
        self.prepare: Any = self._prepare
        self.device_lists: Latest[DeviceList] = Latest(make_device_list(given, conditions))
        allocator = Allocator(
            lambda *args: self.edits(*args),
            lambda *args: self.prepare(*args),
            self._record,
            prepares=lambda _resource: prepares,
        )
        caller = Caller(self._count)
        caller.registered()
        self.service = Service(self.device_lists, allocator, self._record, caller)
        self.handlers: dict[Any, Any] = dict(self.service.handlers())

    async def _prepare(self, _resource: Resource, grant: Grant) -> None:
        self.prepared.append(grant)

    def _record(self, kind: str, **keys: Any) -> None:
        self.facts.append((kind, keys))

    def _count(self, change: int) -> None:
        self.streams += change

    def allocate(self, *containers: list[str]) -> Any:
        asks = tuple(dp.ContainerAllocateRequest(device_ids=tuple(ids)) for ids in containers)
        return self.handlers[dp.ALLOCATE](dp.AllocateRequest(container_requests=asks), None)

    def prefer(self, available: list[str], size: int, must: tuple[str, ...] = ()) -> tuple[str, ...]:
        ask = dp.ContainerPreferredAllocationRequest(
            available_ids=tuple(available), must_include_ids=must, allocation_size=size
        )
        request = dp.PreferredAllocationRequest(container_requests=(ask,))
        return tuple(self.handlers[dp.GET_PREFERRED_ALLOCATION](request, None).container_responses[0].device_ids)


def test_options_are_truthful():
    plain = Bench(resource()).handlers[dp.GET_OPTIONS](dp.Empty(), CALL)
    assert (plain.pre_start_required, plain.get_preferred_allocation_available) == (False, True)
    assert Bench(resource(), prepares=True).handlers[dp.GET_OPTIONS](dp.Empty(), CALL).pre_start_required


def test_the_list_says_id_health_and_numa():
    given = resource(2)
    listed: Any = decode(dp.ListAndWatchResponse, encode_devices(given, broken(1)).frame)
    assert [(device.id, device.health) for device in listed.devices] == [("d0", "Healthy"), ("d1", "Unhealthy")]
    assert [node.id for node in listed.devices[1].topology.nodes] == [1]


def test_a_retired_slot_is_listed_as_unhealthy_even_when_its_device_is_gone():
    given = resource(1)
    given = replace(given, slots=(*given.slots, Slot(SlotId("old"), DeviceId("gone"), retired_s=1.0)))
    listed = decode(dp.ListAndWatchResponse, encode_devices(given, ALL_HEALTHY).frame)
    assert [(device.id, device.health, device.topology) for device in listed.devices][1] == ("old", "Unhealthy", None)


def test_long_ids_are_encoded_with_a_long_length():
    given = replace(resource(1), slots=(Slot(SlotId("x" * 200), DeviceId("d0")),))
    assert decode(dp.ListAndWatchResponse, encode_devices(given, ALL_HEALTHY).frame).devices[0].id == "x" * 200


def test_a_list_that_the_kubelet_would_drop_is_never_made():
    with pytest.raises(Oversize, match="4,194,304"):
        make_device_list(resource(4, replicas=70_000), ALL_HEALTHY)


async def test_a_stream_gets_the_list_now_and_after_each_change_only():
    bench = Bench(resource(2))
    stream = bench.handlers[dp.LIST_AND_WATCH](dp.Empty(), CALL)
    first = await anext(stream)
    assert bench.streams == 1
    bench.device_lists.set(make_device_list(resource(2), ALL_HEALTHY))  # the same list again
    bench.device_lists.set(make_device_list(resource(2), broken(0)))
    second = await anext(stream)
    assert first != second
    assert decode(dp.ListAndWatchResponse, second).devices[0].health == "Unhealthy"
    bench.device_lists.close()
    assert [frame async for frame in stream] == []
    assert bench.streams == 0


async def test_two_streams_each_get_every_change():
    bench = Bench(resource(1))
    streams = [bench.handlers[dp.LIST_AND_WATCH](dp.Empty(), CALL) for _ in range(2)]
    for stream in streams:
        await anext(stream)
    bench.device_lists.set(make_device_list(resource(1), broken(0)))
    frames = [await anext(stream) for stream in streams]
    assert frames[0] == frames[1]
    await streams[0].aclose()
    assert bench.streams == 1
    await streams[1].aclose()


def test_allocate_answers_each_container_in_our_order():
    bench = Bench(resource())
    answer = bench.allocate(["d2", "d0"], ["d1"])
    assert [dict(container.envs) for container in answer.container_responses] == [{"IDS": "d0,d2"}, {"IDS": "d1"}]
    assert [keys["slots"] for kind, keys in bench.facts if kind == "allocated"] == [("d2", "d0"), ("d1",)]


@pytest.mark.parametrize(
    ("ids", "status", "words"),
    [
        (["d0", "nope"], Status.INVALID_ARGUMENT, "nope"),
        (["d0", "d0"], Status.INVALID_ARGUMENT, "twice"),
        ([], Status.INVALID_ARGUMENT, "no device"),
        (["d0", "d3"], Status.FAILED_PRECONDITION, "xid-79"),
    ],
)
def test_what_must_not_be_granted_is_refused_and_named(ids, status, words):
    bench = Bench(resource(), broken(3))
    with pytest.raises(RpcError) as caught:
        bench.allocate(ids)
    assert caught.value.status is status
    assert words in caught.value.message
    assert bench.facts[0][0] == "allocate-refused"


def test_a_request_without_containers_is_refused():
    with pytest.raises(RpcError) as caught:
        Bench(resource()).allocate()
    assert caught.value.status is Status.INVALID_ARGUMENT


def test_a_retired_slot_is_refused_as_withdrawn():
    given = resource(1)
    given = replace(given, slots=(*given.slots, Slot(SlotId("old"), DeviceId("gone"), retired_s=1.0)))
    with pytest.raises(RpcError, match="withdrawn"):
        Bench(given).allocate(["old"])


def test_contradicting_edits_are_an_internal_error_that_says_so():
    bench = Bench(resource())

    def conflict(_resource: Resource, _grant: Grant) -> Edits:
        raise EditConflict("mount", "/x", "a", "b")

    bench.edits = conflict
    with pytest.raises(RpcError) as caught:
        bench.allocate(["d0"])
    assert caught.value.status is Status.INTERNAL


def test_preference_is_exact_and_inside_what_is_available():
    answer = Bench(resource()).prefer(["d3", "d1", "d2"], 2, ("d3",))
    assert len(set(answer)) == 2
    assert {"d3"} < set(answer) <= {"d3", "d1", "d2"}


def test_ids_we_no_longer_know_are_left_out_of_a_preference():
    assert set(Bench(resource()).prefer(["gone", "d1", "d2"], 2)) == {"d1", "d2"}


def test_an_impossible_preference_is_an_empty_answer_never_an_error():
    """The kubelet rejects the pod on an error, and chooses by itself on an empty answer."""
    bench = Bench(resource())
    assert bench.prefer(["d1"], 2) == ()
    assert bench.facts[0][0] == "preference-declined"


async def test_prepare_is_asked_with_the_grant():
    bench = Bench(resource(), prepares=True)
    request = dp.PreStartContainerRequest(device_ids=("d1", "d0"))
    await bench.handlers[dp.PRE_START_CONTAINER](request, None)
    assert bench.prepared[0].slots == ("d0", "d1")


async def test_prepare_does_not_ask_about_health():
    """A container that restarts does so on what it holds."""
    bench = Bench(resource(), broken(0), prepares=True)
    await bench.handlers[dp.PRE_START_CONTAINER](dp.PreStartContainerRequest(device_ids=("d0",)), None)
    assert bench.prepared


async def test_prepare_of_an_unknown_id_is_refused():
    bench = Bench(resource(), prepares=True)
    with pytest.raises(RpcError) as caught:
        await bench.handlers[dp.PRE_START_CONTAINER](dp.PreStartContainerRequest(device_ids=("nope",)), None)
    assert caught.value.status is Status.INVALID_ARGUMENT


async def test_a_failing_prepare_tells_its_reason():
    bench = Bench(resource(), prepares=True)

    async def fail(_resource: Resource, _grant: Grant) -> None:
        raise FairleadError("the firmware is missing")

    bench.prepare = fail
    with pytest.raises(RpcError, match="firmware"):
        await bench.handlers[dp.PRE_START_CONTAINER](dp.PreStartContainerRequest(device_ids=("d0",)), None)


async def test_a_prepare_that_hangs_ends_before_the_kubelet_gives_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(service_module, "PREPARE_DEADLINE_S", 0.01)
    bench = Bench(resource(), prepares=True)

    async def hang(_resource: Resource, _grant: Grant) -> None:
        await asyncio.Event().wait()

    bench.prepare = hang
    with pytest.raises(RpcError) as caught:
        await bench.handlers[dp.PRE_START_CONTAINER](dp.PreStartContainerRequest(device_ids=("d0",)), None)
    assert caught.value.status is Status.DEADLINE_EXCEEDED


def test_a_grant_names_each_device_once():
    grant = make_grant(resource(2, replicas=2), ALL_HEALTHY, ["d1::0", "d0::1", "d0::0"])
    assert grant.slots == ("d0::0", "d0::1", "d1::0")
    assert [device.id for device in grant.devices] == ["d0", "d1"]


def test_edits_become_the_kubelets_message():
    edits = Edits(
        {"A": "1"},
        (DeviceNode("/dev/a"), DeviceNode("/dev/b", "/dev/c", "r")),
        (Mount("/h", "/c", read_only=False),),
        {"k": "v"},
        ("v.com/c=1",),
    )
    message = container_response(edits)
    assert message.envs == {"A": "1"}
    assert [(spec.host_path, spec.container_path, spec.permissions) for spec in message.devices] == [
        ("/dev/a", "/dev/a", "rw"),
        ("/dev/b", "/dev/c", "r"),
    ]
    assert (message.mounts[0].host_path, message.mounts[0].read_only) == ("/h", False)
    assert message.cdi_devices[0].name == "v.com/c=1"
