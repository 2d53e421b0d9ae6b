"""Devices: the physical things. Facts only; health lives beside them in the inventory."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from fairlead.model.names import DeviceId


class DeviceNode(Struct, frozen=True):
    """A device file of the host, and where a container finds it."""

    path: str
    container_path: str = ""  # empty: the same path
    permissions: str = "rw"  # any of r, w, m


class Usage(Struct, frozen=True):
    """How busy a device is now. None where its driver does not say."""

    utilization: float | None = None  # 0 to 1
    memory_used_bytes: int | None = None


class Device(Struct, frozen=True):
    """One physical thing: a GPU, a partition of one, a group of /dev nodes."""

    id: DeviceId
    index: str = ""  # what people and drivers call it: "0", or "0:1" for a partition
    vendor: str = ""
    model: str = ""
    memory_bytes: int = 0
    pci_address: str = ""
    numa_nodes: tuple[int, ...] = ()
    nodes: tuple[DeviceNode, ...] = ()
    parent: DeviceId | None = None  # the device that this one is a partition of
    backend: str = ""  # who found it; filled in by the engine
    attributes: Mapping[str, str] = field(default_factory=dict)
    # The ids of its slots, where pods of another plugin hold such ids; unique within a resource. Empty: made of `id`.
    slots: tuple[str, ...] = ()
