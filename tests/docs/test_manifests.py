"""The manifests in the guides: exactly the rights that the features need, flags that are taken, the right places."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
import yaml
from tests.docs.blocks import ROOT, read_blocks

from fairlead.backends.amd.spec import EXPORTER_SOCKET
from fairlead.cluster.rbac import FEATURES, Rule
from fairlead.config.spec import KubeletSpec
from fairlead.dialects.invocation import Invocation
from fairlead.programs.labels.amd import command as amd_labels

RIGHTS = {
    "amd-labels": "`fairlead amd labels`",
    "doslab": "`fairlead doslab`, `fairlead gpushare`",
    "gke": "`fairlead gke -enable-health-monitoring`",
    "gpushare": "`fairlead doslab`, `fairlead gpushare`",
    "volcano": "`fairlead volcano`",
}
ENV = {"NODE_NAME": "n1"}


def objects(word: str) -> dict[str, Any]:
    """What `kubectl apply` would make, by kind."""
    page = ROOT / "docs" / "guide" / f"{word}.md"
    (block,) = [block for block in read_blocks(page) if block.word == f"{word}-daemonset.yaml"]
    return {made["kind"]: made for made in yaml.safe_load_all(block.text)}


def arguments(word: str) -> list[str]:
    (container,) = objects(word)["DaemonSet"]["spec"]["template"]["spec"]["containers"]
    return list(map(str, container.get("args", [])))


def read(word: str, args: list[str]) -> Invocation:
    order: Invocation = import_module(f"fairlead.dialects.{word}.command").read_command_line(args, ENV)
    return order


@pytest.fixture(params=sorted(RIGHTS))
def page(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=sorted(RIGHTS.keys() - {"amd-labels"}))
def word(request: pytest.FixtureRequest) -> str:
    """A dialect."""
    return str(request.param)


def test_the_account_may_do_what_is_needed_and_no_more(page: str):
    role = objects(page)["ClusterRole"]
    given = {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert given == {(rule.group, rule.resource, verb) for rule in FEATURES[RIGHTS[page]] for verb in rule.verbs}


def test_the_account_is_the_pods(page: str):
    made = objects(page)
    account = made["ServiceAccount"]["metadata"]
    subject = {"kind": "ServiceAccount", "name": account["name"], "namespace": account["namespace"]}
    assert made["ClusterRoleBinding"]["subjects"] == [subject]
    assert made["ClusterRoleBinding"]["roleRef"]["name"] == made["ClusterRole"]["metadata"]["name"]
    assert made["DaemonSet"]["metadata"]["namespace"] == account["namespace"]
    assert made["DaemonSet"]["spec"]["template"]["spec"]["serviceAccountName"] == account["name"]


def test_the_features_are_those_that_the_configuration_uses(word: str):
    """Who adds a feature to a dialect must give its account the rights."""
    config = read(word, arguments(word)).translate().config
    assign = config["rules"][0].get("assign", {})
    used = ["the daemon with `assign`"] if assign else []
    used += ["the daemon with `amounts`"] if "amounts" in config else []
    used += [f"the daemon with `assign.{key}`" for key in ("nodeEnv", "nodeLock") if key in assign]
    told = ("annotate", "condition", "events", "unhealthy")
    used += [f"the daemon with `cluster.{key}`" for key in told if key in config.get("cluster", {})]
    assert set(FEATURES[RIGHTS[word]]) == {rule for feature in used for rule in FEATURES[feature]}
    assert all(isinstance(rule, Rule) for rule in FEATURES[RIGHTS[word]])


def test_the_labeller_is_started_with_flags_that_it_has_and_finds_the_gpus():
    spec = objects("amd-labels")["DaemonSet"]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert container["command"] == ["fairlead", "amd", "labels"]
    (node,) = container["env"]
    assert node["valueFrom"]["fieldRef"]["fieldPath"] == "spec.nodeName"
    assert isinstance(amd_labels.read_settings(container["args"], {node["name"]: "n1"}), amd_labels.Settings)
    assert container["volumeMounts"] == [{"name": "sys", "mountPath": "/sys", "readOnly": True}]
    assert spec["volumes"] == [{"name": "sys", "hostPath": {"path": "/sys"}}]
    assert container["securityContext"]["privileged"] is True


def test_the_container_is_started_as_the_dialect_wants_it(word: str):
    spec = objects(word)["DaemonSet"]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert container["command"] == ["fairlead", word]
    meant = read(word, arguments(word)).translate()
    assert meant.notes == ()
    env = {entry["name"]: entry for entry in container["env"]}
    assert env["NODE_NAME"]["valueFrom"]["fieldRef"]["fieldPath"] == "spec.nodeName"
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume.get("hostPath", {}).get("path") for volume in spec["volumes"]}
    kubelet = meant.config["kubelet"]
    assert volumes[mounts[kubelet["directory"]]] == KubeletSpec().directory
    assert volumes[mounts[kubelet["podResources"].rpartition("/")[0]]] == "/var/lib/kubelet/pod-resources"
    assert mounts[env["FAIRLEAD_STATUS_SOCKET"]["value"].rpartition("/")[0]] == "run"


@pytest.mark.parametrize("word", ["generic", "smarter"])
def test_the_plugins_of_files_are_started_with_their_flags_and_see_the_host(word: str):
    spec = objects(word)["DaemonSet"]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert container["command"] == ["fairlead", word]
    config = read(word, list(map(str, container["args"]))).translate().config
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume.get("hostPath", {}).get("path") for volume in spec["volumes"]}
    for path in (config["kubelet"]["directory"], config["kubelet"]["podResources"].rpartition("/")[0], "/dev"):
        assert volumes[mounts[path]] == path
    assert len(config["rules"]) == 2


def test_amds_daemonset_sees_the_host_and_needs_no_account():
    spec = objects("amd")["DaemonSet"]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert container["command"] == ["fairlead", "amd"]
    meant = read("amd", container["args"]).translate()
    assert meant.notes == ()
    assert not any(key in meant.config for key in ("amounts", "cluster"))
    assert objects("amd").keys() == {"DaemonSet"}
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume.get("hostPath", {}).get("path") for volume in spec["volumes"]}
    kubelet, (backend,) = meant.config["kubelet"], meant.config["backends"]
    for path in (kubelet["directory"], kubelet["podResources"].rpartition("/")[0]):
        assert volumes[mounts[path]] == path
    for path in ("/sys", "/dev"):
        assert volumes[mounts[backend["hostRoot"] + path]] == path
    assert volumes[mounts[EXPORTER_SOCKET.rpartition("/")[0]]] == EXPORTER_SOCKET.rpartition("/")[0]
