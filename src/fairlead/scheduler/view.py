"""View: what the extender knows of the cluster. Fed by watches, changed by answers; nothing in it waits or asks.

Order of truth for a pod: what it says itself on its node, what we have bound and the watch has not shown yet, room that
was promised to it by preemption, room that its filter was answered with.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from fairlead.model.errors import InvalidQuantity
from fairlead.model.quantity import parse_quantity
from fairlead.policy.packing.node import Demand, DeviceRoom, NodeRoom, Preference, Share
from fairlead.policy.packing.packing import Booking, Origin, Packing
from fairlead.policy.pods.contract import Contract
from fairlead.policy.pods.requests import Fault
from fairlead.scheduler.objects import ENDED, NodeObject, PodObject, SeenPod
from fairlead.scheduler.reading import Demands, Node, Reader, Shape, read_copies_shares

TENTATIVE_S = 5.0  # from a filter to its bind; a scheduling cycle takes far less
WAITING_S = 600.0  # the same for pods that wait for others, or for volumes: as long as kube-scheduler waits for these
REFUSED_MAX = 10_000  # pods that are remembered as refused


class Terms(Struct, frozen=True):
    """How one resource is packed."""

    contract: Contract
    preference: Preference = Preference.TIGHTEST


class Asked(Struct, frozen=True):
    """What a pod asks for of each resource that we manage. Never empty."""

    seen: SeenPod
    demands: Demands

    @property
    def uid(self) -> str:
        return self.seen.pod.uid


class View:
    def __init__(self, terms: Sequence[Terms]) -> None:
        self.terms = tuple(terms)
        self.packings = tuple(Packing(one.preference) for one in terms)
        self.reader = Reader([one.contract for one in terms], [one.preference for one in terms])
        self._nodes: dict[str, Node] = {}
        self._unhealthy: dict[str, frozenset[str]] = {}  # by node: indexes that a ConfigMap names
        self._waiting: dict[str, Asked] = {}  # pods without a node that ask for something of ours
        self._bound: dict[str, SeenPod] = {}  # pods on a node whose devices cannot be read yet: it is not known
        self._until_s: dict[str, tuple[float, str]] = {}  # when a tentative booking ends, and the group of its pod
        self._groups_s: dict[str, float] = {}  # when those of a group end, if later
        self.refused: dict[str, Asked] = {}  # pods that fitted nowhere when they were asked about
        self.faults: dict[str, str] = {}  # by uid: what is wrong with pods that run

    def keeps(self, key: str) -> bool:
        """Annotations and labels of pods that are worth memory."""
        return self.reader.keeps(key)

    # --- Nodes ------------------------------------------------------------------------------------------------------

    def put_node(self, found: NodeObject) -> bool:
        """Whether it offers something else than before."""
        return self.put_nodes((found,))

    def put_nodes(self, found: Iterable[NodeObject]) -> bool:
        """Whether one of them offers something else than before. Many at once cost one look at the pods."""
        changed = False
        again: dict[str, bool] = {}  # positions of devices may be others now; and whether the node is new
        for one in found:
            name, node = one.metadata.name, self.reader.node(one)
            known = self._nodes.get(name)
            if node == known:
                continue
            changed = True
            self._nodes[name] = node
            self._offer(name, node)
            if known is None or known.devices != node.devices:
                again[name] = known is None
        if again:
            self._read_again(again)
        return changed

    def _read_again(self, nodes: Mapping[str, bool]) -> None:
        for uid, seen in list(self._bound.items()):
            new = nodes.get(seen.pod.node)
            if new is None:
                continue
            booked = [packing.booking(uid) for packing in self.packings]
            if new or uid in self.faults or any(one is not None and one.origin is Origin.SEEN for one in booked):
                self._put_bound(seen, self.asked(seen))

    def _offer(self, name: str, node: Node) -> bool:
        """Whether it is another than before."""
        changed = False
        for position, (packing, found) in enumerate(zip(self.packings, node.devices, strict=True)):
            ill = self._unhealthy.get(name) if self.terms[position].contract.unhealthy_map else None
            devices = tuple(replace(one, usable=one.usable and one.index not in ill) for one in found) if ill else found
            if devices or name in packing.nodes:
                changed |= packing.put_node(name, devices, node.pods_max[position])
        return changed

    def put_unhealthy(self, name: str, indexes: frozenset[str]) -> bool:
        """What a ConfigMap says of a node's devices; nothing where it is gone. Whether that changes something."""
        if indexes == self._unhealthy.get(name, frozenset()):
            return False
        if indexes:
            self._unhealthy[name] = indexes
        else:
            self._unhealthy.pop(name, None)
        node = self._nodes.get(name)
        return node is not None and self._offer(name, node)

    def unhealthy_nodes(self) -> set[str]:
        return set(self._unhealthy)

    def drop_node(self, name: str) -> None:
        self._nodes.pop(name, None)
        for packing in self.packings:
            packing.drop_node(name)

    def node_names(self) -> set[str]:
        return set(self._nodes)

    def apart(self, nodes: Iterable[NodeObject]) -> View:
        """Another view, of these nodes as they say they are, with the bookings that are known for them."""
        other = View(self.terms)
        for node in nodes:
            other.put_node(node)
            for packing, own in zip(other.packings, self.packings, strict=True):
                for booking in own.on(node.metadata.name):
                    packing.put(booking)
        return other

    def preference(self, name: str, position: int) -> Preference:
        node = self._nodes.get(name)
        return node.preferences[position] if node is not None else self.terms[position].preference

    # --- Pods -------------------------------------------------------------------------------------------------------

    def put_pod(self, found: PodObject, *, small: bool = False) -> bool:
        """What a watch shows. Whether room became free by it. `small`: see `Reader.pod`."""
        if found.status.phase in ENDED:
            return self.drop_pod(found.metadata.uid)
        seen, shape = self.reader.pod(found, small=small)
        asked = self._asked(seen, shape.demands)
        if asked is None or isinstance(asked, Fault):
            return self.drop_pod(seen.pod.uid) if seen.pod.uid in self._bound else False
        if not seen.pod.node:
            self._waiting[asked.uid] = asked
            self._nominate(asked)
            return False
        self._waiting.pop(asked.uid, None)
        self.refused.pop(asked.uid, None)
        self._until_s.pop(asked.uid, None)
        return self._put_bound(seen, asked, shape)

    def drop_pod(self, uid: str) -> bool:
        """Whether room became free."""
        self._waiting.pop(uid, None)
        self._bound.pop(uid, None)
        self.refused.pop(uid, None)
        self.faults.pop(uid, None)
        self._until_s.pop(uid, None)
        return bool([True for packing in self.packings if packing.drop(uid) is not None])

    def pods(self) -> Iterable[str]:
        """All that are known, by uid."""
        return [*self._waiting, *self._bound]

    def requests(self, uids: Iterable[str]) -> dict[str, int]:
        """What pods on a node have been given of every resource, in thousandths. What cannot be read is nothing."""
        total: dict[str, int] = {}
        for seen in (self._bound[uid] for uid in uids if uid in self._bound):
            for container in seen.pod.containers:
                for resource, text in {**container.limits, **container.requests}.items():
                    with suppress(InvalidQuantity):
                        number, parts = parse_quantity(text)
                        total[resource] = total.get(resource, 0) + number * 1000 // parts
        return total

    @property
    def counts(self) -> dict[str, int]:
        """How many pods are known, by what they do."""
        return {
            "waiting": len(self._waiting),
            "refused": len(self.refused),
            "bound": len(self._bound),
            "unclear": len(self.faults),
        }

    def waiting(self, uid: str) -> Asked | None:
        return self._waiting.get(uid)

    def asked(self, seen: SeenPod) -> Asked | Fault | None:
        return self._asked(seen, self.reader.demands(seen.pod))

    def _asked(self, seen: SeenPod, demands: Demands | Fault) -> Asked | Fault | None:
        if isinstance(demands, Fault):
            return demands
        same = [position for position, _ in demands if any(one in self._beside(position) for one, _ in demands)]
        if same and not seen.pod.node:
            names = " and ".join(self.terms[position].contract.resource for position in same)
            return Fault(f"it asks for {names}, which are on the same devices. Ask for one of them")
        return Asked(seen, demands) if demands else None

    def _put_bound(self, seen: SeenPod, asked: Asked | Fault | None, shape: Shape | None = None) -> bool:
        """Books what a pod on a node has. A part that cannot be read stays as it was booked by us."""
        pod = seen.pod
        self._bound[pod.uid] = seen
        self.faults.pop(pod.uid, None)
        if not isinstance(asked, Asked):
            return False
        freed, node = False, self._nodes.get(pod.node)
        for position, demand in asked.demands:
            packing, contract = self.packings[position], self.terms[position].contract
            devices = node.devices[position] if node is not None else ()
            shares = read_copies_shares(pod, demand, contract, devices, shape)
            if isinstance(shares, Fault) or (shares is None and packing.booking(pod.uid) is None):
                self.faults[pod.uid] = shares.text if isinstance(shares, Fault) else "it says nothing of its devices"
                shares = self._only_device(demand, devices)
            if shares is not None:
                before = packing.booking(pod.uid)
                self._put(position, self._booking(seen, pod.node, shares, Origin.SEEN))
                freed = freed or (before is not None and (before.node, before.shares) != (pod.node, shares))
        return freed

    @staticmethod
    def _only_device(demand: Demand, devices: Sequence[DeviceRoom]) -> tuple[Share, ...] | None:
        """Where there is one device, a pod that does not say where it is can be nowhere else."""
        return (Share(0, demand.total or devices[0].units),) if len(devices) == 1 else None

    @staticmethod
    def _booking(seen: SeenPod, node: str, shares: tuple[Share, ...], origin: Origin) -> Booking:
        return Booking(seen.pod.uid, node, shares, origin, str(seen.pod), seen.priority)

    def _beside(self, position: int) -> list[int]:
        """The other resources of the same devices."""
        name = self.terms[position].contract.devices
        return [n for n, one in enumerate(self.terms) if name and one.contract.devices == name and n != position]

    def _put(self, position: int, booking: Booking) -> None:
        """Books it. Of a device that is taken whole nothing is left, and one that is taken in part is not whole."""
        self.packings[position].put(booking)
        for other in self._beside(position):
            mine, theirs = (self.packings[one].nodes.get(booking.node) for one in (position, other))
            taken = {one.index for one in mine.devices_of(booking.shares)} if mine is not None else set()
            shares = tuple(
                Share(place, 0 if self.terms[other].contract.whole else device.units)
                for place, device in enumerate(theirs.devices if theirs is not None else ())
                if device.index in taken
            )
            self.packings[other].put(replace(booking, shares=shares))

    # --- Bookings of our own ----------------------------------------------------------------------------------------

    def choose(self, asked: Asked, node: str) -> tuple[tuple[int, ...], ...] | None:
        """Devices for each of its demands; None: it does not fit there."""
        chosen = []
        for position, demand in asked.demands:
            room = self.room(asked, node, position)
            places = room.choose(demand, self.preference(node, position)) if room is not None else ()
            if not places:
                return None
            chosen.append(places)
        return tuple(chosen)

    def room(self, asked: Asked, node: str, position: int) -> NodeRoom | None:
        """A node as this pod finds it: without what it has itself, or pods of lower priority were promised."""
        packing = self.packings[position]
        room = packing.without(asked.uid, node)
        if room is None or not packing.promised:
            return room
        for other in packing.on(node):
            if other.origin is Origin.NOMINATED and other.priority < asked.seen.priority and other.uid != asked.uid:
                room = room.book(other.shares, -1)
        return room

    def book(
        self, asked: Asked, node: str, places: Sequence[Sequence[int]], origin: Origin, now_s: float = 0.0
    ) -> bool:
        """Whether room became free elsewhere."""
        freed = self.release(asked.uid, Origin.TENTATIVE)
        for (position, demand), chosen in zip(asked.demands, places, strict=True):
            packing = self.packings[position]
            shares = packing.nodes[node].shares(demand, chosen)
            self._put(position, self._booking(asked.seen, node, shares, origin))
        if origin is Origin.TENTATIVE:
            self._keep_room(asked, now_s)
        return freed

    def _keep_room(self, asked: Asked, now_s: float) -> None:
        """For members of a group from the filter of the last one: kube-scheduler asks about all before it binds one.

        Where the bind comes later, because of volumes, kube-scheduler nominates the node, and room is kept for that.
        """
        if group := asked.seen.group:
            self._groups_s[group] = now_s + TENTATIVE_S
            self._until_s[asked.uid] = now_s + TENTATIVE_S, group
        else:
            self._until_s[asked.uid] = now_s + (WAITING_S if asked.seen.waits else TENTATIVE_S), ""

    def release(self, uid: str, at_most: Origin) -> bool:
        """Whether room became free."""
        self._until_s.pop(uid, None)
        return bool([True for packing in self.packings if packing.drop(uid, at_most) is not None])

    def expire(self, now_s: float) -> set[str]:
        """Ends tentative bookings whose bind never came. The groups whose pods had the room; "" for those of none."""
        self._groups_s = {group: until_s for group, until_s in self._groups_s.items() if until_s > now_s}
        over = [
            (uid, group)
            for uid, (until_s, group) in self._until_s.items()
            if until_s <= now_s and group not in self._groups_s
        ]
        return {group for uid, group in over if self.release(uid, Origin.TENTATIVE)}

    def groups_beside(self, asked: Asked) -> set[str]:
        """Other groups of which members have room and are not bound yet."""
        return {group for _, group in self._until_s.values()} - {"", asked.seen.group}

    def release_groups(self, groups: Collection[str]) -> bool:
        """Whether room became free."""
        members = [uid for uid, (_, group) in self._until_s.items() if group in groups]
        return bool([uid for uid in members if self.release(uid, Origin.TENTATIVE)])

    def _nominate(self, asked: Asked) -> None:
        """Keeps room on the node that preemption makes room on, so that no smaller pod takes it."""
        node = asked.seen.nominated
        if not node:
            # Room that its filter was answered with stays: the watch may show the pod, or a change of it, after that.
            for packing in self.packings:
                known = packing.booking(asked.uid)
                if known is not None and known.origin is Origin.NOMINATED:
                    packing.drop(asked.uid, Origin.NOMINATED)
            return
        for position, demand in asked.demands:
            packing = self.packings[position]
            room = packing.without(asked.uid, node)
            if room is None:
                continue
            places = room.choose(demand) or _most_free(room, demand)
            if places:
                self._put(position, self._booking(asked.seen, node, room.shares(demand, places), Origin.NOMINATED))

    # --- Pods that were refused -------------------------------------------------------------------------------------

    def refuse(self, asked: Asked) -> None:
        if len(self.refused) < REFUSED_MAX:
            self.refused[asked.uid] = asked

    def fitting_again(self, most: int, groups: Collection[str] = ("",)) -> list[Asked]:
        """Pods that were refused and fit now. They are forgotten here.

        `groups`: those whose pods had the room before. To a pod of the same group it is not new.
        """
        found = []
        for asked in self.refused.values():
            if asked.seen.group and all(group == asked.seen.group for group in groups):
                continue
            position, demand = asked.demands[0]
            packing = self.packings[position]
            if any(self.choose(asked, one.node) for one in packing.best(demand, packing.nodes.keys(), 8, asked.uid)):
                found.append(asked)
                if len(found) == most:
                    break
        for asked in found:
            del self.refused[asked.uid]
        return found


def _most_free(room: NodeRoom, demand: Demand) -> tuple[int, ...]:
    """Where room is most likely made."""
    usable = [place for place, device in enumerate(room.devices) if device.usable]
    order = sorted(usable, key=lambda place: (-room.free[place], place))
    return tuple(sorted(order[: demand.devices])) if len(order) >= demand.devices else ()
