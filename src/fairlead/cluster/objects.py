"""Pods as the API server writes them, as far as Fairlead reads them, and as the rest of it knows them.

Any field may be missing or null.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from msgspec import Struct, field

from fairlead.model.pod import Container, Pod

Keeps = Callable[[str], bool]  # which keys of annotations and labels are worth memory


class ObjectMeta(Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    annotations: dict[str, str] | None = None
    labels: dict[str, str] | None = None


class Resources(Struct, frozen=True):
    limits: dict[str, str] | None = None
    requests: dict[str, str] | None = None


class ContainerSpec(Struct, frozen=True, rename="camel"):
    name: str = ""
    restart_policy: str = ""
    resources: Resources = Resources()


class PodSpec(Struct, frozen=True, rename="camel"):
    node_name: str = ""
    containers: list[ContainerSpec] | None = None
    init_containers: list[ContainerSpec] | None = None


class PodStatus(Struct, frozen=True):
    phase: str = ""


class PodObject(Struct, frozen=True):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: PodSpec = field(default_factory=PodSpec)
    status: PodStatus = PodStatus()


def read_pod(found: PodObject, keeps: Keeps = lambda _key: True, arrived: int = 0) -> Pod:
    meta, spec = found.metadata, found.spec
    return Pod(
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        node=spec.node_name,
        phase=found.status.phase,
        created_s=meta.creation_timestamp.timestamp() if meta.creation_timestamp else 0.0,
        deleting=meta.deletion_timestamp is not None,
        annotations={key: text for key, text in (meta.annotations or {}).items() if keeps(key)},
        labels={key: text for key, text in (meta.labels or {}).items() if keeps(key)},
        init_containers=tuple(map(_container, spec.init_containers or ())),
        containers=tuple(map(_container, spec.containers or ())),
        version=meta.resource_version,
        arrived=arrived,
    )


def _container(found: ContainerSpec) -> Container:
    limits, requests = found.resources.limits or {}, found.resources.requests or {}
    return Container(found.name, limits, requests, sidecar=found.restart_policy == "Always")
