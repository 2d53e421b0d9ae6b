"""How long a device list keeps the kubelet busy. A pure model; where its constant was measured stands beside it.

From 1.36 on (feature gate ResourceHealthStatus, on by default) the kubelet looks for the pod of each listed slot that
is new to it or whose health has changed. For each such slot it makes the set of all ids that each container holds, of
every resource (devicemanager: genericDeviceUpdateCallback, getPodAndContainerForDevice). So a list costs slots x held
ids, under the lock of the device manager: no pod is admitted meanwhile, not even one without devices.

All slots are new after a restart of the kubelet. A fault changes the slots of one device.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isqrt

from msgspec import Struct

from fairlead.model.names import ResourceName
from fairlead.model.resource import Resource

# Of one changed slot and one held id: an insertion into a Go map. Kubelet 1.36.4 took 75 to 100 ns on one machine and
# 125 to 155 ns on another (tests/unit/policy/offering/test_stall.py has both); the bound holds on the slower one.
PAIR_S = 150e-9
# A list with all of it held may take so long: pods that start meanwhile wait for it. 1,825 slots.
MAX_STALL_S = 0.5
NOTICED_S = 0.01  # what takes less is not worth a word


class Stall(Struct, frozen=True):
    """What a resource costs the kubelet when pods hold everything that is offered."""

    slots: int
    seconds: float

    @property
    def long(self) -> bool:
        return self.seconds > MAX_STALL_S


def stall_s(slots: int, held: int) -> float:
    """How long the kubelet is busy with a list: so many slots are new or changed, and pods hold so many ids."""
    return slots * held * PAIR_S


def most_slots(max_stall_s: float = MAX_STALL_S) -> int:
    """The longest list that takes no longer when all of it is held."""
    return isqrt(int(max_stall_s / PAIR_S))


def stalls(resources: Iterable[Resource]) -> dict[ResourceName, Stall]:
    """By resource. Ids of all resources count, whichever is listed."""
    counts = {resource.name: len(resource.slots) for resource in resources}
    held = sum(counts.values())
    return {name: Stall(slots, stall_s(slots, held)) for name, slots in counts.items()}


def name_time(seconds: float) -> str:
    """For people: two digits are all that the model is worth."""
    if seconds < 1:
        return f"{max(seconds, NOTICED_S):.2f} s"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:,.0f} s"


def explain_stall(stall: Stall, *, memory: bool) -> str:
    """What the price is, in words; with a cure where it is high. Empty where it is not worth a word."""
    if stall.seconds < NOTICED_S:
        return ""
    price = (
        f"with all {stall.slots:,} slots held, a kubelet that restarts is busy with the list for about "
        f"{name_time(stall.seconds)}, and admits no pod meanwhile"
    )
    if not stall.long:
        return price
    less = "a larger unit: memory.unit, memory.maxStall or --max-stall" if memory else "fewer replicas"
    return f"{price}. At most {name_time(MAX_STALL_S)} with {less}"
