"""Devices are ordered as people count."""

import random

from fairlead.model.device import Device
from fairlead.model.names import DeviceId
from fairlead.policy.order import device_key, natural_key


def test_ten_comes_after_two() -> None:
    assert sorted(["10", "2", "0:10", "0:9", "0"], key=natural_key) == ["0", "0:9", "0:10", "2", "10"]


def test_the_index_decides_before_the_id_and_no_index_comes_last() -> None:
    devices = [Device(DeviceId(i), index=x) for i, x in [("b", "0"), ("a", "1"), ("0", ""), ("c10", ""), ("c9", "")]]
    shuffled = random.Random(7).sample(devices, len(devices))
    assert [device.id for device in sorted(shuffled, key=device_key)] == ["b", "a", "0", "c9", "c10"]


def test_numbers_of_any_length_and_leading_zeros_have_an_order() -> None:
    long = "9" * 5000
    assert natural_key(long) > natural_key("1")
    one, other = Device(DeviceId("01"), index="1"), Device(DeviceId("1"), index="1")
    assert device_key(one) < device_key(other)
