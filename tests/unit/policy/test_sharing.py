"""A device becomes slots, and a slot's text leads back to it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.model.device import Device
from fairlead.model.errors import UsageError
from fairlead.model.names import DeviceId, SlotId
from fairlead.policy.sharing import device_of, slots_for


def test_a_whole_device_is_one_slot_with_its_own_id() -> None:
    (slot,) = slots_for(Device(DeviceId("GPU-1")), 1)
    assert (slot.id, slot.device, slot.retired_s) == ("GPU-1", "GPU-1", None)


def test_replicas_are_numbered_from_zero() -> None:
    assert [slot.id for slot in slots_for(Device(DeviceId("GPU-1")), 3)] == ["GPU-1::0", "GPU-1::1", "GPU-1::2"]


def test_no_device_has_zero_replicas() -> None:
    with pytest.raises(UsageError, match="GPU-1: 0 replicas"):
        slots_for(Device(DeviceId("GPU-1")), 0)


@given(st.text(min_size=1), st.integers(2, 12))
def test_every_replica_leads_back_to_its_device(device_id: str, replicas: int) -> None:
    device = Device(DeviceId(device_id))
    assert {device_of(slot.id) for slot in slots_for(device, replicas)} == {device.id}


@pytest.mark.parametrize("text", ["GPU-1", "GPU-1::", "GPU-1::x", "GPU-1::²", "::3", "a:1", "0000:3b:00.0"])
def test_text_that_is_no_replica_is_a_whole_device(text: str) -> None:
    assert device_of(SlotId(text)) == text


def test_only_the_last_mark_counts() -> None:
    assert device_of(SlotId("a::1::2")) == "a::1"
