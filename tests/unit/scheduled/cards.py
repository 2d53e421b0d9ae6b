"""GPUs whose memory a scheduler hands out, as tests of assignment have them."""

from __future__ import annotations

from msgspec.structs import replace

from fairlead.model.assign import Assign
from fairlead.model.device import Device
from fairlead.model.inventory import Inventory
from fairlead.model.names import DeviceId, ResourceName, SlotId
from fairlead.model.resource import Resource, Slot, Terms

MEMORY = ResourceName("example.com/memory")
ROOM = 8
CARDS = 3
ASSIGN = Assign(
    device="card",
    time="time",
    assigned="assigned",
    unassigned=frozenset({"", "false"}),
    wait_s=0.0,
    marks={"assigned": "true"},
    node_lock="lock",
)
KEEP = replace(ASSIGN, actual="actual", after_bind=False)  # its scheduler counts by what it wrote


def make_cards(count: int = CARDS, room: int = ROOM) -> Resource:
    devices = [
        Device(id=DeviceId(f"GPU-{n}"), backend="sim", index=str(n), memory_bytes=room << 20) for n in range(count)
    ]
    slots = [Slot(SlotId(f"{d.index}-{n}"), d.id) for d in devices for n in range(room)]
    inventory = Inventory(devices=tuple(devices))
    return Resource(MEMORY, tuple(slots), inventory, terms=Terms(assign=ASSIGN), unit_bytes=1 << 20)
