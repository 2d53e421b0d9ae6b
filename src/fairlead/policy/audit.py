"""The audit: what this daemon granted, what the kubelet says, and what processes use, held against each other.

Owns what counts as a difference, and when one is reported: seen in two looks in a row, so that a pod which comes or
goes during a look is none. Each is reported once, and cleared once. A view that could not be had clears nothing. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct, field

from fairlead.model.edits import Edits
from fairlead.model.errors import some
from fairlead.model.holdings import Holdings, Unknown
from fairlead.model.names import DeviceId, ResourceName, SlotId
from fairlead.model.resource import Resource

SETTLE_S = 10.0  # after Allocate, until the kubelet has written down which container has the slots
DIFFERENCES_MAX = 256  # of one look
SHOWN = 3  # names in a list
# Programs that belong to a driver, or that ask it how it is: their use of a device is no pod's, and harms none.
DRIVER_PROGRAMS = frozenset(
    {"nvidia-persiste", "nv-fabricmanage", "nv-hostengine", "nvidia-smi", "nvidia-cuda-mps", "fairlead"}
)


class Kind(StrEnum):
    ORPHAN_GRANT = "orphan-grant"
    DOUBLE_GRANT = "double-grant"
    GHOST_USE = "ghost-use"
    STALE_ENTRY = "stale-entry"
    WRONG_ENVIRONMENT = "wrong-environment"


class Difference(Struct, frozen=True):
    kind: str
    about: str  # what it is about; with the kind, what it is known by
    seen: str
    cure: str
    device: str = ""

    @property
    def key(self) -> tuple[str, str]:
        return self.kind, self.about


class NotLookedAt(Struct, frozen=True):
    kind: str
    lacks: str


class Report(Struct, frozen=True):
    at_s: float  # wall time of the look
    differences: tuple[Difference, ...] = ()
    not_looked_at: tuple[NotLookedAt, ...] = ()
    unconfirmed: int = 0  # seen in this look for the first time: the next look tells


# --- The views --------------------------------------------------------------------------------------------------------


class Granted(Struct, frozen=True):
    """An answer to Allocate, of this process."""

    resource: ResourceName
    slots: frozenset[SlotId]
    at_s: float


class Entry(Struct, frozen=True):
    """What a container has, by the kubelet's checkpoint."""

    pod_uid: str
    container: str
    resource: ResourceName
    slots: frozenset[SlotId]
    edits: Edits = Edits()  # as the kubelet keeps the answer to Allocate

    def __str__(self) -> str:
        return f"container {self.container} of the pod with uid {self.pod_uid}"


class Use(Struct, frozen=True):
    """A process that has the node of a device open."""

    pid: int
    name: str
    path: str
    pod_uid: str = ""  # empty: it is in no pod

    def __str__(self) -> str:
        return f"process {self.pid} ({self.name})"


class Processes(Struct, frozen=True):
    uses: tuple[Use, ...] = ()
    pods: frozenset[str] = frozenset()  # uids of pods that have a process


class Views(Struct, frozen=True, kw_only=True):
    now_s: float
    resources: Sequence[Resource]
    granted: Sequence[Granted] = ()
    holdings: Holdings | Unknown = Unknown("not read")
    entries: Sequence[Entry] | Unknown = Unknown("not read")
    processes: Processes | Unknown = Unknown("not read")
    expected: Sequence[tuple[Entry, Edits]] = ()  # what the slots of an entry would give today
    elsewhere: Mapping[tuple[ResourceName, SlotId], DeviceId] = field(default_factory=dict)  # as in the status

    def device_of(self, resource: Resource, slot: SlotId) -> DeviceId | None:
        if (found := self.elsewhere.get((resource.name, slot))) is not None:
            return found
        known = resource.by_id.get(slot)
        return known.device if known is not None else None


# --- What is compared -------------------------------------------------------------------------------------------------


def compare(views: Views) -> tuple[tuple[Difference, ...], tuple[NotLookedAt, ...]]:
    """The differences, and the kinds that could not be looked at."""
    found: list[Difference] = []
    lacking: list[NotLookedAt] = []
    for kind, (check, needs) in _CHECKS.items():
        lacks = [view.reason for name in needs if isinstance(view := getattr(views, name), Unknown)]
        if lacks:
            lacking.append(NotLookedAt(kind, "; ".join(lacks)))
        else:
            found += check(views)
    return tuple(found[:DIFFERENCES_MAX]), tuple(lacking)


def _orphans(views: Views) -> Iterator[Difference]:
    """The kubelet writes its checkpoint before it starts the container: what is not in it was given to none."""
    assert not isinstance(views.entries, Unknown)
    taken = {(entry.resource, slot) for entry in views.entries for slot in entry.slots}
    held = views.holdings.by_slot.keys() if isinstance(views.holdings, Holdings) else set()
    for grant in views.granted:
        left = sorted(s for s in grant.slots if (grant.resource, s) not in taken and (grant.resource, s) not in held)
        if left and views.now_s - grant.at_s >= SETTLE_S:
            slots = some(left, SHOWN)
            yield Difference(
                Kind.ORPHAN_GRANT,
                f"{grant.resource} {slots}",
                f"Allocate gave {slots} of {grant.resource}, and the kubelet gave it to no container: its pod was "
                "refused for another reason, or a program other than the kubelet called",
                "The next pod may have it: nothing has to be done. If no pod was refused: "
                "fairlead journal, which has the time of the call",
            )


def _doubles(views: Views) -> Iterator[Difference]:
    assert isinstance(views.holdings, Holdings)
    ours = {resource.name for resource in views.resources}
    for (name, slot), first in sorted(views.holdings.twice.items(), key=lambda item: item[0]):
        if name in ours:
            second = views.holdings.by_slot[name, slot]
            yield Difference(
                Kind.DOUBLE_GRANT,
                f"{name} {slot}",
                f"{slot} of {name} is held by {first} and by {second}: the kubelet gave it out twice",
                f"kubectl delete pod -n {second.namespace} {second.pod}",
            )


def _ghosts(views: Views) -> Iterator[Difference]:
    assert isinstance(views.processes, Processes)
    owners = own_nodes(views.resources)
    holders = _holders(views)
    for use in views.processes.uses:
        device = owners.get(use.path)
        if device is None or use.pod_uid in holders.get(device, ()):
            continue
        if use.pod_uid and isinstance(views.entries, Unknown):
            continue  # a pod uses it, and which pods hold it is not known
        where = f"of the pod with uid {use.pod_uid}, which does not hold it" if use.pod_uid else "which is in no pod"
        yield Difference(
            Kind.GHOST_USE,
            f"{device} {use.pid}",
            f"{use}, {where}, has {use.path} of the device {device} open",
            f"End it, or keep the device from pods: fairlead cordon {device} --reason 'used by {use.name[:64]}'",
            device,
        )


def _stale(views: Views) -> Iterator[Difference]:
    """Held by what the kubelet says now. An ended pod that only the checkpoint names is the kubelet's habit."""
    assert isinstance(views.holdings, Holdings)
    assert not isinstance(views.entries, Unknown)
    assert isinstance(views.processes, Processes)
    listed = {resource.name: resource for resource in views.resources}
    for entry in views.entries:
        resource = listed.get(entry.resource)
        if resource is None:
            continue
        held = sorted(slot for slot in entry.slots if (entry.resource, slot) in views.holdings.by_slot)
        if not held:
            continue
        holder, slots = views.holdings.by_slot[entry.resource, held[0]], some(held, SHOWN)
        if entry.pod_uid not in views.processes.pods:
            yield Difference(
                Kind.STALE_ENTRY,
                f"{entry.resource} {entry.pod_uid} {entry.container}",
                f"the kubelet holds {slots} of {entry.resource} for {holder}, and no process of that pod runs",
                "systemctl restart kubelet",
            )
        elif unknown := [slot for slot in held if slot not in resource.by_id]:
            yield Difference(
                Kind.STALE_ENTRY,
                f"{entry.resource} {entry.pod_uid} {entry.container}",
                f"{holder} holds {some(unknown, SHOWN)} of {entry.resource}, which is not listed: another plugin gave "
                "it, or other rules did",
                f"kubectl delete pod -n {holder.namespace} {holder.pod}, when it can be spared",
            )


def _environments(views: Views) -> Iterator[Difference]:
    assert not isinstance(views.entries, Unknown)
    held = views.holdings.by_slot if isinstance(views.holdings, Holdings) else {}
    for entry, expected in views.expected:
        if wrong := _contradiction(entry.edits, expected):
            holder = next((str(held[entry.resource, s]) for s in entry.slots if (entry.resource, s) in held), "")
            yield Difference(
                Kind.WRONG_ENVIRONMENT,
                f"{entry.resource} {entry.pod_uid} {entry.container}",
                f"{holder or entry} holds {some(sorted(entry.slots), SHOWN)} of {entry.resource}, and {wrong}",
                "Delete the pod, so that it is given its devices anew",
            )


def _contradiction(given: Edits, expected: Edits) -> str:
    """What was given and would be given otherwise today. What only one of them says is a change of configuration."""
    for name, value in sorted(expected.env.items()):
        if name in given.env and given.env[name] != value:
            return f"was given {name}={given.env[name]!r:.200} where these are {value!r:.200}"
    was, now = sorted(node.path for node in given.nodes), sorted(node.path for node in expected.nodes)
    if was and now and was != now:
        return f"was given the nodes {some(was, SHOWN)} where these have {some(now, SHOWN)}"
    if given.cdi and expected.cdi and sorted(given.cdi) != sorted(expected.cdi):
        return f"was given {some(sorted(given.cdi), SHOWN)} where these are {some(sorted(expected.cdi), SHOWN)}"
    return ""


_CHECKS = {
    Kind.ORPHAN_GRANT: (_orphans, ("entries",)),
    Kind.DOUBLE_GRANT: (_doubles, ("holdings",)),
    Kind.GHOST_USE: (_ghosts, ("processes",)),
    Kind.STALE_ENTRY: (_stale, ("holdings", "entries", "processes")),
    Kind.WRONG_ENVIRONMENT: (_environments, ("entries",)),
}


def own_nodes(resources: Sequence[Resource]) -> dict[str, DeviceId]:
    """Nodes of devices that are offered, each of one device. A node that several share says nothing of any of them."""
    owners: dict[str, DeviceId] = {}
    shared: set[str] = set()
    offered = {device for resource in resources for device in resource.slots_of}
    devices = {device.id: device for resource in resources for device in resource.inventory.devices}
    for device in devices.values():
        for node in device.nodes:
            if owners.setdefault(node.path, device.id) != device.id:
                shared.add(node.path)
    return {path: device for path, device in owners.items() if path not in shared and device in offered}


def _holders(views: Views) -> Mapping[DeviceId, set[str]]:
    """By device, the uids of the pods that hold some of it. A partition is a part of its parent."""
    found: dict[DeviceId, set[str]] = {}
    listed = {resource.name: resource for resource in views.resources}
    for entry in () if isinstance(views.entries, Unknown) else views.entries:
        if (resource := listed.get(entry.resource)) is None:
            continue
        for device in {views.device_of(resource, slot) for slot in entry.slots} - {None}:
            assert device is not None
            known = resource.inventory.by_id.get(device)
            for each in (device, known.parent if known is not None else None):
                if each is not None:
                    found.setdefault(each, set()).add(entry.pod_uid)
    return found


# --- Reported once, cleared once --------------------------------------------------------------------------------------

Key = tuple[str, str]


class Known(Struct, frozen=True):
    seen: Mapping[Key, Difference] = field(default_factory=dict)  # in the last look, for the first time
    reported: Mapping[Key, Difference] = field(default_factory=dict)


class Change(Struct, frozen=True):
    known: Known
    reported: tuple[Difference, ...]  # now
    cleared: tuple[Difference, ...]


def update(known: Known, found: Iterable[Difference], not_looked_at: Iterable[NotLookedAt]) -> Change:
    """After a look. What was seen in the look before it too is reported; what is not seen any more is cleared."""
    unsure = {each.kind for each in not_looked_at}
    now = {each.key: each for each in found}
    kept = {key: one for key, one in known.reported.items() if key not in now and one.kind in unsure}
    reported = {key: one for key, one in now.items() if key in known.seen or key in known.reported}
    fresh = tuple(one for key, one in reported.items() if key not in known.reported)
    cleared = tuple(one for key, one in known.reported.items() if key not in reported and key not in kept)
    seen = {key: one for key, one in now.items() if key not in reported}
    return Change(Known(seen, {**reported, **kept}), fresh, cleared)
