"""Reads the objects of the cluster that concern this node. One try for each, within a deadline; nothing is written.

Reviews are created, as every client does that asks for its rights or its name: the API server keeps none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from fairlead.cluster.client import Client
from fairlead.cluster.kinds import DAEMON_SETS, EVENTS, NODES, PODS, RESOURCE_SLICES, REVIEWS, RUNTIME_CLASSES, Kind
from fairlead.cluster.rbac import FEATURES
from fairlead.config.spec import Config
from fairlead.programs.doctor import facts
from fairlead.programs.doctor.facts import Missing
from fairlead.programs.doctor.gather.limits import API_S, answer

T = TypeVar("T")
R = TypeVar("R")
# Names and images of device plugins hold one of these.
PLUGINS = ("device-plugin", "fairlead", "gpushare", "vgpu", "hami")
SELF = Kind("authentication.k8s.io", "v1", "selfsubjectreviews")
TOLD = ("unhealthy", "condition", "events", "annotate", "devices")
PODS_MAX, SETS_MAX, EVENTS_MAX = 2000, 256, 64
TEXT_MAX = 1000


class _Part(Struct, frozen=True, rename="camel"):
    pass


class _Meta(_Part, frozen=True):
    name: str = ""
    namespace: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _NodeSpec(_Part, frozen=True):
    taints: list[facts.Taint] | None = None


class _NodeInfo(_Part, frozen=True):
    kubelet_version: str = ""
    container_runtime_version: str = ""


class _NodeStatus(_Part, frozen=True):
    capacity: dict[str, str] | None = None
    node_info: _NodeInfo = _NodeInfo()


class _Node(_Part, frozen=True):
    metadata: _Meta = _Meta()
    spec: _NodeSpec = _NodeSpec()
    status: _NodeStatus = _NodeStatus()


class _Context(_Part, frozen=True):
    run_as_user: int | None = None
    fs_group: int | None = None
    supplemental_groups: list[int] | None = None


class _Container(_Part, frozen=True):
    image: str = ""
    args: list[str] | None = None
    command: list[str] | None = None
    security_context: _Context | None = None


class _Expression(_Part, frozen=True):
    key: str = ""
    operator: str = "In"
    values: list[str] | None = None


class _NodeTerm(_Part, frozen=True):
    match_expressions: list[_Expression] | None = None


class _NodeTerms(_Part, frozen=True):
    node_selector_terms: list[_NodeTerm] | None = None


class _NodeAffinity(_Part, frozen=True):
    required: _NodeTerms | None = field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)


class _Affinity(_Part, frozen=True):
    node_affinity: _NodeAffinity | None = None


class _PodSpec(_Part, frozen=True):
    containers: list[_Container] | None = None
    security_context: _Context | None = None
    tolerations: list[facts.Toleration] | None = None
    node_selector: dict[str, str] | None = None
    affinity: _Affinity | None = None
    runtime_class_name: str = ""


class _PodStatus(_Part, frozen=True):
    phase: str = ""
    reason: str = ""
    message: str = ""


class _Pod(_Part, frozen=True):
    metadata: _Meta = _Meta()
    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()


class _Template(_Part, frozen=True):
    spec: _PodSpec = _PodSpec()


class _Selector(_Part, frozen=True):
    match_labels: dict[str, str] | None = None


class _Rolling(_Part, frozen=True):
    max_surge: int | str = 0


class _Strategy(_Part, frozen=True):
    rolling_update: _Rolling | None = None


class _SetSpec(_Part, frozen=True):
    selector: _Selector = _Selector()
    template: _Template = _Template()
    update_strategy: _Strategy = _Strategy()


class _SetStatus(_Part, frozen=True):
    desired_number_scheduled: int = 0
    current_number_scheduled: int = 0


class _Set(_Part, frozen=True):
    metadata: _Meta = _Meta()
    spec: _SetSpec = _SetSpec()
    status: _SetStatus | None = None


class _Event(_Part, frozen=True):
    metadata: _Meta = _Meta()
    involved_object: _Meta = _Meta()
    message: str = ""


class _Class(_Part, frozen=True):
    metadata: _Meta = _Meta()
    handler: str = ""


class _SliceSpec(_Part, frozen=True):
    driver: str = ""
    node_name: str = ""
    devices: list[_Meta] | None = None


class _Slice(_Part, frozen=True):
    metadata: _Meta = _Meta()
    spec: _SliceSpec = _SliceSpec()


class _ReviewStatus(_Part, frozen=True):
    allowed: bool = False


class _Review(_Part, frozen=True):
    status: _ReviewStatus = _ReviewStatus()


class _User(_Part, frozen=True):
    username: str = ""


class _SelfStatus(_Part, frozen=True):
    user_info: _User = _User()


class _Self(_Part, frozen=True):
    status: _SelfStatus = _SelfStatus()


async def read_cluster(client: Client, node: str, config: Config | Missing) -> dict[str, Any]:
    """The facts of the cluster, by their names in `Facts`; and `runtime_version`, as the node's status has it."""
    here = f"spec.nodeName={node}"
    failed = "reason=FailedCreate,involvedObject.kind=DaemonSet"
    parts: dict[str, Awaitable[Any]] = {
        "node": answer(client.get(NODES, node, _Node), API_S),
        "pods": _listed(client, PODS, _Pod, _pod, PODS_MAX, here),
        "daemon_sets": _listed(client, DAEMON_SETS, _Set, _daemon_set, SETS_MAX),
        "events": _listed(client, EVENTS, _Event, _event, EVENTS_MAX, failed),
        "runtime_classes": _listed(client, RUNTIME_CLASSES, _Class, _class, SETS_MAX),
        "slices": _listed(client, RESOURCE_SLICES, _Slice, _slice, SETS_MAX, here),
        "rights": _same(config) if isinstance(config, Missing) else answer(_rights(client, config), API_S),
    }
    found = dict(zip(parts, await asyncio.gather(*parts.values()), strict=True))
    one = found["node"]
    version = "" if isinstance(one, Missing) else one.status.node_info.container_runtime_version
    return {**found, "node": one if isinstance(one, Missing) else _node(one), "runtime_version": version}


async def _listed(
    client: Client, kind: Kind, into: type[T], make: Callable[[T], R | None], most: int, fields: str = ""
) -> tuple[R, ...] | Missing:
    found = await answer(client.list(kind, into, fields=fields, patience_s=0), API_S)
    if isinstance(found, Missing):
        return found
    return tuple(made for item in found.items if (made := make(item)) is not None)[:most]


async def _same(missing: Missing) -> Missing:
    return missing


def features(config: Config) -> list[str]:
    """Those of `FEATURES` that a configuration turns on."""
    found = ["the daemon with `amounts`"] if config.amounts else []
    for rule in config.rules:
        if rule.assign is not None:
            found.append("the daemon with `assign`")
            found += ["the daemon with `assign.nodeEnv`"] if rule.assign.node_env else []
            found += ["the daemon with `assign.nodeLock`"] if rule.assign.node_lock else []
    found += [f"the daemon with `cluster.{key}`" for key in TOLD if getattr(config.cluster, key)]
    return list(dict.fromkeys(found))


async def _rights(client: Client, config: Config) -> tuple[facts.Right, ...]:
    """Each right of each feature that is on, as the API server judges it for this account."""
    asked: dict[tuple[str, str, str], str] = {}
    for feature in features(config):
        for rule in FEATURES[feature]:
            for verb in rule.verbs:
                asked.setdefault((rule.group, rule.resource, verb), feature)
    rights = []
    for (group, resource, verb), feature in asked.items():
        name, _, below = resource.partition("/")
        attributes = {"group": group, "resource": name, "subresource": below, "verb": verb}
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        review = await client.create(REVIEWS, body, _Review)
        rights.append(facts.Right(feature, group, resource, verb, review.status.allowed))
    if all(right.allowed for right in rights):
        return tuple(rights)
    account = await _account(client)
    return tuple(replace(right, account=account) for right in rights)


async def _account(client: Client) -> str:
    """Who is asking, for the command that grants a right. Empty where the API server does not tell."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    found = await answer(client.create(SELF, body, _Self), API_S)
    return "" if isinstance(found, Missing) else found.status.user_info.username[:256]


def _node(one: _Node) -> facts.NodeObject:
    return facts.NodeObject(
        one.metadata.name,
        one.metadata.labels or {},
        one.metadata.annotations or {},
        tuple(one.spec.taints or ()),
        one.status.capacity or {},
        one.status.node_info.kubelet_version,
    )


def _pod(one: _Pod) -> facts.PodObject:
    whole, containers = one.spec.security_context or _Context(), one.spec.containers or []
    users = [each.security_context.run_as_user for each in containers if each.security_context is not None]
    groups = [*(whole.supplemental_groups or ()), *([whole.fs_group] if whole.fs_group is not None else [])]
    return facts.PodObject(
        one.metadata.namespace,
        one.metadata.name,
        one.status.phase,
        one.status.reason,
        one.status.message[:TEXT_MAX],
        tuple(each.image for each in containers),
        next((user for user in (*users, whole.run_as_user) if user is not None), None),
        tuple(groups),
    )


def _daemon_set(one: _Set) -> facts.DaemonSet | None:
    """None: not of a device plugin."""
    pod = one.spec.template.spec
    containers = pod.containers or []
    images = tuple(each.image for each in containers)
    if not any(word in text for word in PLUGINS for text in (one.metadata.name, *images)):
        return None
    rolling = one.spec.update_strategy.rolling_update
    surge = str(rolling.max_surge) if rolling is not None else "0"
    words = [word for each in containers for word in (*(each.command or ()), *(each.args or ()))]
    return facts.DaemonSet(
        namespace=one.metadata.namespace,
        name=one.metadata.name,
        images=images,
        selector=one.spec.selector.match_labels or {},
        tolerations=tuple(pod.tolerations or ()),
        alternatives=_alternatives(pod),
        surge="" if surge in {"0", "0%"} else surge,
        takes_over=any(word.startswith("--take-over") for word in words),
        runtime_class=pod.runtime_class_name,
        complete=one.status is not None and one.status.current_number_scheduled >= one.status.desired_number_scheduled,
    )


def _alternatives(pod: _PodSpec) -> tuple[tuple[facts.Term, ...], ...]:
    selector = tuple(facts.Term(key, "In", (value,)) for key, value in (pod.node_selector or {}).items())
    affinity = pod.affinity.node_affinity if pod.affinity is not None else None
    required = affinity.required if affinity is not None else None
    ways = [
        tuple(facts.Term(each.key, each.operator, tuple(each.values or ())) for each in term.match_expressions or ())
        for term in (required.node_selector_terms or () if required is not None else ())
    ]
    if not ways:
        return (selector,) if selector else ()
    return tuple((*selector, *way) for way in ways)


def _event(one: _Event) -> facts.Event:
    return facts.Event(one.metadata.namespace, one.involved_object.name, one.message[:TEXT_MAX])


def _class(one: _Class) -> facts.RuntimeClass:
    return facts.RuntimeClass(one.metadata.name, one.handler)


def _slice(one: _Slice) -> facts.Slice:
    return facts.Slice(one.metadata.name, one.spec.driver, tuple(each.name for each in one.spec.devices or ())[:64])
