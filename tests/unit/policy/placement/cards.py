"""Cards whose memory is shared, for the tests of several rooms."""

from __future__ import annotations

import random

from msgspec.structs import replace

from fairlead.model.device import Device
from fairlead.model.inventory import Inventory
from fairlead.model.names import DeviceId, ResourceName
from fairlead.model.resource import MemoryTerms, Resource, Strategy, Terms
from fairlead.policy.offering.memory import MIB
from fairlead.policy.offering.rules import ANY, Rule, make_offering

GIB = 1024 * MIB
NAME = ResourceName("example.com/gpu-memory")


def card(number: int, memory_bytes: int, numa: tuple[int, ...] = ()) -> Device:
    digits = f"{random.Random(number).getrandbits(128):032x}"
    uuid = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    return Device(DeviceId(f"GPU-{uuid}"), index=str(number), memory_bytes=memory_bytes, numa_nodes=numa)


def node(*sizes: int) -> tuple[Device, ...]:
    return tuple(card(number, size, (number % 2,)) for number, size in enumerate(sizes))


def shared(devices: tuple[Device, ...], share: MemoryTerms | None = None, **terms: object) -> Resource:
    given = replace(Terms(memory=share or MemoryTerms(), strategy=Strategy.PACK), **terms)
    (resource,) = make_offering(Inventory(devices), [Rule(ANY, NAME, terms=given)]).resources
    return resource
