"""Nodes and pods as kube-scheduler and the API server write them, as far as the extender reads them."""

from __future__ import annotations

from msgspec import Struct

from fairlead.cluster import objects
from fairlead.cluster.objects import ContainerSpec, Keeps
from fairlead.model.pod import Container, Pod

ENDED = frozenset({"Succeeded", "Failed"})
# A pod whose bind comes long after its filter: members of a group wait for each other, volumes are made first. These
# labels are those of schedulers with groups of their own.
GROUP_LABELS = (
    "scheduling.x-k8s.io/pod-group",
    "pod-group.scheduling.sigs.k8s.io",
    "scheduling.k8s.io/group-name",
)
_GROUPED = frozenset(GROUP_LABELS)


class ObjectMeta(Struct, frozen=True, rename="camel"):
    """Without times: a scheduler reads none, and a cluster has tens of thousands of pods."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    annotations: dict[str, str] | None = None
    labels: dict[str, str] | None = None


class Claim(Struct, frozen=True, rename="camel"):
    claim_name: str = ""


class Volume(Struct, frozen=True, rename="camel"):
    persistent_volume_claim: Claim | None = None
    ephemeral: dict[str, object] | None = None


class SchedulingGroup(Struct, frozen=True, rename="camel"):
    pod_group_name: str = ""


class PodSpec(objects.PodSpec, frozen=True, rename="camel"):
    priority: int | None = None
    volumes: list[Volume] | None = None
    scheduling_group: SchedulingGroup | None = None
    resource_claims: list[object] | None = None


class PodStatus(objects.PodStatus, frozen=True, rename="camel"):
    nominated_node_name: str = ""


class PodObject(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class NodeStatus(Struct, frozen=True):
    capacity: dict[str, str] | None = None
    allocatable: dict[str, str] | None = None


class NodeObject(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    status: NodeStatus = NodeStatus()


class UnhealthyList(Struct, frozen=True):
    gpus: str = ""


class ConfigMapObject(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    data: UnhealthyList | None = None


class PodParts(Struct, frozen=True):
    """What pods have in common with their copies."""

    annotations: dict[str, str]
    labels: dict[str, str]
    init_containers: tuple[Container, ...]
    containers: tuple[Container, ...]


class SeenPod(Struct, frozen=True):
    """A pod with what only a scheduler asks."""

    pod: Pod
    priority: int = 0
    nominated: str = ""
    waits: bool = False  # its bind may come long after its filter
    group: str = ""  # of kube-scheduler itself, which asks about all members before it binds one


def read_pod(found: PodObject, keeps: Keeps, known: PodParts | None = None) -> SeenPod:
    """`known`: its parts, where they have been read."""
    spec, parts = found.spec, known or read_parts(found, keeps)
    volumes = any(one.persistent_volume_claim or one.ephemeral for one in spec.volumes) if spec.volumes else False
    grouped = not _GROUPED.isdisjoint(found.metadata.labels or ())
    waits = bool(volumes or spec.resource_claims or grouped)
    group = f"{found.metadata.namespace}/{spec.scheduling_group.pod_group_name}" if spec.scheduling_group else ""
    pod = Pod(
        uid=found.metadata.uid,
        namespace=found.metadata.namespace,
        name=found.metadata.name,
        node=spec.node_name,
        annotations=parts.annotations,
        labels=parts.labels,
        init_containers=parts.init_containers,
        containers=parts.containers,
    )
    return SeenPod(pod, spec.priority or 0, found.status.nominated_node_name, waits, group)


def read_parts(found: PodObject, keeps: Keeps) -> PodParts:
    return PodParts(
        _kept(found.metadata.annotations, keeps),
        _kept(found.metadata.labels, keeps),
        tuple(map(_container, found.spec.init_containers or ())),
        tuple(map(_container, found.spec.containers or ())),
    )


def _kept(texts: dict[str, str] | None, keeps: Keeps) -> dict[str, str]:
    return {key: text for key, text in texts.items() if keeps(key)} if texts else {}


def _container(found: ContainerSpec) -> Container:
    limits, requests = found.resources.limits or {}, found.resources.requests or {}
    return Container(found.name, limits, requests, sidecar=found.restart_policy == "Always")
