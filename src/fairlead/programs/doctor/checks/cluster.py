"""Checks of the cluster's objects: what keeps the daemon from this node, who else offers its devices, what was left."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime

from fairlead.programs.doctor.checks.words import listing, offered
from fairlead.programs.doctor.facts import DaemonSet, Facts, Missing, SocketState, Taint, Term
from fairlead.programs.doctor.findings import API, DAEMON, Chapter, Seen, need

CLUSTER = Chapter("The cluster, and others who offer the same devices")
POD_SECURITY = "violates PodSecurity"
# Taints that every pod of a DaemonSet tolerates.
TOLERATED = (
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/pid-pressure",
    "node.kubernetes.io/unschedulable",
    "node.kubernetes.io/network-unavailable",
)
UNWANTED = frozenset({"NotIn", "DoesNotExist"})
LOCK_S, HANDSHAKE_S = 300.0, 300.0  # a scheduler holds its lock for one admission, and greets every 30 s
LOCK = re.compile(r"(?:^|/)mutex\.lock$")
HANDSHAKE = re.compile(r"/node-handshake")
FIRST_TOLERATION = (
    "kubectl -n {namespace} patch daemonset {name} --type=json -p "
    """'[{"op":"add","path":"/spec/template/spec/tolerations","value":[{"key":"{key}","operator":"Exists"}]}]'"""
)
# Other plugins, by what their images are called, and whose devices they offer.
RIVALS = {
    "nvidia/k8s-device-plugin": "nvidia.com/",
    "rocm/k8s-device-plugin": "amd.com/",
    "projecthami/hami": "nvidia.com/",
    "volcano-vgpu-device-plugin": "nvidia.com/",
    "k8s-gpushare-plugin": "aliyun.com/",
    "intel-gpu-plugin": "gpu.intel.com/",
}
SOCKETS = {"nvidia": "nvidia.com/", "amd.com": "amd.com/", "aliyungpushare": "aliyun.com/"}
DRA_DRIVERS = {"gpu.nvidia.com": "nvidia", "gpu.amd.com": "amd", "gpu.intel.com": "intel"}


@CLUSTER.error(
    "D04",
    "Pod Security forbids the daemon's pod",
    "kubectl label namespace {namespace} pod-security.kubernetes.io/enforce=privileged --overwrite",
    API,
)
def pod_security(facts: Facts) -> Iterator[Seen]:
    """The daemon mounts directories of the host, which the levels baseline and restricted forbid.

    The DaemonSet shows no pod and no error; only its Events say why.
    """
    events, sets = need(facts.events), facts.daemon_sets
    for event in events:
        # An event is kept for an hour. Only a set that still lacks a pod is forbidden now.
        lacks = isinstance(sets, Missing) or any(
            (one.namespace, one.name) == (event.namespace, event.object) and not one.complete for one in sets
        )
        if lacks and POD_SECURITY in event.message:
            yield Seen(f"DaemonSet {event.namespace}/{event.object}: {event.message}", {"namespace": event.namespace})


@CLUSTER.error("D05", "no DaemonSet of a device plugin chooses this node", "kubectl label node {node} {label}", API)
def not_chosen(facts: Facts) -> Iterator[Seen]:
    """Charts choose nodes by labels that node-feature-discovery writes.

    By default it writes pci-0300_10de.present, while many charts ask for pci-10de.present. Then the DaemonSet wants no
    pod, and says so nowhere. Set deviceLabelFields: [vendor] in node-feature-discovery, or label the node.
    """
    node, sets = need(facts.node), need(facts.daemon_sets)
    refused = [(one, _unmet(one, node.labels)) for one in sets]
    if not refused or any(term is None for _, term in refused):
        return
    for one, term in refused:
        if term is None:
            continue
        near = sorted(key for key in node.labels if "10de" in key or "1002" in key)
        has = f"; the node has {listing(near)}" if near else ""
        value = f"={term.values[0]}" if term.values else "=true"
        value = "-" if term.operator in UNWANTED else value  # the label must go
        wants = f"{term.key} {term.operator} {listing(term.values)}".rstrip()
        text = f"DaemonSet {one} wants {wants}{has}"
        yield Seen(text, {"node": node.name, "label": f"{term.key}{value}"})


@CLUSTER.error(
    "D06",
    "a taint of this node is not tolerated",
    "kubectl -n {namespace} patch daemonset {name} --type=json -p "
    """'[{"op":"add","path":"/spec/template/spec/tolerations/-","value":{"key":"{key}","operator":"Exists"}}]'""",
    API,
)
def not_tolerated(facts: Facts) -> Iterator[Seen]:
    """Nodes with GPUs are often tainted to keep other pods away.

    A device plugin without the toleration is kept away as well, and the node offers nothing.
    """
    node = need(facts.node)
    for one in need(facts.daemon_sets):
        if _unmet(one, node.labels) is not None:  # it is meant for other nodes
            continue
        for taint in node.taints:
            if taint.effect != "PreferNoSchedule" and not _tolerates(one, taint):
                text = f"DaemonSet {one} does not tolerate {taint.key}={taint.value}:{taint.effect}"
                values = {"namespace": one.namespace, "name": one.name, "key": taint.key}
                yield Seen(text, values, "" if one.tolerations else FIRST_TOLERATION)


@CLUSTER.warning(
    "D22",
    "two DaemonSets have one selector",
    "helm -n {namespace} upgrade {name} fairlead --reuse-values --set nameOverride={name}",
    API,
)
def one_selector(facts: Facts) -> Iterator[Seen]:
    """Kubernetes keeps the pods of the two apart by their owner. What goes by labels does not:

    a Service, a disruption budget, `kubectl logs`. And a pod whose own set is gone is taken over by the other one, and
    replaced by its pod. Labels of the selector must differ. Fairlead's chart has a label for each component.
    """
    seen: dict[tuple[str, frozenset[tuple[str, str]]], DaemonSet] = {}
    for one in need(facts.daemon_sets):
        key = one.namespace, frozenset(one.selector.items())
        other = seen.setdefault(key, one)
        if other is not one and one.selector:
            labels = listing(f"{name}={value}" for name, value in sorted(one.selector.items()))
            text = f"{other} and {one} select {labels}"
            yield Seen(text, {"namespace": one.namespace, "name": one.name})


@CLUSTER.error(
    "D24",
    "a second plugin offers the same devices",
    "kubectl get pods -A -o wide --field-selector spec.nodeName={node} | grep device-plugin",
    DAEMON,
    API,
)
def rivals(facts: Facts) -> Iterator[Seen]:
    """The kubelet takes the plugin that registered last.

    Two plugins of one name take the resource from each other; two of different names give one device to two pods. Keep
    one of them on the node.
    """
    values = {"node": facts.where.node or "NODE"}
    ours = {row.name: daemon.socket for daemon in need(facts.daemons) for row in daemon.status.resources}
    domains = {name.partition("/")[0] + "/" for name in ours}
    for daemon in need(facts.daemons):
        for row in daemon.status.resources:
            if ours[row.name] != daemon.socket:
                yield Seen(f"{row.name} is served by the daemons of {ours[row.name]} and {daemon.socket}", values)
    if not isinstance(facts.pods, Missing):
        for pod in facts.pods:
            images = [image for image in pod.images for part in RIVALS if part in image and RIVALS[part] in domains]
            if images and pod.phase == "Running" and "fairlead" not in images[0]:
                cure = f"kubectl -n {pod.namespace} delete daemonset {pod.name.rpartition('-')[0] or pod.name}"
                yield Seen(f"pod {pod} runs {images[0]} on this node", values, cure)
    if not isinstance(facts.plugins, Missing):
        root = facts.where.root.rstrip("/")
        own = {row.socket for daemon in need(facts.daemons) for row in daemon.status.resources}
        for socket in facts.plugins.others:
            name = socket.path.rpartition("/")[2]
            meant = any(name.startswith(start) and SOCKETS[start] in domains for start in SOCKETS)
            is_own = socket.path.removeprefix(root) in own
            if meant and socket.state is SocketState.ANSWERS and not is_own:
                yield Seen(f"another process serves {socket.path}", values, f"ss -xlp | grep {socket.path}")


@CLUSTER.error(
    "D25",
    "a DRA driver publishes the same devices",
    "helm -n nvidia-dra-driver-gpu upgrade nvidia-dra-driver-gpu nvidia/nvidia-dra-driver-gpu --reuse-values "
    "--set resources.gpus.enabled=false",
    API,
)
def dra(facts: Facts) -> Iterator[Seen]:
    """One device is given to two pods.

    The scheduler gives it to one pod from the ResourceSlice and, as an extended resource, to another: neither side
    knows of the other. Give each device one front end.
    """
    slices = need(facts.slices)
    if not slices:
        return
    vendors = {device.vendor.lower() for device in offered(facts) if device.resource}
    for one in slices:
        if DRA_DRIVERS.get(one.driver) in vendors:
            yield Seen(f"ResourceSlice {one.name} of {one.driver} has {listing(one.devices) or 'devices'}")


@CLUSTER.note(
    "D29",
    "resource names without a plugin are left",
    "kubectl patch node {node} --subresource=status --type=json -p "
    """'[{"op":"remove","path":"/status/capacity/{pointer}"}]'""",
    API,
)
def ghosts(facts: Facts) -> Iterator[Seen]:
    """The kubelet keeps the name of a resource whose plugin is gone.

    After five minutes the amount is 0, so that pods that ask for it wait instead of starting without. After a rename
    the old name stays. It does no harm; the command removes it. A kubelet that has lost its checkpoint does not know
    the name and leaves the amount as it was: then pods that ask for it start without a device.
    """
    node = need(facts.node)
    offers = {row.name for daemon in need(facts.daemons) for row in daemon.status.resources}
    domains = {name.partition("/")[0] for name in offers}
    if not isinstance(facts.config, Missing):  # these need no plugin
        offers |= {amount.resource for amount in facts.config.amounts}
    file = facts.checkpoint
    known = None if isinstance(file, Missing) or file.content is None else file.content.listed
    for name, amount in sorted(node.capacity.items()):
        if name.partition("/")[0] not in domains or name in offers:
            continue
        text = f"{name}: {amount}"
        if amount != "0":
            if known is None or name in known:
                continue
            text += ", and no plugin of that name has registered: pods that ask for it start without a device"
        yield Seen(text, {"node": node.name, "pointer": name.replace("~", "~0").replace("/", "~1")})


@CLUSTER.error(
    "D38",
    "a right is missing for a feature that is on",
    "kubectl create clusterrole fairlead-{verb}-{short} --verb={verb} --resource={resource} && "
    "kubectl create clusterrolebinding fairlead-{verb}-{short} --clusterrole=fairlead-{verb}-{short} {account}",
    API,
)
def no_right(facts: Facts) -> Iterator[Seen]:
    """The daemon asks the API server only for features that the configuration turns on.

    Without the right, requests are refused and the feature does nothing. The command gives it to the account that the
    doctor was run as. The page on RBAC has the rules of each feature.
    """
    for right in need(facts.rights):
        if not right.allowed:
            resource = f"{right.resource}.{right.group}" if right.group else right.resource
            short = right.resource.replace("/", "-")
            values = {"verb": right.verb, "resource": resource, "short": short, "account": _subject(right.account)}
            yield Seen(f"{right.feature}: this account may not {right.verb} {resource}", values)


@CLUSTER.error("D39", "a scheduler left its lock on the node", "kubectl annotate node {node} {key}-", API)
def stale_lock(facts: Facts) -> Iterator[Seen]:
    """Schedulers of GPU memory lock a node for the time of one admission.

    A lock whose pod was never admitted keeps all later pods away; a handshake that is not answered makes the scheduler
    forget the node's devices.
    """
    node = need(facts.node)
    own = set()
    if not isinstance(facts.config, Missing):
        own = {rule.assign.node_lock for rule in facts.config.rules if rule.assign is not None}
    for key, value in sorted(node.annotations.items()):
        is_lock = bool(LOCK.search(key)) or key in own
        is_handshake = bool(HANDSHAKE.search(key)) and value.startswith("Requesting_")
        since_s = _time(value) if is_lock or is_handshake else None
        if since_s is None:
            continue
        age_s = facts.where.now_s - since_s
        if age_s > (LOCK_S if is_lock else HANDSHAKE_S):
            yield Seen(f"{key}: {value}, which is {age_s:.0f} s ago", {"node": node.name, "key": key})


@CLUSTER.warning(
    "D23",
    "pods ask for more of a shared resource than one container may have",
    "kubectl set resources deployment NAME --limits={resource}=1",
)
def greedy(facts: Facts) -> Iterator[Seen]:
    """Two shares of one GPU give no more memory and no more time than one, and need not be of two GPUs.

    The kubelet rejects the pod with the daemon's refusal. Ask for 1, or allow more with perContainer of the rule.
    """
    counts: dict[tuple[str, str], int] = {}
    # The journal remembers what was refused long ago. Where the pods are known, one of them must still show it.
    told = None if isinstance(facts.pods, Missing) else [pod.message for pod in facts.pods if pod.phase == "Failed"]
    for daemon in need(facts.daemons):
        for refusal in daemon.refusals:
            if told is not None and not any(refusal.reason in message for message in told):
                continue
            if "one container may have" in refusal.reason or "a container may have 1 share" in refusal.reason:
                key = refusal.resource, refusal.reason
                counts[key] = counts.get(key, 0) + 1
    for (resource, reason), count in sorted(counts.items()):
        yield Seen(f"{count} times: {reason}", {"resource": resource})


def _subject(account: str) -> str:
    """Of a binding, as kubectl takes it. Without an account: the one that the chart makes."""
    service = account.removeprefix("system:serviceaccount:")
    if account and service == account:
        return f"--user={account}"
    return f"--serviceaccount={service or 'kube-system:fairlead'}"


def _unmet(one: DaemonSet, labels: object) -> Term | None:
    """The first expression that keeps a DaemonSet from the node. None: nothing does."""
    assert isinstance(labels, dict)
    first: Term | None = None
    for terms in one.alternatives:
        unmet = next((term for term in terms if not _holds(term, labels)), None)
        if unmet is None:
            return None
        first = first or unmet
    return first


def _holds(term: Term, labels: dict[str, str]) -> bool:
    value = labels.get(term.key)
    match term.operator:
        case "In":
            return value in term.values
        case "NotIn":
            return value not in term.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:  # Gt, Lt: labels of GPUs have none
            return True


def _tolerates(one: DaemonSet, taint: Taint) -> bool:
    if taint.key in TOLERATED:
        return True
    return any(
        (not each.effect or each.effect == taint.effect)
        and (not each.key or each.key == taint.key)
        and (each.operator == "Exists" or each.value == taint.value)
        for each in one.tolerations
    )


def _time(text: str) -> float | None:
    """When a lock or a handshake was written, as HAMi and Volcano write it."""
    word = text.removeprefix("Requesting_").partition(",")[0].strip()
    try:
        if text.startswith("Requesting_"):
            return datetime.strptime(word, "%Y.%m.%d %H:%M:%S").replace(tzinfo=UTC).timestamp()
        if word.isdecimal() and len(word) <= 19:
            return int(word) / (1e9 if len(word) > 12 else 1)
        found = datetime.fromisoformat(word)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
