"""What the pods may do: at the API server exactly what the features need, on the node as little as the mode allows."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.cluster.rbac import FEATURES
from tests.chart import helm, render
from tests.chart.rights import FEATURE_NAMES, rules
from tests.chart.shapes import (
    ASSIGN,
    CASES,
    component,
    daemon_set,
    deployment,
    granted,
    main_container,
    of_kind,
    pod,
    workloads,
)

NEEDS: dict[str, dict[str, tuple[str, ...]]] = {
    "nvidia": {"plugin": ()},
    "amd": {"plugin": (), "amd-labeller": ("amd.labeller",)},
    "gke": {"plugin": ("gke.healthMonitoring",)},
    "gke, all": {"plugin": ("gke.healthMonitoring", "gke.publishDriverVersion")},
    "gke, nothing": {"plugin": ()},
    "generic": {"plugin": ()},
    "smarter": {"plugin": ()},
    "gpushare": {"plugin": ("gpushare",)},
    "volcano": {"plugin": ("volcano",)},
    "doslab": {"plugin": ("doslab",)},
    "fairlead": {"plugin": ()},
    "configs": {"plugin": ("config-label",), "gfd": ("gfd", "config-manager")},
    "external configs": {
        "plugin": ("config-label",),
        "gfd": ("gfd.toNode", "config-manager"),
        "mps": ("config-manager",),
    },
    "mps": {"plugin": ("config-label",), "mps": ("config-manager",)},
    "labels": {"plugin": (), "gfd": ("gfd",)},
    "labels alone": {"gfd": ("gfd",)},
    "mig": {"plugin": ()},
    "cpu manager": {"plugin": ()},
    "watched": {"plugin": ()},
    "quiet": {"plugin": ()},
    "elsewhere": {"plugin": ()},
    "cluster": {"plugin": ("amounts", "cluster.condition", "cluster.events")},
    "everything of the host": {"plugin": ()},
    "own configs": {"plugin": ("amounts", "config-label")},
    "own ConfigMap by label": {"plugin": ("config-label",)},
    "own ConfigMap": {"plugin": ("assign.nodeLock",)},
    "extender": {
        "plugin": ("gpushare",),
        "extender": ("extender", "extender.wake", "extender.unhealthyConfigMaps"),
    },
    "extender, all": {"extender": ("extender",)},
    "second scheduler": {"extender": ("extender", "extender.wake")},
}
# What kube-scheduler needs, beside roles of Kubernetes' own.
LEASES = {("coordination.k8s.io", "leases", verb) for verb in ("create", "get", "update")}
KUBERNETES = {
    "ClusterRoleBinding": {"system:kube-scheduler", "system:volume-scheduler"},
    "RoleBinding": {"extension-apiserver-authentication-reader"},
}
RESTRICTED = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
SYS_ADMIN = {"readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]}}
PRIVILEGED = {"privileged": True, "readOnlyRootFilesystem": True}
LEVELS: dict[str, Any] = {
    **dict.fromkeys(("nvidia", "generic", "smarter", "gpushare", "volcano", "doslab", "fairlead"), RESTRICTED),
    **dict.fromkeys(("amd", "gke", "cpu manager", "everything of the host", "own configs"), PRIVILEGED),
    **dict.fromkeys(("mig", "configs", "external configs", "cluster"), SYS_ADMIN),
    "mps": RESTRICTED,
}


@pytest.mark.parametrize("case", CASES)
def test_accounts_may_do_what_the_features_need_and_no_more(case: str):
    made = helm.objects(CASES[case])
    assert {component(one) for one in workloads(made)} == NEEDS[case].keys()
    for name, features in NEEDS[case].items():
        assert granted(made, name) == rules(*features) | (LEASES if case == "second scheduler" else set()), name


@pytest.mark.parametrize("case", CASES)
def test_every_account_is_bound_to_its_own_roles(case: str):
    made = helm.objects(CASES[case])
    accounts = {component(one): one["metadata"] for one in of_kind(made, "ServiceAccount")}
    for one in workloads(made):
        assert pod(one)["serviceAccountName"] == accounts[component(one)]["name"]
    for one in made:
        if one["kind"] in {"ClusterRoleBinding", "RoleBinding"}:
            account = accounts[component(one)]
            subject = {"kind": "ServiceAccount", "name": account["name"], "namespace": account["namespace"]}
            assert one["subjects"] == [subject]
            if one["roleRef"]["name"] not in KUBERNETES[one["kind"]]:
                assert one["roleRef"]["name"] == one["metadata"]["name"]
            else:
                assert case == "second scheduler"


@pytest.mark.parametrize("case", CASES)
def test_a_token_is_mounted_only_where_the_api_server_is_asked(case: str):
    for one in workloads(helm.objects(CASES[case])):
        own = set(NEEDS[case][component(one)]) - {"config-manager"}
        assert pod(one)["automountServiceAccountToken"] is bool(own)
        projected = {volume["name"] for volume in pod(one)["volumes"] if "projected" in volume}
        holders = [
            container["name"]
            for container in (*pod(one).get("initContainers", ()), *pod(one)["containers"])
            if projected & {mount["name"] for mount in container["volumeMounts"]}
        ]
        follows = "config-manager" in NEEDS[case][component(one)]
        assert holders == (["config-manager-init", "config-manager"] if follows else [])


@pytest.mark.parametrize("case", LEVELS)
def test_the_container_is_as_restricted_as_its_mode_allows(case: str):
    one = daemon_set(helm.objects(CASES[case]))
    assert main_container(one)["securityContext"] == LEVELS[case]
    assert pod(one)["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in (*pod(one).get("initContainers", ()), *pod(one)["containers"][:-1]):
        assert container["securityContext"] == RESTRICTED


@pytest.mark.parametrize("case", CASES)
def test_nothing_shares_the_hosts_network_or_processes_unless_it_is_asked_to(case: str):
    for one in workloads(helm.objects(CASES[case])):
        assert pod(one).get("hostNetwork", False) is (
            (case == "elsewhere" and component(one) == "plugin") or (case == "mps" and component(one) == "mps")
        )
        assert pod(one).get("hostPID", False) is (case == "external configs" and component(one) == "mps")


def test_a_security_context_of_ones_own_replaces_the_charts():
    one = daemon_set(helm.objects({"securityContext": {"privileged": True}, "podSecurityContext": {"fsGroup": 5}}))
    assert main_container(one)["securityContext"] == {"privileged": True}
    assert pod(one)["securityContext"]["fsGroup"] == 5


@pytest.mark.parametrize(
    "keys", [{}, {"nodeEnv": {"x": "A"}}, {"nodeLock": "gpu"}], ids=["plain", "nodeEnv", "nodeLock"]
)
def test_rules_with_assign_get_their_rights(keys: dict[str, Any]):
    rule = {"resource": "example.com/gpu", "assign": {**ASSIGN, **keys}}
    config = {"backends": [{"kind": "sim"}], "rules": [rule]}
    made = helm.objects({"dialect": "fairlead", "fairlead": {"config": config}})
    assert granted(made, "plugin") == rules("assign", *(f"assign.{key}" for key in keys))


@pytest.mark.parametrize("case", [case for case in CASES if "extender" in CASES[case]])
def test_the_extender_is_no_root_and_may_do_nothing_on_its_node(case: str):
    """All that Pod Security's level restricted asks for."""
    spec = pod(deployment(helm.objects(CASES[case])))
    assert spec["securityContext"] == {
        "runAsNonRoot": True,
        **dict.fromkeys(("runAsUser", "runAsGroup", "fsGroup"), 65532),
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert all(container["securityContext"] == RESTRICTED for container in spec["containers"])
    assert not [volume for volume in spec["volumes"] if "hostPath" in volume]


def test_config_maps_of_kube_system_are_read_there_and_nowhere_else():
    made = helm.objects(CASES["extender"])
    (role,) = [one for one in of_kind(made, "Role") if component(one) == "extender"]
    (binding,) = [one for one in of_kind(made, "RoleBinding") if component(one) == "extender"]
    assert role["metadata"]["namespace"] == binding["metadata"]["namespace"] == "kube-system"
    assert role["rules"] == [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]}]


def test_without_rbac_no_role_is_made():
    made = helm.objects({**CASES["configs"], "rbac": {"create": False}})
    assert not [one for one in made if "Role" in one["kind"]]


def test_every_feature_that_a_pod_can_have_is_known_to_the_chart():
    """Who adds a feature decides whether the chart must grant it."""
    typed = {
        "`fairlead node show`",
        "`fairlead node set`, `fairlead node unset`",
        "`fairlead node set --keep`",
        "`fairlead gpushare inspect`",
        "`fairlead doctor`",
        "the cache of this node's pods",
    }
    assert set(FEATURES) == typed | set(FEATURE_NAMES.values())


def test_the_network_policy_lets_in_metrics_and_lets_out_only_to_the_api_server():
    (plain,) = of_kind(helm.objects(CASES["quiet"]), "NetworkPolicy")
    assert plain["spec"]["ingress"] == []
    assert plain["spec"]["egress"] == []
    values = {"dialect": "gpushare", "networkPolicy": {"enabled": True, "from": [{"podSelector": {}}]}}
    (asked,) = of_kind(helm.objects(values), "NetworkPolicy")
    assert asked["spec"]["ingress"] == [{"ports": [{"port": 9402, "protocol": "TCP"}], "from": [{"podSelector": {}}]}]
    assert [port["port"] for port in asked["spec"]["egress"][0]["ports"]] == [443, 6443]


def test_the_network_policy_lets_the_scheduler_ask_where_there_is_one_outside():
    (plain,) = of_kind(helm.objects(CASES["extender, all"]), "NetworkPolicy")
    assert plain["spec"]["ingress"] == [
        {"ports": [{"port": 12345, "protocol": "TCP"}], "from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]},
        {"ports": [{"port": 9000, "protocol": "TCP"}]},
    ]
    (beside,) = of_kind(helm.objects(CASES["second scheduler"]), "NetworkPolicy")
    assert beside["spec"]["ingress"] == [{"ports": [{"port": 9402, "protocol": "TCP"}]}]
    for one in (plain, beside):
        assert [port["port"] for port in one["spec"]["egress"][0]["ports"]] == [443, 6443]


def test_the_manifests_name_no_image_but_the_example():
    for path in render.MANIFESTS.glob("*.yaml"):
        images = {line.split()[-1] for line in path.read_text().splitlines() if line.strip().startswith("image:")}
        kubernetes = {"registry.k8s.io/kube-scheduler"} if path.stem == "second-scheduler" else set()
        assert {image.partition(":")[0] for image in images} == {"example.com/fairlead"} | kubernetes
