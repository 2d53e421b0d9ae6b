"""Nodes and pods as kube-scheduler and the API server write them, as far as the extender reads them."""

from __future__ import annotations

from msgspec import Struct

from fairlead.cluster import objects
from fairlead.cluster.objects import Keeps, ObjectMeta
from fairlead.model.pod import Pod

ENDED = frozenset({"Succeeded", "Failed"})
# A pod whose bind comes long after its filter: members of a group wait for each other, volumes are made first.
GROUP_LABELS = (
    "scheduling.x-k8s.io/pod-group",
    "pod-group.scheduling.sigs.k8s.io",
    "scheduling.k8s.io/group-name",
)


class Claim(Struct, frozen=True, rename="camel"):
    claim_name: str = ""


class Volume(Struct, frozen=True, rename="camel"):
    persistent_volume_claim: Claim | None = None
    ephemeral: dict[str, object] | None = None


class PodSpec(objects.PodSpec, frozen=True, rename="camel"):
    priority: int | None = None
    volumes: list[Volume] | None = None
    scheduling_group: dict[str, object] | None = None
    resource_claims: list[object] | None = None


class PodStatus(objects.PodStatus, frozen=True, rename="camel"):
    nominated_node_name: str = ""


class PodObject(objects.PodObject, frozen=True):
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


class SeenPod(Struct, frozen=True):
    """A pod with what only a scheduler asks."""

    pod: Pod
    priority: int = 0
    nominated: str = ""
    waits: bool = False  # its bind may come long after its filter


def read_pod(found: PodObject, keeps: Keeps) -> SeenPod:
    spec = found.spec
    volumes = any(one.persistent_volume_claim or one.ephemeral for one in spec.volumes or ())
    grouped = any(key in (found.metadata.labels or {}) for key in GROUP_LABELS)
    waits = bool(volumes or spec.scheduling_group or spec.resource_claims or grouped)
    return SeenPod(objects.read_pod(found, keeps), spec.priority or 0, found.status.nominated_node_name, waits)
