"""Resources for tests of the device plugin front."""

from __future__ import annotations

from typing import Any

from fairlead.model.device import Device
from fairlead.model.health import Cause, CauseKind, Condition, Health
from fairlead.model.inventory import Conditions, Inventory
from fairlead.model.names import DeviceId, ResourceName, SlotId
from fairlead.model.resource import Resource, Slot

BROKEN = Condition(Health.UNHEALTHY, Cause("xid-79", CauseKind.PERMANENT, "fallen off the bus"), 5.0)


def broken(*numbers: int) -> Conditions:
    return Conditions({DeviceId(f"d{n}"): BROKEN for n in numbers})


def resource(count: int = 4, *, replicas: int = 1, **keys: Any) -> Resource:
    devices = tuple(Device(DeviceId(f"d{n}"), index=str(n), numa_nodes=(n % 2,)) for n in range(count))
    slots = tuple(
        Slot(SlotId(f"d{n}::{r}" if replicas > 1 else f"d{n}"), DeviceId(f"d{n}"))
        for n in range(count)
        for r in range(replicas)
    )
    return Resource(ResourceName("example.com/gpu"), slots, Inventory(devices), **keys)
