"""Unwell: an annotation of the node lists the indexes of devices that are not usable, for schedulers that read it."""

from __future__ import annotations

from collections.abc import Iterable

from fairlead.app.annotation import NodeAnnotation
from fairlead.model.device import Device
from fairlead.model.resource import Resource
from fairlead.policy.order import device_key


class Unwell(NodeAnnotation):
    """Run it as a task; tell it of every change."""

    topic = "unhealthy"
    untold = "which devices are unusable"

    def tell(self, resources: Iterable[Resource]) -> None:
        self.want(list_unwell(resources))


def list_unwell(resources: Iterable[Resource]) -> str:
    """Indexes with commas between them, in the order of devices; empty if all are usable."""
    unwell: dict[str, Device] = {}
    for resource in resources:
        for name in resource.slots_of:
            device = resource.inventory.by_id.get(name)
            if device is not None and not resource.inventory.condition(name).health.usable:
                unwell[name] = device
    return ",".join(device.index for device in sorted(unwell.values(), key=device_key))
