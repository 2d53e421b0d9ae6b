"""What the extender answers, of what it knows: filter, prioritize and preempt. Asks no server, waits for nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from fairlead.policy.packing.node import Demand, NodeRoom
from fairlead.policy.packing.packing import Booking, Origin
from fairlead.policy.packing.victims import choose_victims
from fairlead.policy.pods.contract import Contract
from fairlead.policy.pods.requests import Fault
from fairlead.scheduler.view import Asked, View

SCORE_MAX = 10
ALL = 2**31  # as many nodes as fit


class Refusals(Struct, frozen=True):
    """Why nodes do not fit, by node. `for_good`: no pod that leaves would change it."""

    now: dict[str, str]
    for_good: dict[str, str]


def best_nodes(view: View, asked: Asked, names: Iterable[str], count: int) -> list[str]:
    """Nodes that fit all that the pod asks for, the best first."""
    listed = list(names)
    (position, demand), *others = asked.demands
    packing = view.packings[position]
    if not others:
        best = [one.node for one in packing.best(demand, listed, count, asked.uid)]
        if len(best) == count or not packing.promised:
            return best
    # Few pods ask for two of our resources, or need a node that is promised: all nodes are looked at one by one.
    ranked = [one.node for one in packing.best(demand, listed, ALL, asked.uid)]
    known = set(ranked)
    # A promise to a pod of lower priority does not count.
    ranked += [
        name
        for name in listed
        if name not in known and any(other.origin is Origin.NOMINATED for other in packing.on(name))
    ]
    fitting = (name for name in ranked if view.choose(asked, name) is not None)
    return [name for _, name in zip(range(count), fitting, strict=False)]


def scores(view: View, asked: Asked, names: Sequence[str]) -> dict[str, int]:
    """By rank among these: eleven steps are enough for that, and not for amounts."""
    order = best_nodes(view, asked, names, len(names))
    last = max(len(order) - 1, 1)
    ranked = {name: SCORE_MAX - SCORE_MAX * place // last for place, name in enumerate(order)}
    return {name: ranked.get(name, 0) for name in names}


def refusals(view: View, asked: Asked | Fault, names: Iterable[str]) -> Refusals:
    """With figures, and the same words for all nodes with the same reason: kube-scheduler counts equal ones."""
    if isinstance(asked, Fault):
        return Refusals({}, dict.fromkeys(names, asked.text))
    now: dict[str, str] = {}
    for_good: dict[str, str] = {}
    parts = [_Part(view.terms[position].contract, position, demand) for position, demand in asked.demands]
    for name in names:
        for part in parts:
            room = view.room(asked, name, part.position)
            if room is None or not room.devices:
                for_good[name] = part.contract.not_offered.format(node=name, resource=part.contract.resource)
                break
            if not part.could_fit(room):
                for_good[name] = part.too_small
                break
            if not room.fits(part.demand):
                part.full.append(name)
                part.largest = max(part.largest, room.largest)
                break
    for part in parts:
        now |= dict.fromkeys(part.full, f"{part.text}, at most {part.largest} free")
    return Refusals(now, for_good)


class _Part:
    """One demand of a pod that is refused. Most nodes have the devices of others: what these could take is kept."""

    def __init__(self, contract: Contract, position: int, demand: Demand) -> None:
        self.contract, self.position, self.demand = contract, position, demand
        self.text = f"{contract.too_small}: {_say(demand)}"
        self.too_small = f"{self.text}, and its devices are smaller or fewer"
        self.full: list[str] = []  # nodes that have no room now
        self.largest = 0  # the most units that one of their devices still gives
        self._known: dict[int, tuple[object, bool]] = {}  # by the identity of the devices, which are held for that

    def could_fit(self, room: NodeRoom) -> bool:
        known = self._known.get(id(room.devices))
        if known is None:
            known = self._known[id(room.devices)] = room.devices, could_fit(room, self.demand)
        return known[1]


def could_fit(room: NodeRoom, demand: Demand) -> bool:
    """Whether the pod would fit if no other one were there."""
    fitting = [one for one in room.devices if one.usable and one.units >= max(demand.units, 1)]
    return len(fitting) >= demand.devices


def _say(demand: Demand) -> str:
    if demand.whole and not demand.units:
        return f"{demand.devices} whole devices asked"
    each = f"{demand.units} asked" if demand.devices == 1 else f"{demand.units} asked of each of {demand.devices}"
    return f"{each} of an unused device" if demand.whole else each


def victims(view: View, asked: Asked, candidates: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    """Pods that must leave, by node: those that really free the devices.

    The scheduler chose by totals, and its pods may be on devices that do not help. Others take their place where they
    give back at least as much of everything; else they leave too. Nodes on which nothing helps are left out.
    """
    found: dict[str, list[str]] = {}
    for name, uids in candidates.items():
        given = list(dict.fromkeys(uids))
        chosen = dict.fromkeys(given)
        for position, demand in asked.demands:
            more = _victims_of(view, asked, name, position, demand, given)
            if more is None:
                break
            if len(asked.demands) == 1 and _covers(view, more, given):
                chosen = {}
            chosen |= dict.fromkeys(more)
        else:
            if chosen:  # the scheduler wants a victim on each node at least
                found[name] = list(chosen)
    return found


def _victims_of(
    view: View, asked: Asked, name: str, position: int, demand: Demand, given: Sequence[str]
) -> list[str] | None:
    room = view.room(asked, name, position)
    if room is None:
        return None
    others = [one for one in view.packings[position].on(name) if one.uid != asked.uid and _can_leave(one)]
    kept = choose_victims(room, demand, others, asked.seen.priority, set(given))
    afresh = choose_victims(room, demand, others, asked.seen.priority)
    sets = [[one.uid for one in each] for each in (afresh, kept) if each is not None]
    fitting = [each for each in sets if each and _covers(view, each, given)] or sets[-1:]
    return min(fitting, key=len) if fitting else None


def _covers(view: View, victims: Iterable[str], given: Iterable[str]) -> bool:
    """Whether these give back as much of every resource as those that the scheduler chose."""
    freed, wanted = view.requests(victims), view.requests(given)
    return all(freed.get(resource, 0) >= amount for resource, amount in wanted.items())


def _can_leave(booking: Booking) -> bool:
    """A pod that is on its node. The scheduler knows no other victims."""
    return booking.origin in {Origin.SEEN, Origin.BOUND}
