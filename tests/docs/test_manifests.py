"""The manifests in the guides: exactly the rights that the features need, flags that are taken, the right places."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
import yaml
from tests.docs.blocks import ROOT, read_blocks

from fairlead.cluster.rbac import FEATURES, Rule
from fairlead.dialects.order import Order

RIGHTS = {
    "doslab": "`fairlead doslab`, `fairlead gpushare`",
    "gpushare": "`fairlead doslab`, `fairlead gpushare`",
    "volcano": "`fairlead volcano`",
}
ENV = {"NODE_NAME": "n1"}


def objects(word: str) -> dict[str, Any]:
    """What `kubectl apply` would make, by kind."""
    page = ROOT / "docs" / "guide" / f"{word}.md"
    (block,) = [block for block in read_blocks(page) if block.word == f"{word}-daemonset.yaml"]
    return {made["kind"]: made for made in yaml.safe_load_all(block.text)}


def read(word: str, args: list[str]) -> Order:
    order: Order = import_module(f"fairlead.dialects.{word}.meaning").read(args, ENV)
    return order


@pytest.fixture(params=sorted(RIGHTS))
def word(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_the_account_may_do_what_is_needed_and_no_more(word: str):
    role = objects(word)["ClusterRole"]
    given = {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert given == {(rule.group, rule.resource, verb) for rule in FEATURES[RIGHTS[word]] for verb in rule.verbs}


def test_the_account_is_the_pods(word: str):
    made = objects(word)
    account = made["ServiceAccount"]["metadata"]
    subject = {"kind": "ServiceAccount", "name": account["name"], "namespace": account["namespace"]}
    assert made["ClusterRoleBinding"]["subjects"] == [subject]
    assert made["ClusterRoleBinding"]["roleRef"]["name"] == made["ClusterRole"]["metadata"]["name"]
    assert made["DaemonSet"]["metadata"]["namespace"] == account["namespace"]
    assert made["DaemonSet"]["spec"]["template"]["spec"]["serviceAccountName"] == account["name"]


def test_the_features_are_those_that_the_configuration_uses(word: str):
    """Who adds a feature to a dialect must give its account the rights."""
    config = read(word, []).meant().config
    assign = config["rules"][0]["assign"]
    used = ["the daemon with `assign`", "the daemon with `amounts`"]
    used += [f"the daemon with `assign.{key}`" for key in ("nodeEnv", "nodeLock") if key in assign]
    used += ["the daemon with `cluster.unhealthy`"] if "unhealthy" in config.get("cluster", {}) else []
    assert set(FEATURES[RIGHTS[word]]) == {rule for feature in used for rule in FEATURES[feature]}
    assert all(isinstance(rule, Rule) for rule in FEATURES[RIGHTS[word]])


def test_the_container_is_started_as_the_dialect_wants_it(word: str):
    spec = objects(word)["DaemonSet"]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert container["command"] == ["fairlead", word]
    meant = read(word, list(map(str, container.get("args", [])))).meant()
    assert meant.notes == ()
    env = {entry["name"]: entry for entry in container["env"]}
    assert env["NODE_NAME"]["valueFrom"]["fieldRef"]["fieldPath"] == "spec.nodeName"
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume.get("hostPath", {}).get("path") for volume in spec["volumes"]}
    kubelet = meant.config["kubelet"]
    for path in (kubelet["directory"], kubelet["podResources"].rpartition("/")[0]):
        assert volumes[mounts[path]] == path
    assert mounts[env["FAIRLEAD_STATUS_SOCKET"]["value"].rpartition("/")[0]] == "run"
