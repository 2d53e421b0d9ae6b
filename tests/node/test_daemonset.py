"""Fairlead as people would deploy it: a DaemonSet from an image, with as few rights as it needs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fairlead.backends.sim.backend import devices_env
from tests.node import runtime
from tests.node.cluster import Cluster
from tests.node.daemon import HEALTH
from tests.node.rig.api import Api, RefusedError
from tests.node.rig.images import load
from tests.node.rig.node import start_kubelet, stop_kubelet
from tests.node.rig.places import INSIDE
from tests.node.rig.steps import until

SPACE = "fairlead"
GPU = "example.com/deployed"
SETS = f"/apis/apps/v1/namespaces/{SPACE}/daemonsets"
PODS = f"/api/v1/namespaces/{SPACE}/pods"
PATCH = "application/merge-patch+json"
CONFIG = {
    "backends": [{"kind": "sim", "fleet": {"name": "deployed", "devices": [{"count": 4, "id": "deployed-{i}"}]}}],
    "rules": [{"resource": GPU}],
    "health": HEALTH,
}


def manifest() -> dict[str, Any]:
    """No capability, no privilege, a read-only root, no account of its own: two directories of the host are enough."""
    host = {"plugins": INSIDE / "device-plugins", "pod-resources": INSIDE / "pod-resources"}
    volumes: list[dict[str, Any]] = [{"name": name, "hostPath": {"path": str(path)}} for name, path in host.items()]
    mounts: list[dict[str, Any]] = [{"name": name, "mountPath": str(path)} for name, path in host.items()]
    volumes += [{"name": "config", "configMap": {"name": "fairlead"}}, {"name": "run", "emptyDir": {}}]
    mounts += [{"name": "config", "mountPath": "/etc/fairlead"}, {"name": "run", "mountPath": "/run/fairlead"}]
    container = {
        "name": "fairlead",
        "image": runtime.NAME,
        "imagePullPolicy": "Never",
        "volumeMounts": mounts,
        "readinessProbe": {
            "exec": {"command": [f"/{runtime.PYTHON}", "-m", "fairlead", "status"]},
            "periodSeconds": 1,
            "timeoutSeconds": 10,
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    labels = {"app": "fairlead"}
    spec = {"containers": [container], "volumes": volumes, "automountServiceAccountToken": False}
    template = {"metadata": {"labels": labels}, "spec": {**spec, "tolerations": [{"operator": "Exists"}]}}
    return {"metadata": {"name": "fairlead"}, "spec": {"selector": {"matchLabels": labels}, "template": template}}


def pods(api: Api) -> list[Any]:
    return list(api.get(PODS)["items"])


def wait_rolled_out(api: Api) -> None:
    def done() -> bool:
        one = api.get(f"{SETS}/fairlead")
        status = one["status"]
        fresh = status.get("observedGeneration") == one["metadata"]["generation"]
        return bool(fresh and status.get("updatedNumberScheduled") == 1 and status.get("numberReady") == 1)

    until(lambda: done() and len(pods(api)) == 1, "the DaemonSet is rolled out", 90.0)


@pytest.fixture
def deployed(cluster: Cluster, tmp_path: Path) -> Iterator[Api]:
    api = cluster.api
    load(runtime.make(tmp_path))
    api.call("POST", "/api/v1/namespaces", {"metadata": {"name": SPACE}})
    try:
        until(lambda: _has_account(api), "the namespace has its account")
        text = {"fairlead.yaml": json.dumps(CONFIG)}
        api.call("POST", f"/api/v1/namespaces/{SPACE}/configmaps", {"metadata": {"name": "fairlead"}, "data": text})
        api.call("POST", SETS, manifest())
        wait_rolled_out(api)
        yield api
    finally:
        for path in (f"{SETS}/fairlead", f"/api/v1/namespaces/{SPACE}"):
            with suppress(RefusedError):
                api.call("DELETE", path)
        until(lambda: _is_gone(api), "the namespace is gone", 90.0)


def test_a_daemonset_serves_pods_through_a_rolling_update_and_a_kubelet_restart(cluster: Cluster, deployed: Api):
    cluster.wait_numbers(GPU, 4, 4)
    pod = cluster.run_pod("guest", {GPU: 2}, hostNetwork=False)
    held, instance = cluster.ids(pod), pod.container()["containerID"]
    assert pod.env()[devices_env(GPU)] == ",".join(held)

    (before,) = pods(deployed)
    change = {"spec": {"template": {"metadata": {"annotations": {"example.com/release": "2"}}}}}
    deployed.call("PATCH", f"{SETS}/fairlead", change, PATCH)
    wait_rolled_out(deployed)
    (after,) = pods(deployed)
    assert after["metadata"]["name"] != before["metadata"]["name"]
    cluster.wait_offered(GPU, 4)

    stop_kubelet()
    start_kubelet()
    cluster.wait_offered(GPU, 4)
    (same,) = pods(deployed)
    assert same["metadata"]["name"] == after["metadata"]["name"]
    assert same["status"]["containerStatuses"][0]["restartCount"] == 0
    assert (cluster.ids(pod), pod.container()["containerID"]) == (held, instance)


def _has_account(api: Api) -> bool:
    with suppress(RefusedError):
        return bool(api.get(f"/api/v1/namespaces/{SPACE}/serviceaccounts/default"))
    return False


def _is_gone(api: Api) -> bool:
    try:
        api.get(f"/api/v1/namespaces/{SPACE}")
    except RefusedError as refused:
        return refused.code == 404
    return False
