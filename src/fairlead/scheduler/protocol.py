"""The messages of kube-scheduler's extender API v1. Keys are Go's names of fields; pods and nodes are ordinary JSON."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from fairlead.scheduler.objects import NodeObject, PodObject


class NodeList(Struct, frozen=True):
    items: list[msgspec.Raw] | None = None


class ExtenderArgs(Struct, frozen=True, rename="pascal"):
    """Of filter and prioritize: names, or whole nodes."""

    pod: PodObject | None = None
    nodes: NodeList | None = None
    node_names: list[str] | None = None


class FilterResult(Struct, frozen=True, rename="pascal"):
    nodes: NodeList | None = None
    node_names: list[str] | None = None
    failed_nodes: dict[str, str] | None = None
    failed_and_unresolvable_nodes: dict[str, str] | None = None
    error: str = ""


class HostPriority(Struct, frozen=True, rename="pascal"):
    host: str
    score: int


class BindingArgs(Struct, frozen=True):
    pod_name: str = msgspec.field(name="PodName", default="")
    pod_namespace: str = msgspec.field(name="PodNamespace", default="")
    pod_uid: str = msgspec.field(name="PodUID", default="")
    node: str = msgspec.field(name="Node", default="")


class BindingResult(Struct, frozen=True, rename="pascal"):
    error: str = ""


class Victims(Struct, frozen=True):
    pods: list[PodObject] | None = msgspec.field(name="Pods", default=None)
    violations: int = msgspec.field(name="NumPDBViolations", default=0)


class MetaPod(Struct, frozen=True):
    uid: str = msgspec.field(name="UID", default="")


class MetaVictims(Struct, frozen=True):
    pods: list[MetaPod] | None = msgspec.field(name="Pods", default=None)
    violations: int = msgspec.field(name="NumPDBViolations", default=0)


class PreemptionArgs(Struct, frozen=True, rename="pascal"):
    pod: PodObject | None = None
    node_name_to_victims: dict[str, Victims] | None = None
    node_name_to_meta_victims: dict[str, MetaVictims] | None = None


class PreemptionResult(Struct, frozen=True, rename="pascal"):
    node_name_to_meta_victims: dict[str, MetaVictims] = {}


def read_node(raw: msgspec.Raw) -> NodeObject:
    """Raises msgspec.DecodeError."""
    return msgspec.json.decode(raw, type=NodeObject)
