"""Checks of the kubelet: its directories and sockets, registration, its checkpoint, and what it says pods hold."""

from __future__ import annotations

from collections.abc import Iterator

from fairlead.policy.offering.memory import KUBELET_MESSAGE_MAX_BYTES
from fairlead.programs.doctor.checks.words import listing, offered, our_set
from fairlead.programs.doctor.facts import Facts, Missing, SocketState
from fairlead.programs.doctor.findings import API, DAEMON, HOST, Chapter, LacksError, Seen, need

KUBELET = Chapter("The kubelet")
ATTEMPTS = 2  # that failed: the kubelet answers each when it has dialled back for 10 s, and the phase begins anew
STREAM_S = 30.0  # an endpoint without a stream for so long is no start any more
OVERSIZE = "over the kubelet's"  # of the text of `policy.offering.budget`
SEVERAL_NUMA = 2
ALIGNED = frozenset({"single-numa-node", "restricted"})
FIXED_AFTER = (1, 36)  # the last minor version in which a second registration is known to undo itself


@KUBELET.error(
    "D01",
    "the kubelet is not in the directories that are looked at",
    "fairlead run --plugin-dir {directory} --pod-resources {root}/pod-resources/kubelet.sock",
    DAEMON,
    HOST,
)
def directories(facts: Facts) -> Iterator[Seen]:
    """The kubelet keeps device-plugins below /var/lib/kubelet whatever its --root-dir is.

    It keeps pod-resources below its --root-dir. A plugin that serves in another directory is never called. In a pod
    both directories must be mounted from the host, at the same path.
    """
    plugins, process = need(facts.plugins), facts.process
    root = "/var/lib/kubelet" if isinstance(process, Missing) else process.root_dir
    values = {"directory": "/var/lib/kubelet/device-plugins", "root": root}
    if not plugins.there:
        yield Seen(f"{plugins.path} is not there", values)
    elif plugins.kubelet.state in {SocketState.ABSENT, SocketState.NO_SOCKET}:
        runs = "" if isinstance(process, Missing) else f", while the kubelet runs as process {process.pid}"
        yield Seen(f"{plugins.kubelet.path} is {plugins.kubelet.state}{runs}", values)
    elif not isinstance(facts.pod_resources, Missing) and facts.pod_resources.state is SocketState.ABSENT:
        elsewhere = "" if root == "/var/lib/kubelet" else f"; the kubelet runs with --root-dir={root}"
        yield Seen(f"{facts.pod_resources.path} is absent: who holds what is not known{elsewhere}", values)


@KUBELET.error("D02", "kubelet.sock is there, and the kubelet does not answer", "systemctl start kubelet")
def silent(facts: Facts) -> Iterator[Seen]:
    """A kubelet that was killed leaves its socket behind.

    Until it runs again, no pod of this node starts and no plugin can register. Fairlead registers by itself as soon as
    the kubelet is back.
    """
    kubelet = need(facts.plugins).kubelet
    if kubelet.state in {SocketState.REFUSED, SocketState.SILENT}:
        yield Seen(f"{kubelet.path}: {kubelet.state} ({kubelet.detail})")


@KUBELET.error(
    "D03",
    "SELinux forbids the kubelet's sockets",
    "kubectl -n {namespace} patch daemonset {name} --type=json -p '"
    '[{"op":"add","path":"/spec/template/spec/containers/0/securityContext/seLinuxOptions",'
    '"value":{"type":"container_device_plugin_t"}}]\'',
    DAEMON,
    HOST,
)
def forbidden(facts: Facts) -> Iterator[Seen]:
    """Root may open these sockets unless a security module forbids it.

    The container needs the type container_device_plugin_t. If the kubelet itself is unconfined_service_t, no container
    may connect to it: restore the label of its binary, and start it again.
    """
    sockets = [need(facts.plugins).kubelet]
    if not isinstance(facts.pod_resources, Missing):
        sockets.append(facts.pod_resources)
    denied = [one for one in sockets if one.state is SocketState.DENIED]
    if denied and facts.where.uid:
        raise LacksError(f"{denied[0].path} may be opened by root only, and this is user {facts.where.uid}")
    for socket in denied:
        selinux, process = facts.selinux, facts.process
        modules = "" if isinstance(selinux, Missing) else f"; SELinux enforcing: {str(selinux.enforcing).lower()}"
        own = "" if isinstance(selinux, Missing) or not selinux.own else f", this process: {selinux.own}"
        label = "" if isinstance(process, Missing) else process.label
        yield Seen(
            f"{socket.path}: permission denied to root{modules}{own}{f', the kubelet: {label}' if label else ''}",
            our_set(facts),
            "restorecon -v /usr/bin/kubelet && systemctl restart kubelet" if "unconfined_service_t" in label else "",
        )


@KUBELET.error("D28", "a device list is over 4 MiB, and the resource stays at 0", "fairlead plan --config {config}")
def oversize(facts: Facts) -> Iterator[Seen]:
    """The kubelet takes no message over 4,194,304 bytes, drops the stream, and says so nowhere but in its log.

    `fairlead plan` shows the size of each list and the largest number of replicas, or the smallest unit, that fits.
    """
    if not isinstance(facts.daemons, Missing):
        for daemon in facts.daemons:
            for problem in daemon.status.problems:
                if OVERSIZE in problem:
                    yield Seen(problem, {"config": daemon.status.config})
        return
    for row in need(facts.plan).resources:
        if row.worst_bytes > KUBELET_MESSAGE_MAX_BYTES:
            text = f"{row.name}: {row.slots:,} slots make a list of {row.worst_bytes:,} bytes"
            yield Seen(text, {"config": "/etc/fairlead/fairlead.yaml"})


@KUBELET.error(
    "D30",
    "registered, and the kubelet has opened no stream",
    "ls -l {directory} && journalctl -u kubelet --since=-10min | grep -i 'device plugin'",
)
def no_stream(facts: Facts) -> Iterator[Seen]:
    """The kubelet dials back to the plugin's socket by its name, in its own directory.

    If the daemon serves in a directory that is not the same mount, or the kubelet ended the stream, the resource stays
    at 0. Fairlead registers again, at most every 10 s; what keeps the kubelet from dialling is in the kubelet's log.
    """
    for daemon in need(facts.daemons):
        status = daemon.status
        root = facts.where.root.rstrip("/")
        others = () if isinstance(facts.plugins, Missing) else facts.plugins.others
        sockets = {one.path.removeprefix(root) for one in others}
        for row in status.resources:
            is_new = status.now_s - row.since_s < STREAM_S and row.attempt < ATTEMPTS
            if is_new or row.phase in {"streaming", "waiting"}:
                continue
            lost = sockets and row.socket and row.socket not in sockets and not facts.where.in_pod
            where = f"; {row.socket} is not in the kubelet's directory" if lost else ""
            why = f": {row.reason}" if row.reason else ""
            text = f"{row.name}: {row.phase} for {status.now_s - row.since_s:.0f} s, attempt {row.attempt}{why}{where}"
            yield Seen(text, {"directory": status.directory})


@KUBELET.error(
    "D31",
    "pods were rejected by the kubelet and stay behind",
    "kubectl delete pod -n {namespace} {pods}",
    API,
)
def rejected(facts: Facts) -> Iterator[Seen]:
    """After a reboot or a restart of the kubelet, pods are admitted again before a plugin has registered.

    The kubelet rejects them with UnexpectedAdmissionError and never tries them again; a controller makes new ones. To
    make the window shorter, give the daemon priorityClassName: system-node-critical and keep its image on the node.
    """
    namespaces: dict[str, list[str]] = {}
    for pod in need(facts.pods):
        if pod.phase == "Failed" and pod.reason == "UnexpectedAdmissionError":
            namespaces.setdefault(pod.namespace, []).append(pod.name)
    for namespace, names in sorted(namespaces.items()):
        text = f"{len(names)} in namespace {namespace}: {listing(names)}"
        yield Seen(text, {"namespace": namespace, "pods": " ".join(names[:50])})


@KUBELET.error(
    "D32",
    "the kubelet's checkpoint is damaged or contradicts the kubelet",
    "kubectl drain {node} --ignore-daemonsets --delete-emptydir-data && "
    "ssh {node} 'systemctl stop kubelet && rm {path} && systemctl start kubelet' && kubectl uncordon {node}",
    DAEMON,
)
def checkpoint(facts: Facts) -> Iterator[Seen]:
    """The kubelet reads the file when it starts.

    From one that it cannot read it learns nothing: it forgets who holds which device, and gives devices out a second
    time. Drain the node before the file is removed.
    """
    found = need(facts.checkpoint)
    values = {"node": facts.where.node or "NODE", "path": found.path}
    if found.problem:
        yield Seen(f"{found.path}: {found.problem}", values)
        return
    if isinstance(facts.holdings, Missing) or found.content is None:
        return
    for name, held in sorted(facts.holdings.by_resource.items()):
        if unknown := sorted(held - found.content.held.get(name, frozenset())):
            text = f"{name}: pods hold {listing(unknown)} by pod-resources, and {found.path} does not name them"
            yield Seen(text, values)


@KUBELET.error(
    "D33",
    "devices are held by pods that are gone",
    "systemctl restart kubelet",
    DAEMON,
    API,
)
def leaked(facts: Facts) -> Iterator[Seen]:
    """The kubelet counts the devices as used and refuses new pods.

    But the API server has no such pod on this node. A restart of the kubelet makes it count anew; running pods keep
    their devices.
    """
    pods = {(pod.namespace, pod.name) for pod in need(facts.pods)}
    gone: dict[tuple[str, str], int] = {}
    for holder in need(facts.holdings).by_slot.values():
        if (holder.namespace, holder.pod) not in pods:
            gone[holder.namespace, holder.pod] = gone.get((holder.namespace, holder.pod), 0) + 1
    for (namespace, name), count in sorted(gone.items()):
        yield Seen(f"pod {namespace}/{name} holds {count} slots, and the API server has no such pod on this node")


@KUBELET.warning(
    "D40",
    "the NUMA node of a device is not known, and the kubelet aligns by it",
    "echo 0 > /sys/bus/pci/devices/{address}/numa_node",
    HOST,
)
def unaligned(facts: Facts) -> Iterator[Seen]:
    """With topologyManagerPolicy restricted or single-numa-node the kubelet aligns CPUs with the NUMA nodes of devices.

    A device without one fits everywhere: a pod is then admitted with CPUs of the far socket, and one that asks for
    devices of both kinds may be refused with TopologyAffinityError. Write the right number, or have the firmware name
    it; it lasts until the next boot.
    """
    policy, count = need(facts.kubelet).topology_policy, need(facts.numa_nodes)
    if policy not in ALIGNED or count < SEVERAL_NUMA:
        return
    for device in offered(facts):
        if device.pci_address and device.resource and not device.numa_nodes:
            text = (
                f"{device.id} at {device.pci_address} has no NUMA node; the machine has {count}, the policy is {policy}"
            )
            yield Seen(text, {"address": device.pci_address})


@KUBELET.warning(
    "D44",
    "a known defect of this kubelet meets this set-up",
    "kubectl -n {namespace} patch daemonset {name} -p "
    """'{"spec":{"updateStrategy":{"rollingUpdate":{"maxSurge":0,"maxUnavailable":1}}}}'""",
    API,
)
def defects(facts: Facts) -> Iterator[Seen]:
    """Kubelets up to 1.36 know a plugin by the name of its resource only.

    If two run at once, the end of the old one marks the devices of the new one unhealthy (kubernetes#121994, #127803).
    An update with maxSurge starts two. Use maxSurge: 0, or let the new daemon take over with --take-over.
    """
    version = need(facts.node).kubelet_version
    parts = version.removeprefix("v").split(".")
    if len(parts) < len(FIXED_AFTER) or not all(part.isdecimal() for part in parts[:2]):
        raise LacksError(f"the node's kubelet version {version!r} is not understood")
    if (int(parts[0]), int(parts[1])) > FIXED_AFTER:
        return
    for one in need(facts.daemon_sets):
        if one.surge and not one.takes_over:
            text = f"kubelet {version}, and DaemonSet {one} is updated with maxSurge: {one.surge}"
            yield Seen(text, {"namespace": one.namespace, "name": one.name})
