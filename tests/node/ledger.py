"""The books of a load: which memory pods held and when, so that a refusal can be judged after the fact."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

NEVER = float("inf")
# The kubelet chooses ids, then asks for them: what came free in between, it did not choose from. On a loaded machine
# that took over 100 ms.
CHOICE_S = 1.0
SEVERAL = "the units lie on several devices"
_PIECE = re.compile(r"\S+ \((\d+)\)")


@dataclass(slots=True)
class Stay:
    """What one container holds, from the grant until it was seen to be free again."""

    card: str
    ids: frozenset[str]
    since: float
    until: float = NEVER


def date(stays: Iterable[Stay], grants: Iterable[Mapping[str, Any]]) -> None:
    """When each began, from the journal: whoever looks sees it later."""
    known = [(_at(fact), {slot for slot in fact["slots"] if not slot.startswith("and ")}) for fact in grants]
    for stay in stays:
        stay.since = max((at for at, slots in known if at <= stay.since and slots <= stay.ids), default=stay.since)


def unseen(
    stays: Iterable[Stay], grants: Iterable[Mapping[str, Any]], looks: Iterable[float], card_of: Callable[[str], str]
) -> list[Stay]:
    """Grants that were over before anybody looked: of a pod that a kubelet which restarted has not taken back.

    Until the first look that does not show it, such a pod may have held its units. The stays must have their dates.
    """
    seen = {stay.since for stay in stays}
    moments = sorted(looks)
    found = []
    for fact in grants:
        since, slots = _at(fact), fact["slots"]
        if since in seen:
            continue
        ids = {slot for slot in slots if not slot.startswith("and ")}
        more = {f"and more {number}" for slot in slots if slot not in ids for number in range(int(slot.split()[1]))}
        until = next((look for look in moments if look > since), NEVER)
        found.append(Stay(card_of(min(ids)), frozenset(ids | more), since, until))
    return found


def units_asked(reason: str) -> int:
    """How much was asked for, in a refusal that names the pieces it would have been put together from."""
    return sum(map(int, _PIECE.findall(reason.partition(SEVERAL)[2])))


def room(cards: Mapping[str, int], stays: Iterable[Stay], at: float) -> dict[str, int]:
    """The free units of each card at a moment. What was being given back just then counts as held."""
    taken = Counter[str]()
    for stay in stays:
        if stay.since < at < stay.until + CHOICE_S:
            taken[stay.card] += len(stay.ids)
    return {card: units - taken[card] for card, units in cards.items()}


def unexplained(
    cards: Mapping[str, int],
    stays: Iterable[Stay],
    refusals: Iterable[Mapping[str, Any]],
    outages: Iterable[tuple[float, float]] = (),
    grants: Iterable[Mapping[str, Any]] = (),
) -> list[str]:
    """Refusals for want of one card with so much room, although there was one.

    A kubelet writes its checkpoint with each grant, and not when a pod ends. The next one begins with it, and drops
    pods that have ended only after its first batch of pods is admitted (1.36: `syncLoopIteration` calls `AddSource`
    last, and `UpdateAllocatedDevices` waits for it). So what ended after the last grant before an outage counts as held
    until the outage is over.
    """
    written = [_at(fact) for fact in grants]
    windows = [(max((at for at in written if at <= begin), default=begin), end) for begin, end in outages]
    kept = [replace(stay, until=_end(stay.until, windows)) for stay in stays]
    found = []
    for fact in refusals:
        free = room(cards, kept, _at(fact))
        if SEVERAL not in fact["reason"] or units_asked(fact["reason"]) <= max(free.values()):
            found.append(f"{fact['at']}: {fact['reason']}; there was room: {free}")
    return found


def _end(until: float, outages: Iterable[tuple[float, float]]) -> float:
    return max([until, *(end for begin, end in outages if begin <= until <= end)])


def _at(fact: Mapping[str, Any]) -> float:
    return datetime.fromisoformat(fact["at"]).timestamp()
