"""What the plugin makes of each GPU and instance under the same config file: its own rules are asked."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from fairlead.backends.nvidia.devices import describe
from fairlead.backends.nvidia.records import Look
from fairlead.backends.nvidia.spec import Mig
from fairlead.config.load import build
from fairlead.dialects.nvidia.offers import MIG_TEMPLATE, Offer
from fairlead.dialects.nvidia.v1 import PREFIX
from fairlead.model.device import Device
from fairlead.model.inventory import Inventory
from fairlead.policy.rules import assign


class Offered(Struct, frozen=True):
    label: str  # the name in the labels, without NVIDIA's domain
    replicas: int = 1
    renamed: bool = False  # what is shared has a name of its own


def find_offered(look: Look | None, mig_strategy: str, offers: Sequence[Offer]) -> dict[str, Offered]:
    """By the UUID of a GPU or an instance."""
    if look is None:
        return {}
    mig = Mig(mig_strategy) if mig_strategy in set(Mig) else Mig.NONE
    devices = {device.id: device for device in describe((*look.gpus, *look.lost), mig)}
    rules = [
        {
            **({"match": dict(offer.match)} if offer.match else {}),
            "resource": offer.resource,
            "replicas": offer.replicas,
        }
        for offer in offers
    ]
    compiled = build({"backends": [{"kind": "nvidia"}], "rules": rules}, "labels").rules
    hits = assign(Inventory(tuple(devices.values())), compiled).hits
    return {hit.device: _offered(offers[hit.rule], devices[hit.device]) for hit in hits if hit.rule is not None}


def _offered(offer: Offer, device: Device) -> Offered:
    """Labels name what is shared as a whole by the name it had, as gpu-feature-discovery does; a part by its own."""
    name = offer.name
    if name == MIG_TEMPLATE:
        name = name.format(profile=device.attributes["profile"])
    if offer.shared is not None and offer.shared.devices != "all":
        name = offer.resource
    renamed = offer.shared is not None and bool(offer.shared.rename)
    return Offered(name.removeprefix(PREFIX), offer.replicas, renamed)
