"""Objects of Kubernetes for a pod with known needs: account, rights, configuration, DaemonSet.

They are those that deploy/chart makes; tests compare the two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from fairlead._version import __version__
from fairlead.programs.manifest.needs import Directory, Level, Needs

Object = dict[str, Any]
RBAC = "rbac.authorization.k8s.io"
PORT = 9402
RUN = "/run/fairlead"
CONFIG = "/etc/fairlead"
_DROP = {"drop": ["ALL"]}
CONTEXTS: Mapping[Level, Object] = {
    Level.RESTRICTED: {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": _DROP},
    Level.SYS_ADMIN: {"readOnlyRootFilesystem": True, "capabilities": {**_DROP, "add": ["SYS_ADMIN"]}},
    Level.PRIVILEGED: {"privileged": True, "readOnlyRootFilesystem": True},
}
_TOLERATIONS = (
    {"key": "CriticalAddonsOnly", "operator": "Exists"},
    {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "amd.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
)


class Order(Struct, frozen=True):
    """What is to be run, and under which names."""

    command: tuple[str, ...]  # behind `fairlead`
    needs: Needs
    name: str = "fairlead"
    namespace: str = "fairlead"
    image: str = f"example.com/fairlead:{__version__}"
    files: Mapping[str, str] = {}  # by name; mounted in CONFIG
    env: tuple[Object, ...] = ()
    terms: tuple[Object, ...] = ()  # a node must satisfy one of them
    tolerations: tuple[Object, ...] = ()  # beside the usual
    listen: str = "FAIRLEAD_HTTP"  # the variable that says where probes and metrics are served
    host_dev: bool = False  # /dev is the host's: the kubelet must not put its file there


def make_objects(order: Order) -> Iterator[Object]:
    labels = {"app.kubernetes.io/name": order.name, "app.kubernetes.io/component": "plugin"}
    meta = {"name": order.name, "namespace": order.namespace, "labels": labels}
    levels = {f"pod-security.kubernetes.io/{mode}": "privileged" for mode in ("enforce", "warn")}
    yield _object("v1", "Namespace", {"name": order.namespace, "labels": levels})
    yield _object("v1", "ServiceAccount", meta, automountServiceAccountToken=False)
    if order.needs.rules:
        yield from _rights(order, {"name": order.name, "labels": labels})
    if order.files:
        yield _object("v1", "ConfigMap", {**meta, "name": f"{order.name}-config"}, data=dict(order.files))
    update = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    template = {"metadata": {"labels": labels}, "spec": _pod(order)}
    spec = {"selector": {"matchLabels": labels}, "updateStrategy": update, "template": template}
    yield _object("apps/v1", "DaemonSet", meta, spec=spec)


def _object(version: str, kind: str, meta: Object, **more: Any) -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": meta, **more}


def _rights(order: Order, meta: Object) -> Iterator[Object]:
    rules = [
        {"apiGroups": [rule.group], "resources": [rule.resource], "verbs": list(rule.verbs)}
        for rule in order.needs.rules
    ]
    yield _object(f"{RBAC}/v1", "ClusterRole", meta, rules=rules)
    subject = {"kind": "ServiceAccount", "name": order.name, "namespace": order.namespace}
    role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": order.name}
    yield _object(f"{RBAC}/v1", "ClusterRoleBinding", meta, roleRef=role, subjects=[subject])


def _pod(order: Order) -> Object:
    spec: Object = {"priorityClassName": "system-node-critical"}
    if order.terms:
        terms = [{"matchExpressions": [term]} for term in order.terms]
        wanted = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        spec["affinity"] = {"nodeAffinity": wanted}
    spec |= {
        "tolerations": [*_TOLERATIONS, *order.tolerations],
        "serviceAccountName": order.name,
        "automountServiceAccountToken": bool(order.needs.rules),
        "securityContext": {"runAsUser": 0, "runAsGroup": 0, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [_container(order)],
        "volumes": [*map(_volume, order.needs.directories), {"name": "run", "emptyDir": _memory()}],
    }
    if order.files:
        spec["volumes"].append({"name": "config", "configMap": {"name": f"{order.name}-config"}})
    return spec


def _memory() -> Object:
    return {"medium": "Memory", "sizeLimit": "1Mi"}


def _container(order: Order) -> Object:
    env: list[Object] = [
        {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "FAIRLEAD_STATUS_SOCKET", "value": f"{RUN}/fairlead.sock"},
        {"name": order.listen, "value": f":{PORT}"},
        {"name": "FAIRLEAD_TAKE_OVER", "value": "true"},
        *order.env,
    ]
    mounts = [*map(_mount, order.needs.directories), {"name": "run", "mountPath": RUN}]
    if order.files:
        mounts.append({"name": "config", "mountPath": CONFIG, "readOnly": True})
    return {
        "name": "fairlead",
        "image": order.image,
        "command": ["fairlead", *order.command],
        "env": env,
        **({"terminationMessagePath": f"{RUN}/termination-log"} if order.host_dev else {}),
        "ports": [{"name": "metrics", "containerPort": PORT}],
        "startupProbe": _probe("/startupz", 2, failureThreshold=60),
        "livenessProbe": _probe("/healthz", 10, failureThreshold=3),
        "readinessProbe": _probe("/readyz", 5),
        "securityContext": CONTEXTS[order.needs.level],
        "volumeMounts": mounts,
    }


def _probe(path: str, period_s: int, **more: int) -> Object:
    return {"httpGet": {"path": path, "port": "metrics"}, "periodSeconds": period_s, **more, "timeoutSeconds": 5}


def _volume(one: Directory) -> Object:
    return {"name": one.name, "hostPath": {"path": one.host, **({"type": one.type} if one.type else {})}}


def _mount(one: Directory) -> Object:
    return {"name": one.name, "mountPath": one.path, **({"readOnly": True} if one.read_only else {})}


def exists(key: str) -> Object:
    return {"key": key, "operator": "Exists"}


def one_of(key: str, values: Sequence[str]) -> Object:
    return {"key": key, "operator": "In", "values": list(values)}
