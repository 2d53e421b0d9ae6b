"""Slots look things up through their device; a fault reaches every share of it."""

import pytest

from fairlead.model.device import Device
from fairlead.model.edits import NO_EDITS, Edits, Mount
from fairlead.model.health import Cause, CauseKind, Condition, Health
from fairlead.model.inventory import Conditions, Inventory
from fairlead.model.names import DeviceId, ResourceName, SlotId
from fairlead.model.resource import WITHDRAWN, Resource, Slot

GPU, OTHER = Device(DeviceId("gpu")), Device(DeviceId("other"))
SICK = Condition(Health.UNHEALTHY, Cause("xid-79", CauseKind.PERMANENT, "fell off the bus"), 3.0)
SHARES = tuple(Slot(SlotId(f"gpu::{n}"), GPU.id) for n in range(2))
WHOLE = Slot(SlotId("other"), OTHER.id)
GONE = Slot(SlotId("gone"), DeviceId("gone"), 9.0)
RESOURCE = Resource(ResourceName("example.com/gpu"), (*SHARES, WHOLE, GONE), Inventory((GPU, OTHER)))
CONDITIONS = Conditions({GPU.id: SICK})


def test_a_fault_reaches_every_slot_of_its_device_and_no_other() -> None:
    assert [slot.usable(CONDITIONS) for slot in RESOURCE.slots] == [False, False, True, False]


def test_a_retired_slot_is_withdrawn_since_it_left() -> None:
    assert GONE.condition(CONDITIONS) == Condition(Health.UNHEALTHY, WITHDRAWN, 9.0)
    assert RESOURCE.device(GONE) is None


def test_slots_are_found_by_id_and_by_device() -> None:
    assert RESOURCE.by_id[SlotId("gpu::1")] is SHARES[1]
    assert RESOURCE.order[SlotId("other")] == 2
    assert RESOURCE.device(SHARES[1]) is GPU
    assert RESOURCE.slots_of == {"gpu": SHARES, "other": (WHOLE,), "gone": (GONE,)}


@pytest.mark.parametrize(
    ("health", "usable"),
    [(Health.HEALTHY, True), (Health.SUSPECT, True), (Health.UNHEALTHY, False), (Health.PROBATION, False)],
)
def test_only_trusted_devices_are_offered(health: Health, usable: bool) -> None:
    assert health.usable is usable


def test_a_cause_reads_as_code_and_message() -> None:
    assert str(SICK.cause) == "xid-79: fell off the bus"
    assert str(Cause("probe-timeout", CauseKind.TRANSIENT)) == "probe-timeout"


@pytest.mark.parametrize(
    "edits",
    [
        Edits(env={"A": "1"}),
        Edits(mounts=(Mount("/a", "/b"),)),
        Edits(annotations={"a": "b"}),
        Edits(cdi=("example.com/gpu=0",)),
    ],
)
def test_edits_are_true_when_they_change_something(edits: Edits) -> None:
    assert edits
    assert not NO_EDITS
