"""Alike: one object for parts of pods and nodes that are equal. Most pods of a cluster are copies of a few.

What was worked out from shared parts is found again by the parts themselves (`Worked`), without a look into them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from fairlead.cluster.objects import ContainerSpec
from fairlead.policy.packing.node import DeviceRoom
from fairlead.scheduler.objects import NodeObject, NodeStatus, ObjectMeta, PodObject, PodSpec

MOST = 10_000  # different ones; then they are forgotten, and those in use stay with their pods
TEXTS_MAX = 1024  # characters of annotations or labels that are worth a comparison
Texts = dict[str, str]
T = TypeVar("T")
R = TypeVar("R")


class Alike:
    """`pod_keys`, `node_keys`: annotations, labels and amounts that are read. Others are left out."""

    def __init__(self, pod_keys: frozenset[str], node_keys: frozenset[str]) -> None:
        self._pod_keys, self._node_keys = pod_keys, node_keys
        self._known: dict[Hashable, object] = {}

    def pod(self, found: PodObject) -> PodObject:
        """The same, as far as it is read. A list of pods is held whole, and each of them is made small as it comes."""
        meta, spec, status = found.metadata, found.spec, found.status
        volumes = [one for one in spec.volumes or () if one.persistent_volume_claim or one.ephemeral]
        return PodObject(
            ObjectMeta(
                meta.name,
                self._same(meta.namespace, meta.namespace),
                meta.uid,
                meta.resource_version,
                self._texts(_kept(meta.annotations, self._pod_keys)),
                self._texts(_kept(meta.labels, self._pod_keys)),
            ),
            PodSpec(
                self._same(spec.node_name, spec.node_name),
                self._containers(spec.containers),
                self._containers(spec.init_containers),
                spec.priority,
                volumes or None,
                spec.scheduling_group,
                spec.resource_claims,
            ),
            self._same((status.phase, status.nominated_node_name), status),
        )

    def node(self, found: NodeObject) -> NodeObject:
        """The same, as far as it is read."""
        meta, keys = found.metadata, self._node_keys
        status = NodeStatus(_kept(found.status.capacity, keys), _kept(found.status.allocatable, keys))
        amounts = (tuple((one or {}).items()) for one in (status.capacity, status.allocatable))
        # What a node tells of its devices is long, and has their ids: it is like no other.
        annotations, labels = _kept(meta.annotations, keys), self._texts(_kept(meta.labels, keys))
        return NodeObject(
            ObjectMeta(meta.name, annotations=annotations, labels=labels), self._same(("amounts", *amounts), status)
        )

    def devices(self, found: tuple[DeviceRoom, ...]) -> tuple[DeviceRoom, ...]:
        """Those with ids of their own are like no others."""
        return found if any(one.id for one in found) else self._same(("devices", found), found)

    def _texts(self, found: Texts | None) -> Texts | None:
        if not found or sum(map(len, found.values())) > TEXTS_MAX:
            return found
        return self._same(("texts", *found.items()), found)

    def _containers(self, found: list[ContainerSpec] | None) -> list[ContainerSpec] | None:
        return self._same(("containers", *map(_key, found)), found) if found else None

    def _same(self, key: Hashable, value: T) -> T:
        if len(self._known) >= MOST and key not in self._known:
            self._known.clear()
        return self._known.setdefault(key, value)  # type: ignore[return-value]  # a key is of one kind


class Worked(Generic[R]):
    """What a function gave for objects that never change, by which objects they are.

    They are held, so that no other can have the identity of one of them.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._known: dict[tuple[int, ...], tuple[tuple[object, ...], R]] = {}

    def get(self, parts: tuple[object, ...], work: Callable[[], R]) -> R:
        key = tuple(map(id, parts))
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= self._most:
                self._known.clear()
            known = self._known[key] = parts, work()
        return known[1]


def _kept(found: Texts | None, keys: frozenset[str]) -> Texts | None:
    return {key: text for key, text in found.items() if key in keys} or None if found else None


def _key(container: ContainerSpec) -> Hashable:
    limits, requests = container.resources.limits, container.resources.requests
    return (
        container.name,
        container.restart_policy,
        tuple(limits.items()) if limits else (),
        tuple(requests.items()) if requests else (),
    )
