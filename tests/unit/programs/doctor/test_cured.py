"""What was cured is not found any more, what concerns other nodes is not found here, and the commands fit.

Each was seen on a true node first (tests/node/test_doctor.py).
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from tests.apiserver.server import ApiServer
from tests.unit.programs.doctor import healthy as h
from tests.unit.programs.doctor.healthy import healthy

from fairlead.cluster.client import Client
from fairlead.cluster.rbac import DOCTOR
from fairlead.fronts.checkpoint import Checkpoint
from fairlead.model.names import ResourceName
from fairlead.programs.doctor import facts as f
from fairlead.programs.doctor.checks import CHECKS
from fairlead.programs.doctor.findings import Finding, examine
from fairlead.programs.doctor.gather.api import read_cluster

FORBIDDEN = 'pods "x" is forbidden: violates PodSecurity "baseline"'
GREEDY = "nvidia.com/gpu: one container may have 1 of it, not 2: x"
DENIED = f.Right("the daemon with `amounts`", "", "nodes/status", "patch", allowed=False)


def found(**change: Any) -> list[Finding]:
    return list(examine(healthy(**change), CHECKS).findings)


@pytest.mark.parametrize(
    ("event", "plugin", "codes"),
    [
        (f.Event("kube-system", "fairlead", FORBIDDEN), h.daemon_set(), ["D04"]),
        (f.Event("kube-system", "fairlead", FORBIDDEN), h.daemon_set(complete=True), []),
        (f.Event("kube-system", "logs", FORBIDDEN), h.daemon_set(), []),
    ],
    ids=["a pod lacks", "the pods are there", "of another set"],
)
def test_an_event_counts_while_a_plugin_lacks_a_pod(event: f.Event, plugin: f.DaemonSet, codes: list[str]):
    assert [one.code for one in found(events=(event,), daemon_sets=(plugin,))] == codes


def test_without_the_sets_every_event_counts():
    findings = found(events=(f.Event("a", "b", FORBIDDEN),), daemon_sets=f.Missing("no right"))
    assert [one.code for one in findings] == ["D04"]


@pytest.mark.parametrize(
    ("term", "label"),
    [
        (f.Term("k", "In", ("a", "b")), "k=a"),
        (f.Term("k", "Exists"), "k=true"),
        (f.Term("os", "NotIn", ("linux",)), "os-"),
        (f.Term("os", "DoesNotExist"), "os-"),
    ],
)
def test_the_label_is_set_or_removed_as_the_set_wants_it(term: f.Term, label: str):
    node = h.node(labels={"os": "linux"})
    (finding,) = found(daemon_sets=(h.daemon_set(alternatives=((term,),)),), node=node)
    assert finding.cure == f"kubectl label node worker-1 {label}"


def test_a_set_for_other_nodes_need_not_tolerate_the_taint():
    elsewhere = h.daemon_set(
        name="amd", selector={"app": "amd"}, tolerations=(), alternatives=((f.Term("amd", "Exists"),),)
    )
    assert found(daemon_sets=(h.daemon_set(), elsewhere)) == []


def test_a_refusal_counts_while_a_pod_shows_it():
    daemons = h.daemons(f.Refusal("nvidia.com/gpu", GREEDY))
    greedy = h.pod(name="greedy", phase="Failed", message=f"Allocate failed due to rpc error: {GREEDY}, unexpected")
    assert [one.code for one in found(daemons=daemons, pods=(h.pod(), greedy))] == ["D23"]
    assert found(daemons=daemons, pods=(h.pod(),)) == []
    assert [one.code for one in found(daemons=daemons, pods=f.Missing("no right"))] == ["D23"]


def test_our_own_socket_below_a_host_root_is_no_rival():
    path = f"{h.DIRECTORY}/nvidia-gpu.sock"
    plugins = f.PluginDirectory(
        f"/host{h.DIRECTORY}",
        there=True,
        kubelet=h.answering("kubelet.sock"),
        others=(f.SocketFile(f"/host{path}", f.SocketState.ANSWERS),),
    )
    where = replace(healthy().where, root="/host")
    assert found(where=where, plugins=plugins, daemons=h.daemons(resources=(h.resource(socket=path),))) == []
    rival = h.daemons(resources=(h.resource(socket=f"{h.DIRECTORY}/other.sock"),))
    assert [one.code for one in found(where=where, plugins=plugins, daemons=rival)] == ["D24"]


def test_a_plugin_that_registers_again_and_again_is_found_although_each_try_is_new():
    tries = {"phase": "registering", "since_s": h.NOW_S - 4, "reason": "the kubelet refused: failed to dial"}
    (finding,) = found(daemons=h.daemons(resources=(h.resource(attempt=2, **tries),)))
    assert (finding.code, "failed to dial" in finding.seen) == ("D30", True)
    assert found(daemons=h.daemons(resources=(h.resource(attempt=1, **tries),))) == []


def test_a_drained_node_is_given_back():
    damaged = f.DiskCheckpoint("/c", problem="it is not what a kubelet writes")
    (finding,) = found(checkpoint=damaged)
    assert finding.cure.endswith(" && kubectl uncordon worker-1")


def test_a_name_with_an_amount_is_left_where_the_kubelet_knows_no_plugin_for_it():
    node = h.node(capacity={"nvidia.com/gpu": "2", "nvidia.com/old": "1", "cpu": "8"})
    (finding,) = found(node=node)
    assert (finding.code, finding.severity) == ("D29", "note")
    assert finding.seen.startswith("nvidia.com/old: 1, and no plugin of that name has registered")
    assert finding.cure.endswith("""'[{"op":"remove","path":"/status/capacity/nvidia.com~1old"}]'""")


@pytest.mark.parametrize("change", ["registered", "amount", "unknown"])
def test_a_name_with_an_amount_that_has_its_reason_is_not_left(change: str):
    node = h.node(capacity={"nvidia.com/gpu": "2", "nvidia.com/old": "1"})
    listed = {h.GPU: frozenset({h.FIRST}), ResourceName("nvidia.com/old"): frozenset({h.SECOND})}
    content = Checkpoint(listed, {h.GPU: frozenset({h.FIRST})})
    reasons: dict[str, dict[str, Any]] = {
        "registered": {"checkpoint": f.DiskCheckpoint("/c", content=content)},
        "amount": {"config": h.config({"amounts": [{"resource": "nvidia.com/old", "total": 1}]})},
        "unknown": {"checkpoint": f.Missing("no mount")},
    }
    assert found(node=node, **reasons[change]) == []


@pytest.mark.parametrize(
    ("account", "flag"),
    [
        ("system:serviceaccount:gpu:devices", "--serviceaccount=gpu:devices"),
        ("jane", "--user=jane"),
        ("", "--serviceaccount=kube-system:fairlead"),
    ],
)
def test_a_right_is_given_to_the_account_that_lacks_it(account: str, flag: str):
    (finding,) = found(rights=(replace(DENIED, account=account),))
    assert finding.cure.endswith(f"--clusterrole=fairlead-patch-nodes-status {flag}")


async def test_an_api_server_that_does_not_tell_the_account_costs_only_its_name(server: ApiServer, client: Client):
    server.allowed = {(verb, rule.resource) for rule in DOCTOR for verb in rule.verbs}
    wants = h.config({"amounts": [{"resource": "a.io/b", "total": 5}]})
    rights = (await read_cluster(client, "n1", wants))["rights"]
    assert {(right.allowed, right.account) for right in rights} == {(False, "")}


async def test_a_set_is_complete_when_each_node_that_it_chooses_has_its_pod(server: ApiServer, client: Client):
    for name, status in (("whole", {"desiredNumberScheduled": 2, "currentNumberScheduled": 2}), ("bare", None)):
        server.store.put("daemonsets", {"metadata": {"name": f"{name}-vgpu"}, "spec": {}, "status": status}, "gpu")
    lacks = {"desiredNumberScheduled": 2, "currentNumberScheduled": 1}
    server.store.put("daemonsets", {"metadata": {"name": "lacks-vgpu"}, "spec": {}, "status": lacks}, "gpu")
    found = (await read_cluster(client, "n1", f.Missing("no configuration")))["daemon_sets"]
    assert {one.name: one.complete for one in found} == {"whole-vgpu": True, "bare-vgpu": False, "lacks-vgpu": False}
