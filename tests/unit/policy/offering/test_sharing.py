"""A device becomes slots, and a slot's text leads back to it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.model.device import Device
from fairlead.model.errors import UsageError
from fairlead.model.names import DeviceId, SlotId
from fairlead.policy.offering.sharing import device_of, slots_for


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


def test_shares_with_a_mark_of_their_own_are_numbered_even_if_there_is_one() -> None:
    device = Device(DeviceId("nvidia0/gi1"))
    assert [slot.id for slot in slots_for(device, 2, "/vgpu")] == ["nvidia0/gi1/vgpu0", "nvidia0/gi1/vgpu1"]
    assert [slot.id for slot in slots_for(device, 1, "/vgpu")] == ["nvidia0/gi1/vgpu0"]


@pytest.mark.parametrize(
    ("slot", "device"),
    [
        ("nvidia0/vgpu0", "nvidia0"),
        ("nvidia0/gi1/vgpu0", "nvidia0/gi1"),
        ("nvidia0", "nvidia0"),
        ("nvidia10/vgpu3", "nvidia10"),
        ("nvidia1::3", "nvidia1"),
        ("nvidia2/gi7", "nvidia2"),
        ("nvidia9/vgpu0", "nvidia9/vgpu0"),
    ],
)
def test_known_devices_say_whose_share_a_text_is(slot: str, device: str) -> None:
    known = [DeviceId(text) for text in ("nvidia0", "nvidia0/gi1", "nvidia1", "nvidia10", "nvidia2")]
    assert device_of(SlotId(slot), known) == device
