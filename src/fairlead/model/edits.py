"""Grants and edits: the slots given to one container, and what that container gets for them."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from fairlead.model.device import Device, DeviceNode
from fairlead.model.names import ResourceName, SlotId


class Mount(Struct, frozen=True):
    host_path: str
    container_path: str
    read_only: bool = True


class Edits(Struct, frozen=True):
    env: Mapping[str, str] = field(default_factory=dict)
    nodes: tuple[DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    cdi: tuple[str, ...] = ()  # fully qualified: vendor/class=name

    def __bool__(self) -> bool:
        return bool(self.env or self.nodes or self.mounts or self.annotations or self.cdi)


NO_EDITS = Edits()


class Grant(Struct, frozen=True):
    """What the kubelet asks to hand to one container. Devices are listed once each, in the order of the slots."""

    resource: ResourceName
    slots: tuple[SlotId, ...]
    devices: tuple[Device, ...]
    unit_bytes: int = 0  # of memory that each slot stands for; 0: none
    units: tuple[int, ...] = ()  # with a unit: how many slots are of each device
    variables: Mapping[str, str] = field(default_factory=dict)  # what is known of its pod, for a rule's environment
