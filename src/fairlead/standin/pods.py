"""Pods as the stand-in's API server keeps them: specs, life, and what each container got.

Pure state: it survives a restart of the kubelet. Knows nothing about devices beyond their ids.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from fairlead.standin.poddevices import RunOptions

Kind = Literal["init", "sidecar", "app"]
Phase = Literal["Pending", "Running", "Succeeded", "Failed"]
State = Literal["waiting", "running", "terminated"]
Limits = Mapping[str, int]


@dataclass(slots=True)
class Container(RunOptions):
    """A container, with what its last start gave it."""

    name: str
    kind: Kind
    limits: dict[str, int]
    devices: dict[str, tuple[str, ...]] = field(default_factory=dict)
    state: State = "waiting"
    reason: str = ""
    message: str = ""
    starts: int = 0

    def wait(self, reason: str, message: str = "") -> None:
        self.state, self.reason, self.message = "waiting", reason, message


@dataclass(slots=True)
class Pod:
    uid: str
    name: str
    namespace: str
    containers: dict[str, Container]
    phase: Phase = "Pending"
    reason: str = ""
    message: str = ""

    @property
    def is_active(self) -> bool:
        """Active pods keep their devices and are admitted again after a restart."""
        return self.phase in {"Pending", "Running"}

    @property
    def has_started(self) -> bool:
        """Whether every container was started once. One that ended and cannot be started again does not count."""
        return all(container.starts for container in self.containers.values())

    def of_kind(self, *kinds: Kind) -> Iterator[Container]:
        return (container for container in self.containers.values() if container.kind in kinds)

    def fail(self, reason: str, message: str) -> None:
        self.phase, self.reason, self.message = "Failed", reason, f"Pod was rejected: {message}"
        for container in self.containers.values():
            container.state = "terminated"

    def request(self, resource: str) -> int:
        """What the pod counts for on the node: the most it needs at any one time."""
        running = sum(container.limits.get(resource, 0) for container in self.of_kind("sidecar", "app"))
        # Plain init containers come before the sidecars here, so each runs alone.
        initial = max((container.limits.get(resource, 0) for container in self.of_kind("init")), default=0)
        return max(running, initial)


def make_pod(
    uid: str,
    name: str,
    namespace: str,
    containers: Mapping[str, Limits],
    init: Mapping[str, Limits],
    sidecars: Mapping[str, Limits],
) -> Pod:
    """A new pod; init containers first, then sidecars, then the app's containers."""
    kinds: tuple[tuple[Kind, Mapping[str, Limits]], ...] = (("init", init), ("sidecar", sidecars), ("app", containers))
    made: dict[str, Container] = {}
    for kind, group in kinds:
        for container, limits in group.items():
            if container in made:
                raise ValueError(f"pod {name!r} has two containers named {container!r}; give each its own name")
            made[container] = Container(container, kind, dict(limits))
    if not made:
        raise ValueError(f"pod {name!r} has no containers; give it at least one")
    return Pod(uid, name, namespace, made)


def out_of(
    pod: Pod, others: Iterable[Pod], allocatable: Mapping[str, int], owned: Mapping[str, int]
) -> tuple[str, str] | None:
    """The scheduler's predicate, run again by the kubelet: reason and text, or None if the pod fits.

    Resources the node does not list at all are not the kubelet's. A pod that already owns devices raises the node's
    number to what is in use, so that it fits again while its plugin is away.
    """
    used_by = tuple(others)
    for resource in sorted({name for container in pod.containers.values() for name in container.limits}):
        requested = pod.request(resource)
        if not requested or resource not in allocatable:
            continue
        used = sum(other.request(resource) for other in used_by)
        limit = max(allocatable[resource], owned.get(resource, 0))
        if used + requested > limit:
            text = (
                f"Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, capacity: {limit}"
            )
            return f"OutOf{resource}", text
    return None
