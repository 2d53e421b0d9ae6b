"""What a person asks of the scheduler's side: who has what, why a pod waits, whether pods would fit.

From the same code as the extender's answers. Reads nodes and pods from the API server or from a file; changes nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from fairlead.cluster.client import Client
from fairlead.cluster.kinds import NODES, PODS
from fairlead.kit import documents, files
from fairlead.model.errors import ConfigError
from fairlead.policy.packing.node import Demand, NodeRoom
from fairlead.policy.packing.packing import Origin
from fairlead.policy.pods.contract import Contract
from fairlead.policy.pods.requests import Fault
from fairlead.scheduler.answers import best_nodes, refusals
from fairlead.scheduler.objects import ENDED, NodeObject, PodObject, read_pod
from fairlead.scheduler.view import Asked, Terms, View

SNAPSHOT_MAX_BYTES = 256 * 2**20  # of all nodes and pods of a large cluster
NAMES_SHOWN = 5
DOCUMENTS_MAX = 10_000
_BETWEEN = re.compile(r"^---.*$", re.MULTILINE)


class Cluster(Struct):
    """Nodes and pods, as they were at one moment."""

    view: View
    pods: dict[str, PodObject]  # by namespace/name; those that have not ended

    @classmethod
    def of(cls, terms: Sequence[Terms], nodes: Iterable[NodeObject], pods: Iterable[PodObject]) -> Cluster:
        view = View(terms)
        for node in nodes:
            view.put_node(node)
        kept = {}
        for pod in pods:
            if pod.status.phase not in ENDED:
                kept[f"{pod.metadata.namespace}/{pod.metadata.name}"] = pod
                view.put_pod(pod)
        return cls(view, kept)


async def read_cluster(client: Client, terms: Sequence[Terms]) -> Cluster:
    try:
        nodes = await client.list(NODES, NodeObject)
        pods = await client.list(PODS, PodObject)
    finally:
        await client.close()
    return Cluster.of(terms, nodes.items, pods.items)


def read_file(path: str, terms: Sequence[Terms]) -> Cluster:
    """Nodes and pods as `kubectl get nodes,pods -A -o json` prints them, or as YAML documents."""
    nodes, pods = read_objects(path)
    return Cluster.of(terms, nodes, pods)


def read_objects(path: str) -> tuple[list[NodeObject], list[PodObject]]:
    """Raises ConfigError."""
    try:
        text = files.read_text(path, SNAPSHOT_MAX_BYTES)
    except OSError as error:
        raise ConfigError(path, [f"cannot be read: {error.strerror or error}"]) from None
    try:
        things: list[Any] = [msgspec.json.decode(text)]
    except (msgspec.DecodeError, RecursionError):
        parts = [part for part in _BETWEEN.split(text)[:DOCUMENTS_MAX] if part.strip()]
        things = [documents.parse(part, path) for part in parts]
    nodes: list[NodeObject] = []
    pods: list[PodObject] = []
    for thing in _each(things):
        kind = thing.get("kind")
        try:
            if kind == "Node":
                nodes.append(msgspec.convert(thing, NodeObject))
            elif kind == "Pod":
                pods.append(_named(msgspec.convert(_with_texts(thing), PodObject)))
        except msgspec.ValidationError as error:
            name = (thing.get("metadata") or {}).get("name", "without a name")
            raise ConfigError(path, [f"{kind} {name!s:.80}: {error}"]) from None
    return nodes, pods


def _each(things: Iterable[Any]) -> Iterable[dict[str, Any]]:
    for thing in things:
        if isinstance(thing, dict):
            yield from _each(thing["items"]) if isinstance(thing.get("items"), list) else [thing]


def _with_texts(pod: dict[str, Any]) -> dict[str, Any]:
    """People write amounts as numbers, `nvidia.com/gpu: 1`; the API server makes text of them."""
    spec = pod.get("spec")
    parts = [spec.get(key) for key in ("containers", "initContainers")] if isinstance(spec, dict) else []
    for containers in parts:
        for container in containers if isinstance(containers, list) else ():
            resources = container.get("resources") if isinstance(container, dict) else None
            for amounts in resources.values() if isinstance(resources, dict) else ():
                if isinstance(amounts, dict):
                    amounts |= {key: str(value) for key, value in amounts.items() if type(value) in {int, float}}
    return pod


def _named(pod: PodObject) -> PodObject:
    """A pod that nobody has created yet has no namespace and no uid."""
    meta = pod.metadata
    namespace = meta.namespace or "default"
    uid = meta.uid or f"{namespace}/{meta.name}"
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(meta, namespace=namespace, uid=uid))


# --- Who has what -----------------------------------------------------------------------------------------------------


class Tenant(Struct, frozen=True):
    pod: str
    units: int


class DeviceRow(Struct, frozen=True):
    index: str
    units: int
    used: int
    usable: bool
    pods: tuple[Tenant, ...]


class NodeRow(Struct, frozen=True):
    node: str
    resource: str
    units: int
    used: int
    largest: int  # the most that one device still gives
    devices: tuple[DeviceRow, ...]

    @property
    def in_parts(self) -> int:
        """Free units on devices that pods are on: of no use to a pod that needs more than such a rest."""
        return sum(max(one.units - one.used, 0) for one in self.devices if one.usable and one.used)


class Inspection(Struct, frozen=True):
    nodes: tuple[NodeRow, ...]
    waiting: tuple[str, ...] = ()  # pods without a node
    faults: tuple[str, ...] = ()  # pods whose devices are not known


def inspect(cluster: Cluster, name: str = "", resource: str = "") -> Inspection:
    rows = []
    for packing, one in zip(cluster.view.packings, cluster.view.terms, strict=True):
        for node in sorted(packing.nodes):
            room = packing.nodes[node]
            if room.devices and name in {"", node} and resource in {"", one.contract.resource}:
                bookings = [booking for booking in packing.on(node) if booking.origin is Origin.SEEN]
                tenants: dict[int, list[Tenant]] = {}
                for booking in bookings:
                    for share in booking.shares:
                        tenants.setdefault(share.device, []).append(Tenant(booking.name, share.units))
                rows.append(_row(node, one.contract, room, tenants))
    names = {pod.metadata.uid: whole for whole, pod in cluster.pods.items()}
    faults = tuple(f"{names.get(uid, uid)}: {text}" for uid, text in cluster.view.faults.items())
    return Inspection(tuple(rows), tuple(str(asked.seen.pod) for asked in waiting(cluster)), faults)


def _row(node: str, contract: Contract, room: NodeRoom, tenants: dict[int, list[Tenant]]) -> NodeRow:
    # Pods with a part of a device keep it from those that want it whole.
    used = [one.units if contract.whole and room.pods[n] else room.used[n] for n, one in enumerate(room.devices)]
    devices = tuple(
        DeviceRow(
            device.index,
            device.units,
            used[place],
            device.usable,
            tuple(sorted(tenants.get(place, ()), key=lambda tenant: tenant.pod)),
        )
        for place, device in enumerate(room.devices)
    )
    units = sum(one.units for one in room.devices)
    return NodeRow(node, contract.resource, units, sum(used), room.largest, devices)


def waiting(cluster: Cluster) -> list[Asked]:
    found = (cluster.view.waiting(pod.metadata.uid) for pod in cluster.pods.values())
    return [asked for asked in found if asked is not None]


# --- Why a pod waits --------------------------------------------------------------------------------------------------


class Reason(Struct, frozen=True):
    text: str
    nodes: int
    examples: tuple[str, ...]


class Why(Struct, frozen=True):
    pod: str
    node: str = ""  # where it is
    asks: tuple[str, ...] = ()
    fits: tuple[str, ...] = ()  # the best nodes
    reasons: tuple[Reason, ...] = ()
    note: str = ""


def why(cluster: Cluster, name: str) -> Why | None:
    """None: there is no such pod."""
    found = cluster.pods.get(name)
    if found is None:
        return None
    asked = cluster.view.asked(read_pod(found, cluster.view.keeps))
    if asked is None:
        return Why(name, found.spec.node_name, note="it asks for no resource that is packed by devices")
    if isinstance(asked, Fault):
        return Why(name, found.spec.node_name, note=asked.text)
    asks = tuple(_say(cluster.view.terms[position], demand) for position, demand in asked.demands)
    if found.spec.node_name:
        return Why(name, found.spec.node_name, asks, note=cluster.view.faults.get(asked.uid, ""))
    names = sorted({node for packing in cluster.view.packings for node in packing.nodes})
    fits = best_nodes(cluster.view, asked, names, NAMES_SHOWN)
    refused = refusals(cluster.view, asked, [node for node in names if node not in fits])
    return Why(name, "", asks, tuple(fits), _grouped({**refused.now, **refused.for_good}))


def _grouped(reasons: dict[str, str]) -> tuple[Reason, ...]:
    """Nodes with the same reason together; where it names its node, without the name."""
    general = {node: text.replace(node, "…") for node, text in reasons.items()}
    counts = Counter(general.values())
    return tuple(
        Reason(text, count, tuple(node for node, other in general.items() if other == text)[:NAMES_SHOWN])
        for text, count in counts.most_common()
    )


def _say(terms: Terms, demand: Demand) -> str:
    whole = " that no other pod has" if demand.whole else ""
    devices = f"{demand.devices} device{'s' if demand.devices > 1 else ''}{whole}"
    if not demand.units:
        return f"{devices} of {terms.contract.resource}"
    return f"{demand.units} of {terms.contract.resource} on {'each of ' if demand.devices > 1 else ''}{devices}"


# --- Whether pods would fit -------------------------------------------------------------------------------------------


class Placement(Struct, frozen=True):
    pod: str
    asks: tuple[str, ...]
    node: str = ""
    devices: tuple[str, ...] = ()
    reason: str = ""


def simulate(cluster: Cluster, pods: Sequence[PodObject]) -> list[Placement]:
    """Places them one after the other, as the extender would. Nothing is written but the view."""
    view = cluster.view
    names = sorted({node for packing in view.packings for node in packing.nodes})
    placed = []
    for pod in pods:
        whole = f"{pod.metadata.namespace}/{pod.metadata.name}"
        asked = view.asked(read_pod(pod, view.keeps))
        if asked is None:
            placed.append(Placement(whole, (), reason="it asks for no resource that is packed by devices"))
            continue
        if isinstance(asked, Fault):
            placed.append(Placement(whole, (), reason=asked.text))
            continue
        asks = tuple(_say(view.terms[position], demand) for position, demand in asked.demands)
        best = best_nodes(view, asked, names, 1)
        places = view.choose(asked, best[0]) if best else None
        if places is None:
            reasons = _grouped(_all(refusals(view, asked, names)))
            text = "; ".join(f"{one.text} ({one.nodes} nodes)" for one in reasons[:2]) or "there is no node"
            placed.append(Placement(whole, asks, reason=text))
            continue
        view.book(asked, best[0], places, Origin.BOUND)
        rooms = [view.packings[position].nodes[best[0]] for position, _ in asked.demands]
        devices = tuple(
            room.devices[place].index for room, chosen in zip(rooms, places, strict=True) for place in chosen
        )
        placed.append(Placement(whole, asks, best[0], devices))
    return placed


def _all(refused: Any) -> dict[str, str]:
    return {**refused.now, **refused.for_good}
