"""What the plugin makes of each GPU and instance under the same config file: its own rules are asked."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from fairlead.backends.nvidia.devices import describe
from fairlead.backends.nvidia.snapshot import Snapshot
from fairlead.backends.nvidia.spec import MigStrategy
from fairlead.config.load import build
from fairlead.dialects.nvidia.selections import MIG_TEMPLATE, Selection
from fairlead.dialects.nvidia.v1 import PREFIX
from fairlead.model.device import Device
from fairlead.model.inventory import Inventory
from fairlead.policy.offering.rules import make_offering


class Offered(Struct, frozen=True):
    label: str  # the name in the labels, without NVIDIA's domain
    replicas: int = 1
    renamed: bool = False  # what is shared has a name of its own


def find_offered(snapshot: Snapshot | None, mig_strategy: str, selections: Sequence[Selection]) -> dict[str, Offered]:
    """By the UUID of a GPU or an instance."""
    if snapshot is None:
        return {}
    mig = MigStrategy(mig_strategy) if mig_strategy in set(MigStrategy) else MigStrategy.NONE
    devices = {device.id: device for device in describe((*snapshot.gpus, *snapshot.lost), mig)}
    rules = [
        {
            **({"match": dict(selection.selector)} if selection.selector else {}),
            "resource": selection.resource,
            "replicas": selection.replicas,
        }
        for selection in selections
    ]
    compiled = build({"backends": [{"kind": "nvidia"}], "rules": rules}, "labels").rules
    hits = make_offering(Inventory(tuple(devices.values())), compiled).matches
    return {hit.device: _offered(selections[hit.rule], devices[hit.device]) for hit in hits if hit.rule is not None}


def _offered(selection: Selection, device: Device) -> Offered:
    """Labels name what is shared as a whole by the name it had, as gpu-feature-discovery does; a part by its own."""
    name = selection.name
    if name == MIG_TEMPLATE:
        name = name.format(profile=device.attributes["profile"])
    if selection.shared is not None and selection.shared.devices != "all":
        name = selection.resource
    renamed = selection.shared is not None and bool(selection.shared.rename)
    return Offered(name.removeprefix(PREFIX), selection.replicas, renamed)
