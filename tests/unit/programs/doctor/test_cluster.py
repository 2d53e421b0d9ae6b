"""What is read from the API server, and that a refusal, silence or nonsense is a word and never an empty list."""

from __future__ import annotations

from typing import Any

import pytest
from tests.apiserver.server import ApiServer, Fault
from tests.unit.programs.doctor.healthy import config

from fairlead.cluster.client import Client
from fairlead.cluster.rbac import DOCTOR, FEATURES
from fairlead.kit.clock import SystemClock
from fairlead.programs.doctor.facts import DaemonSet, Event, Missing, RuntimeClass, Slice, Taint, Term, Toleration
from fairlead.programs.doctor.gather import Own, Reach, api, gather, limits
from fairlead.programs.doctor.gather.api import features, read_cluster

NO_CONFIG = Missing("no configuration")
NO_DAEMON = Missing("no daemon answers")
CLUSTER = {
    "cluster": {"node": "n1", "condition": {"type": "T", "codes": ["*"]}},
    "amounts": [{"resource": "a.io/b", "total": 5}],
    "rules": [
        {
            "resource": "nvidia.com/gpu",
            "assign": {"device": "x.io/device", "nodeLock": "x.io/lock"},
            "memory": {"unit": "1GiB"},
        }
    ],
}


def daemon_set(name: str, image: str, **spec: Any) -> dict[str, Any]:
    pod = {"containers": [{"image": image, "args": ["run", "--take-over"]}], **spec}
    return {
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {"spec": pod},
            "updateStrategy": {"rollingUpdate": {"maxSurge": "10%"}},
        },
    }


@pytest.fixture
def filled(server: ApiServer) -> ApiServer:
    put = server.store.put
    put(
        "nodes",
        {
            "metadata": {"name": "n1", "labels": {"a": "b"}, "annotations": None},
            "spec": {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule", "timeAdded": "x"}]},
            "status": {
                "capacity": {"nvidia.com/gpu": "0"},
                "nodeInfo": {"kubeletVersion": "v1.36.4", "containerRuntimeVersion": "containerd://1.7.2"},
            },
        },
    )
    context = {"runAsUser": 1000, "fsGroup": 44, "supplementalGroups": [7]}
    put(
        "pods",
        {
            "metadata": {"name": "p"},
            "spec": {"nodeName": "n1", "containers": [{"image": "x:1"}], "securityContext": context},
            "status": {"phase": "Failed", "reason": "UnexpectedAdmissionError"},
        },
        "default",
    )
    put("pods", {"metadata": {"name": "else"}, "spec": {"nodeName": "n2"}}, "default")
    affinity = {"matchExpressions": [{"key": "k", "operator": "Exists"}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [affinity]}}
    plugin = daemon_set(
        "fairlead",
        "r/fairlead:1",
        nodeSelector={"os": "linux"},
        affinity={"nodeAffinity": required},
        tolerations=[{"key": "gpu", "operator": "Exists"}],
        runtimeClassName="nvidia",
    )
    put("daemonsets", plugin, "gpu")
    put("daemonsets", daemon_set("device-plugin-bare", "x", nodeSelector={"os": "linux"}), "gpu")
    put("daemonsets", daemon_set("kube-proxy", "kube-proxy:1"), "kube-system")
    event = {"metadata": {"name": "e"}, "reason": "FailedCreate", "message": "violates PodSecurity"}
    put("events", {**event, "involvedObject": {"kind": "DaemonSet", "name": "fairlead"}}, "gpu")
    put("events", {**event, "metadata": {"name": "f"}, "involvedObject": {"kind": "Job", "name": "j"}}, "gpu")
    put("runtimeclasses", {"metadata": {"name": "nvidia"}, "handler": "nvidia"})
    slice_spec = {"driver": "gpu.nvidia.com", "nodeName": "n1", "devices": [{"name": "gpu-0"}]}
    put("resourceslices", {"metadata": {"name": "s"}, "spec": slice_spec})
    return server


async def test_objects_become_facts(filled: ApiServer, client: Client):
    found = await read_cluster(client, "n1", config(CLUSTER))
    assert found["node"].taints == (Taint("gpu", "yes", "NoSchedule"),)
    assert found["node"].kubelet_version == "v1.36.4"
    assert found["runtime_version"] == "containerd://1.7.2"
    (pod,) = found["pods"]
    assert (str(pod), pod.reason, pod.user, pod.groups) == ("default/p", "UnexpectedAdmissionError", 1000, (7, 44))
    bare, plugin = found["daemon_sets"]
    assert bare.alternatives == ((Term("os", "In", ("linux",)),),)
    assert plugin == DaemonSet(
        namespace="gpu",
        name="fairlead",
        images=("r/fairlead:1",),
        selector={"app": "fairlead"},
        tolerations=(Toleration("gpu", "Exists"),),
        alternatives=((Term("os", "In", ("linux",)), Term("k", "Exists")),),
        surge="10%",
        takes_over=True,
        runtime_class="nvidia",
    )
    assert found["events"] == (Event("gpu", "fairlead", "violates PodSecurity"),)
    assert found["runtime_classes"] == (RuntimeClass("nvidia", "nvidia"),)
    assert found["slices"] == (Slice("s", "gpu.nvidia.com", ("gpu-0",)),)
    assert {right.allowed for right in found["rights"]} == {True}


async def test_a_right_that_is_missing_is_named_with_its_feature(filled: ApiServer, client: Client):
    needed = {(verb, rule.resource) for rule in DOCTOR for verb in rule.verbs}
    filled.allowed = needed | {("list", "nodes"), ("watch", "nodes")}
    found = await read_cluster(client, "n1", config(CLUSTER))
    denied = {(right.verb, right.resource): right.feature for right in found["rights"] if not right.allowed}
    assert denied[("patch", "nodes/status")] == "the daemon with `amounts`"
    assert ("get", "nodes") not in denied


async def test_with_its_own_rights_everything_is_read_and_nothing_is_written(filled: ApiServer, client: Client):
    filled.allowed = {(verb, rule.resource) for rule in DOCTOR for verb in rule.verbs}
    found = await read_cluster(client, "n1", config())
    assert not [name for name, fact in found.items() if isinstance(fact, Missing)]
    assert {request.method for request in filled.requests} == {"GET"}


async def test_a_refusal_says_which_rule_is_missing(filled: ApiServer, client: Client):
    filled.allowed = {("get", "nodes")}
    found = await read_cluster(client, "n1", NO_CONFIG)
    assert not isinstance(found["node"], Missing)
    assert 'resources: ["pods"]' in found["pods"].why
    assert found["rights"] == NO_CONFIG


async def test_a_server_that_hangs_or_talks_nonsense_costs_only_those_answers(
    filled: ApiServer, client: Client, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(api, "API_S", 0.3)
    filled.faults = [Fault(hang=True, path="/pods"), Fault(raw=b"HTTP/1.1 200 OK\r\n\r\n{[", path="/daemonsets")]
    found = await read_cluster(client, "n1", NO_CONFIG)
    assert found["pods"] == Missing("no answer within 0.3 s")
    assert isinstance(found["daemon_sets"], Missing)
    assert found["runtime_classes"] == (RuntimeClass("nvidia", "nvidia"),)


def test_features_are_those_of_the_reference():
    on = features(config(CLUSTER))
    assert set(on) <= set(FEATURES)
    assert "the daemon with `assign.nodeLock`" in on
    assert "the daemon with `cluster.condition`" in on
    assert features(config()) == []


async def test_without_a_way_to_the_cluster_or_a_node_the_reason_is_said(tmp_path: Any):
    own = Own(NO_DAEMON, NO_CONFIG, NO_CONFIG)
    nowhere = Reach(root=str(tmp_path), environment={"HOME": str(tmp_path)}, node="n1")
    found = await gather(nowhere, own, SystemClock())
    assert isinstance(found.node, Missing)
    assert "nothing says where the API server is" in found.node.why
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(
        '{"clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}], "users": [], '
        '"contexts": [{"name": "x", "context": {"cluster": "c"}}], "current-context": "x"}'
    )
    unnamed = Reach(root=str(tmp_path), environment={"HOME": str(tmp_path)}, kubeconfig=str(kubeconfig))
    found = await gather(unnamed, own, SystemClock())
    assert isinstance(found.node, Missing)
    assert "--node" in found.node.why


# --- Bounds -----------------------------------------------------------------------------------------------------------


async def test_a_part_that_is_late_or_broken_costs_its_own_facts():
    import threading

    ending = threading.Event()
    try:
        late = await limits.in_time("slow", SystemClock(), ending.wait, deadline_s=0.05)
    finally:
        ending.set()
    assert isinstance(late, Missing)
    assert "slow" in late.why

    def fail(error: Exception) -> None:
        raise error

    for error, words in (
        (OSError(13, "Permission denied", "/dev/kmsg"), "/dev/kmsg: Permission denied"),
        (ValueError("bad"), "log: not understood: bad"),
        (RecursionError("deep"), "log: not understood: deep"),
    ):
        assert await limits.in_time("log", SystemClock(), lambda error=error: fail(error)) == Missing(words)  # type: ignore[misc]  # mypy infers no lambda with a default
