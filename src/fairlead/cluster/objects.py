"""Pods as the API server writes them, as far as somebody here reads them. Anything may be missing or null."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct, field


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
