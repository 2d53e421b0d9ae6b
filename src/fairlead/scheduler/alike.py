"""Alike: one object for parts of pods and nodes that are equal. Most pods of a cluster are copies of a few."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeVar

from msgspec.structs import replace

from fairlead.model.pod import Container, Pod
from fairlead.policy.packing.node import DeviceRoom

MOST = 10_000  # different ones; what comes after them is kept as it is
T = TypeVar("T")


class Alike:
    def __init__(self) -> None:
        self._known: dict[Hashable, object] = {}

    def pod(self, found: Pod) -> Pod:
        return replace(
            found,
            namespace=self._same(found.namespace, found.namespace),
            node=self._same(found.node, found.node),
            containers=self._same(tuple(map(_key, found.containers)), found.containers),
        )

    def devices(self, found: tuple[DeviceRoom, ...]) -> tuple[DeviceRoom, ...]:
        """Those with ids of their own are like no others."""
        return found if any(one.id for one in found) else self._same(found, found)

    def _same(self, key: Hashable, value: T) -> T:
        if len(self._known) >= MOST and key not in self._known:
            return value
        return self._known.setdefault(key, value)  # type: ignore[return-value]  # a key is of one kind


def _key(container: Container) -> Hashable:
    amounts = (tuple(one.items()) for one in (container.limits, container.requests))
    return (container.name, *amounts, container.sidecar)
