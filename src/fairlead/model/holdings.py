"""Who holds what: the kubelet's answer about the slots of pods, or that it gave none."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from msgspec import Struct, field

from fairlead.model.names import ResourceName, SlotId


class Holder(Struct, frozen=True):
    namespace: str
    pod: str
    container: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.pod}/{self.container}"


class Holdings(Struct, frozen=True, dict=True):
    """One answer of the kubelet. `by_slot` is keyed by resource and id: ids of other plugins may look like ours."""

    by_slot: Mapping[tuple[ResourceName, SlotId], Holder] = field(default_factory=dict)
    # Slots that two pods hold at once: a kubelet under load may give one out again. By the first of them.
    twice: Mapping[tuple[ResourceName, SlotId], Holder] = field(default_factory=dict)

    @cached_property
    def by_resource(self) -> Mapping[ResourceName, frozenset[SlotId]]:
        slots: dict[ResourceName, set[SlotId]] = {}
        for name, slot in self.by_slot:
            slots.setdefault(name, set()).add(slot)
        return {name: frozenset(held) for name, held in slots.items()}

    def by_holder(self, resource: ResourceName) -> Mapping[tuple[str, str, str], frozenset[SlotId]]:
        """By namespace, pod and container."""
        slots: dict[tuple[str, str, str], set[SlotId]] = {}
        for (name, slot), holder in self.by_slot.items():
            if name == resource:
                slots.setdefault((holder.namespace, holder.pod, holder.container), set()).add(slot)
        return {holder: frozenset(held) for holder, held in slots.items()}

    def of(self, resource: ResourceName) -> frozenset[SlotId]:
        return self.by_resource.get(resource, frozenset())


class Unknown(Struct, frozen=True):
    """The kubelet gave no answer, and why. Not the same as "no pod holds anything"."""

    reason: str
