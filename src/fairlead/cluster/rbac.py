"""Which verbs on which resources each feature needs, as data: the reference page and the errors are made from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct


class Rule(Struct, frozen=True):
    """One rule of a Role or ClusterRole."""

    group: str
    resource: str  # with its sub-resource: nodes/status
    verbs: tuple[str, ...]

    def __str__(self) -> str:
        verbs = ", ".join(f'"{verb}"' for verb in self.verbs)
        return f'- apiGroups: ["{self.group}"]\n  resources: ["{self.resource}"]\n  verbs: [{verbs}]'


NODES_GET = Rule("", "nodes", ("get",))
NODES_FOLLOW = Rule("", "nodes", ("list", "watch"))
NODE_STATUS_PATCH = Rule("", "nodes/status", ("patch",))
PODS_FOLLOW = Rule("", "pods", ("list", "watch"))
PODS_PATCH = Rule("", "pods", ("patch",))
NODES_PATCH = Rule("", "nodes", ("patch",))
PODS_GET = Rule("", "pods", ("get",))
PODS_LIST = Rule("", "pods", ("list",))
NODES_READ = Rule("", "nodes", ("get", "list"))
NODES_LABEL = Rule("", "nodes", ("get", "patch"))
PODS_BIND = Rule("", "pods/binding", ("create",))
CONFIG_MAPS_FOLLOW = Rule("", "configmaps", ("list", "watch"))
EVENTS_WRITE = Rule("", "events", ("create", "patch"))
NODE_FEATURES = Rule("nfd.k8s-sigs.io", "nodefeatures", ("get", "create", "patch"))
DOCTOR = (
    NODES_GET,
    PODS_LIST,
    Rule("", "events", ("list",)),
    Rule("apps", "daemonsets", ("list",)),
    Rule("node.k8s.io", "runtimeclasses", ("list",)),
    Rule("resource.k8s.io", "resourceslices", ("list",)),
)

FEATURES: Mapping[str, tuple[Rule, ...]] = {
    "`fairlead node show`": (NODES_GET,),
    "`fairlead node set`, `fairlead node unset`": (NODES_GET, NODE_STATUS_PATCH),
    "`fairlead node set --keep`": (NODES_GET, NODES_FOLLOW, NODE_STATUS_PATCH),
    "the daemon with `amounts`": (NODES_FOLLOW, NODE_STATUS_PATCH),
    "the cache of this node's pods": (PODS_FOLLOW,),
    "the daemon with `assign`": (PODS_FOLLOW, PODS_PATCH),
    "the daemon with `assign.nodeEnv`": (NODES_FOLLOW, PODS_FOLLOW, PODS_PATCH),
    "the daemon with `assign.nodeLock`": (NODES_PATCH, PODS_FOLLOW, PODS_PATCH),
    "the daemon with `cluster.unhealthy`": (NODES_FOLLOW, NODES_PATCH),
    "the daemon with `cluster.condition`": (NODES_GET, NODE_STATUS_PATCH),
    "the daemon with `cluster.events`": (NODES_GET, EVENTS_WRITE),
    "the daemon with `cluster.annotate`": (NODES_PATCH,),
    "the daemon with `cluster.devices`": (NODES_FOLLOW, NODE_STATUS_PATCH),
    "the daemon with `--config-label`": (NODES_FOLLOW,),
    "`fairlead gke -enable-health-monitoring`": (NODES_GET, NODE_STATUS_PATCH, EVENTS_WRITE),
    "`fairlead gke -publish-driver-version`": (NODES_PATCH,),
    "`fairlead doslab`, `fairlead gpushare`": (NODES_FOLLOW, NODE_STATUS_PATCH, PODS_FOLLOW, PODS_PATCH),
    "`fairlead volcano`": (NODES_FOLLOW, NODES_PATCH, NODE_STATUS_PATCH, PODS_FOLLOW, PODS_PATCH),
    "`fairlead nvidia labels`": (NODE_FEATURES, PODS_GET),
    "`fairlead nvidia labels --to-node`": (NODES_LABEL,),
    "`fairlead nvidia config-manager`": (NODES_FOLLOW,),
    "`fairlead amd labels`": (NODES_FOLLOW, NODES_LABEL),
    "`fairlead gpushare inspect`": (NODES_READ, PODS_LIST),
    "`fairlead doctor`": DOCTOR,
    "`fairlead scheduler`": (NODES_FOLLOW, PODS_FOLLOW, PODS_GET, PODS_BIND),
    "`fairlead scheduler` with `wake`": (PODS_PATCH,),
    "`fairlead scheduler` with `unhealthyConfigMaps`, in `kube-system`": (CONFIG_MAPS_FOLLOW,),
}


_UPDATE = (
    "`update` does instead of `patch`, and is what {} grants: after a forbidden patch the object is read, "
    "changed and written with its version, and again if another writer came between. A patch is one request."
)
INSTEAD: Mapping[str, str] = {
    "`fairlead nvidia labels`": _UPDATE.format("NVIDIA's chart"),
    "`fairlead nvidia labels --to-node`": _UPDATE.format("NVIDIA's chart"),
    "`fairlead amd labels`": _UPDATE.format("AMD's manifest"),
}


def as_yaml(rules: Iterable[Rule]) -> str:
    return "\n".join(map(str, rules))
