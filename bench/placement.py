"""How long the choice of devices takes, in process: `fairlead.policy.placement.place.place` on made-up machines.

Owns the machines and the questions. A choice that was found once is remembered, so each timed question is a new one.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from fairlead.model.device import Device
from fairlead.model.inventory import Inventory, Links
from fairlead.model.names import DeviceId, ResourceName, SlotId
from fairlead.model.resource import Resource, Slot
from fairlead.policy.placement.place import place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

TRIES = 3  # of each question the fastest counts: the machine's pauses are not the search's
ISLAND = 8


def islands(one: int, other: int) -> int:
    """Switches of eight, two of them near each other."""
    if one // ISLAND == other // ISLAND:
        return 18
    return 3 if one // (2 * ISLAND) == other // (2 * ISLAND) else 1


def rings(one: int, other: int) -> int:
    """Each device is joined to the next two on either side, the nearer better."""
    return {1: 4, 2: 2}.get(abs(one - other), 0)


def uneven(one: int, other: int) -> int:
    """No pattern at all: the hardest to search, the same every time."""
    return random.Random(one * 1009 + other).randrange(1, 20)


SHAPES = (islands, rings, uneven)


def machine(count: int, score: Callable[[int, int], int]) -> Resource:
    """New objects each time, so that nothing is remembered of an earlier machine."""
    ids = [DeviceId(f"GPU-{number:04}") for number in range(count)]
    devices = tuple(
        Device(name, index=str(number), numa_nodes=(number * 2 // count,)) for number, name in enumerate(ids)
    )
    links = Links({(ids[a], ids[b]): score(a, b) for a in range(count) for b in range(a)})
    slots = tuple(Slot(SlotId(name), name) for name in ids)
    return Resource(ResourceName("example.com/gpu"), slots, Inventory(devices, links))


def times_ms(count: int, score: Callable[[int, int], int], sizes: Iterable[int]) -> tuple[float, float]:
    """The slowest of these sizes on a machine already looked at, and the first look at it."""
    best: dict[int, float] = {}
    first_look = float("inf")
    for _ in range(TRIES):
        resource = machine(count, score)
        everything = [slot.id for slot in resource.slots]
        # Asking for all leaves no choice: this is the cost of the tables alone.
        first_look = min(first_look, _time_ms(resource, everything, count))
        for size in sizes:
            best[size] = min(best.get(size, float("inf")), _time_ms(resource, everything, size))
    return max(best.values()), first_look


def _time_ms(resource: Resource, available: list[SlotId], size: int) -> float:
    start = time.perf_counter()
    choice = place(resource, available, [], size)
    elapsed = time.perf_counter() - start
    if len(choice.slots) != size:
        raise RuntimeError(f"{len(choice.slots)} slots were chosen, {size} were asked for")
    return elapsed * 1e3


def measure(rounds: int) -> Iterator[dict[str, float]]:
    for _ in range(rounds):
        large = [times_ms(128, score, range(1, 128)) for score in SHAPES]
        small = [times_ms(16, score, (2, 4, 8)) for score in SHAPES]
        yield {
            "place_128": max(slowest for slowest, _ in large),
            "place_128_first": max(first for _, first in large),
            "place_16": max(slowest for slowest, _ in small),
        }
