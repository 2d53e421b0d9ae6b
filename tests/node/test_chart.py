"""The Helm chart on a true API server: nothing in it is unknown there, and it installs, serves, upgrades and leaves."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
import yaml

from fairlead.backends.sim.backend import devices_env
from fairlead.programs.manifest.objects import make_objects
from fairlead.programs.manifest.orders import order_of_dialect
from tests.chart import helm, render
from tests.chart.shapes import CASES
from tests.node.charted import (
    RELEASE,
    SPACE,
    WAIT,
    install,
    left_behind,
    only,
    pods,
    run_helm,
    sockets,
    upgrade,
    values,
)
from tests.node.cluster import Cluster
from tests.node.rig.api import Api
from tests.node.rig.places import BIN, KUBECONFIG
from tests.node.rig.steps import until

GPU = "example.com/charted"
CUSTOM = {"PodMonitor", "ServiceMonitor", "PrometheusRule"}  # this cluster does not know them
# What a restricted pod of ours still violates: it mounts directories of the host, which belong to root.
ALLOWED = ("restricted volume types", "runAsNonRoot != true", "runAsUser=0")
RESTRICTED = ("nvidia", "generic", "smarter", "gpushare", "volcano", "doslab", "fairlead")


def given(**more: Any) -> dict[str, Any]:
    return values(GPU, 4, networkPolicy={"enabled": True}, **more)


def dry_run(objects: list[dict[str, Any]]) -> str:
    """What the API server warns of. An unknown field fails."""
    known = [one for one in objects if one["kind"] not in {*CUSTOM, "Namespace"}]
    command = [str(BIN / "kubectl"), f"--kubeconfig={KUBECONFIG}", "apply", "--dry-run=server", "--validate=strict"]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": known})
    done = subprocess.run([*command, "-f", "-"], input=text, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(known)
    return done.stderr


def test_the_api_server_knows_every_field_and_restricted_modes_are_as_restricted_as_they_can_be(space: Api):
    for case, chosen in CASES.items():
        warned = dry_run(helm.objects({**chosen, "namespaceOverride": SPACE}))
        if case in RESTRICTED:
            # Warning: would violate PodSecurity "restricted:latest": reason (details), reason (details)
            reasons = warned.partition('latest": ')[2]
            assert all(word in reasons for word in ALLOWED[:2]), warned
            for word in ("privileged", "allowPrivilegeEscalation", "unrestricted capabilities", "seccompProfile"):
                assert word not in reasons, f"{case}: {warned}"


def test_what_fairlead_prints_without_helm_is_known_too(space: Api):
    for dialect, args in {"nvidia": [], "amd": [], "gke": ["-enable-health-monitoring"], "gpushare": []}.items():
        order = order_of_dialect(dialect, args)
        made = list(make_objects(order))
        for one in made:
            if "namespace" in one["metadata"]:
                one["metadata"]["namespace"] = SPACE
        dry_run(json.loads(json.dumps(made)))


@pytest.mark.usefixtures("image")
def test_installed_it_serves_pods_through_an_upgrade_and_back_and_leaves_nothing_behind(cluster: Cluster, space: Api):
    before = sockets()
    install(given(), *WAIT)
    cluster.wait_numbers(GPU, 4, 4)
    (first,) = pods(space)
    pod = cluster.run_pod("guest", {GPU: 2}, hostNetwork=False)
    held, instance = cluster.ids(pod), pod.container()["containerID"]
    assert pod.env()[devices_env(GPU)] == ",".join(held)

    upgrade(given(podAnnotations={"example.com/release": "2"}), *WAIT)
    (second,) = until(lambda: only(pods(space)), "one pod is left", 60.0)
    assert second["metadata"]["name"] != first["metadata"]["name"]
    assert second["status"]["containerStatuses"][0]["restartCount"] == 0
    cluster.wait_offered(GPU, 4)
    assert (cluster.ids(pod), pod.container()["containerID"]) == (held, instance)

    run_helm("rollback", RELEASE, "1", *WAIT)
    (third,) = until(lambda: only(pods(space)), "one pod is left", 60.0)
    assert third["metadata"]["name"] != second["metadata"]["name"]
    cluster.wait_offered(GPU, 4)
    assert (cluster.ids(pod), pod.container()["containerID"]) == (held, instance)

    cluster.remove_pods()
    run_helm("uninstall", RELEASE, *WAIT)
    until(lambda: not left_behind(space), "everything of the release is gone", 60.0)
    assert sockets() == before


def test_a_bad_value_installs_nothing(space: Api):
    with pytest.raises(helm.HelmError, match="must be one of"):
        install(given(migStrategy="some"))
    assert left_behind(space) == []


def test_every_manifest_is_one_that_kubectl_takes(space: Api):
    for dialect in render.DIALECTS:
        text = (render.MANIFESTS / f"{dialect}.yaml").read_text().replace("namespace: fairlead", f"namespace: {SPACE}")
        dry_run([one for one in yaml.safe_load_all(text) if one])
