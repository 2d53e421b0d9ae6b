"""The size of a device list, to the byte, against google.protobuf."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from fairlead.model.device import Device
from fairlead.model.errors import Oversize
from fairlead.model.health import Cause, CauseKind, Condition, Health
from fairlead.model.inventory import ALL_HEALTHY, Conditions, Inventory
from fairlead.model.names import DeviceId, ResourceName, SlotId
from fairlead.model.resource import Resource, Slot
from fairlead.policy.offering.budget import KUBELET_MESSAGE_MAX_BYTES, check, list_bytes, worst_bytes
from fairlead.policy.offering.sharing import slots_for
from fairlead.standin._gen import deviceplugin_v1beta1_pb2 as pb

NAME = ResourceName("nvidia.com/gpu")
SICK = Condition(Health.UNHEALTHY, Cause("xid-79", CauseKind.PERMANENT), 1.0)


def encoded_bytes(resource: Resource, conditions: Conditions = ALL_HEALTHY, *, all_unhealthy: bool = False) -> int:
    message = pb.ListAndWatchResponse()
    for slot in resource.slots:
        fit = slot.usable(conditions) and not all_unhealthy
        entry = message.devices.add(ID=slot.id, health="Healthy" if fit else "Unhealthy")
        device = resource.device(slot)
        if device is not None and device.numa_nodes:
            for node in device.numa_nodes:
                entry.topology.nodes.add(ID=node)
    return len(message.SerializeToString())


def shared(devices: int, replicas: int, id_length: int = 40) -> Resource:
    found = tuple(Device(DeviceId(f"{n:0{id_length}d}"), numa_nodes=(n % 2,)) for n in range(devices))
    return Resource(NAME, tuple(s for d in found for s in slots_for(d, replicas)), Inventory(found))


@st.composite
def resources(draw: st.DrawFn) -> tuple[Resource, Conditions]:
    node = st.integers(-1, 3) | st.integers(-(2**63), 2**63 - 1)
    ids = draw(st.lists(st.text(max_size=200), unique=True, max_size=6))
    devices = tuple(Device(DeviceId(i), numa_nodes=tuple(draw(st.lists(node, max_size=30)))) for i in ids)
    sick = draw(st.sets(st.sampled_from(ids))) if ids else set()
    slots = [s for d in devices for s in slots_for(d, draw(st.integers(1, 3)))]
    slots.append(Slot(SlotId("gone"), DeviceId("gone-device"), 1.0))
    return Resource(NAME, tuple(slots), Inventory(devices)), Conditions({DeviceId(i): SICK for i in sick})


@given(resources())
def test_the_size_is_exact(given: tuple[Resource, Conditions]) -> None:
    resource, conditions = given
    assert list_bytes(resource, conditions) == encoded_bytes(resource, conditions)
    assert worst_bytes(resource) == encoded_bytes(resource, all_unhealthy=True)


def test_an_empty_list_takes_no_bytes_and_fits() -> None:
    empty = Resource(NAME, ())
    assert (list_bytes(empty, ALL_HEALTHY), worst_bytes(empty)) == (0, 0)
    check(empty)


def test_a_large_list_is_exact_too() -> None:
    resource = shared(8, 7500, id_length=50)
    assert worst_bytes(resource) == encoded_bytes(resource, all_unhealthy=True)


def test_a_list_that_fits_only_while_healthy_is_refused() -> None:
    resource = shared(8, 8, id_length=20)
    healthy, worst = list_bytes(resource, ALL_HEALTHY), worst_bytes(resource)
    assert worst == healthy + 2 * 64
    check(resource, limit_bytes=worst)
    with pytest.raises(Oversize):
        check(resource, limit_bytes=healthy)


def test_the_refusal_shows_the_sum_and_the_replicas_that_would_fit() -> None:
    resource = shared(8, 7500, id_length=50)
    with pytest.raises(Oversize) as caught:
        check(resource)
    text = str(caught.value)
    assert text.startswith("nvidia.com/gpu: 60000 slots x ~")
    assert f"= {worst_bytes(resource):,} bytes, over the kubelet's 4,194,304" in text
    found = re.search(r"lower replicas from 7500 to (\d+)", text)
    assert found
    fits = int(found[1])
    assert worst_bytes(shared(8, fits, 50)) <= KUBELET_MESSAGE_MAX_BYTES < worst_bytes(shared(8, fits + 1, 50))
    most = re.search(r"at most (\d+) slots", text)
    assert most
    assert abs(int(most[1]) - 8 * fits) < 0.01 * 8 * fits


def test_retired_slots_are_not_saved_by_fewer_replicas() -> None:
    resource = shared(2, 50, id_length=20)
    crowd = tuple(Slot(SlotId(f"old-{n}"), DeviceId("old"), 1.0) for n in range(50))
    limit = worst_bytes(resource)
    with pytest.raises(Oversize, match=r"lower replicas from 50 to \d+"):
        check(replace(resource, slots=resource.slots + crowd), limit_bytes=limit)


def test_when_no_number_of_replicas_fits_it_says_so() -> None:
    with pytest.raises(Oversize, match="divide the devices between several resource names"):
        check(shared(3, 2), limit_bytes=60)
