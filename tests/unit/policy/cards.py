"""Cards whose memory is shared, for the tests of several rooms."""

from __future__ import annotations

import random

from msgspec.structs import replace

from fairlead.model.device import Device
from fairlead.model.inventory import Inventory
from fairlead.model.names import DeviceId, ResourceName
from fairlead.model.resource import Resource, Strategy
from fairlead.policy.memory import MIB, Share
from fairlead.policy.rules import ANY, Rule, assign

GIB = 1024 * MIB
NAME = ResourceName("example.com/gpu-memory")


def card(number: int, memory_bytes: int, numa: tuple[int, ...] = ()) -> Device:
    digits = f"{random.Random(number).getrandbits(128):032x}"
    uuid = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    return Device(DeviceId(f"GPU-{uuid}"), index=str(number), memory_bytes=memory_bytes, numa_nodes=numa)


def node(*sizes: int) -> tuple[Device, ...]:
    return tuple(card(number, size, (number % 2,)) for number, size in enumerate(sizes))


def shared(devices: tuple[Device, ...], share: Share | None = None, **keys: object) -> Resource:
    rule = Rule(ANY, NAME, memory=share or Share(), strategy=Strategy.PACK)
    (resource,) = assign(Inventory(devices), [rule]).resources
    return replace(resource, **keys)
