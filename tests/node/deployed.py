"""Fairlead as a DaemonSet from the image: its manifest, and how far its roll-out has come."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from tests.node import runtime
from tests.node.rig.api import Api, RefusedError
from tests.node.rig.places import INSIDE
from tests.node.rig.steps import until

SPACE = "fairlead"
SETS = f"/apis/apps/v1/namespaces/{SPACE}/daemonsets"
PODS = f"/api/v1/namespaces/{SPACE}/pods"


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
        "args": ["run", "--config", "/etc/fairlead/fairlead.yaml"],
        "volumeMounts": mounts,
        "readinessProbe": {
            "exec": {"command": ["fairlead", "status"]},
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
    spec["initContainers"] = [
        named("nvidia", command=["nvidia-device-plugin", "--version"]),
        named("amd", command=["./k8s-device-plugin", "--version"], workingDir="/root"),
    ]
    template = {"metadata": {"labels": labels}, "spec": {**spec, "tolerations": [{"operator": "Exists"}]}}
    return {"metadata": {"name": "fairlead"}, "spec": {"selector": {"matchLabels": labels}, "template": template}}


def named(name: str, **how: Any) -> dict[str, Any]:
    """A container as another system's chart calls it, but without root. The pod starts only if it ends well."""
    context = {"runAsUser": 65532, "runAsNonRoot": True, "readOnlyRootFilesystem": True}
    return {"name": name, "image": runtime.NAME, "imagePullPolicy": "Never", "securityContext": context, **how}


def pods(api: Api) -> list[Any]:
    return list(api.get(PODS)["items"])


def wait_rolled_out(api: Api) -> None:
    def done() -> bool:
        one = api.get(f"{SETS}/fairlead")
        status = one["status"]
        fresh = status.get("observedGeneration") == one["metadata"]["generation"]
        return bool(fresh and status.get("updatedNumberScheduled") == 1 and status.get("numberReady") == 1)

    until(lambda: done() and len(pods(api)) == 1, "the DaemonSet is rolled out", 90.0)


def has_account(api: Api) -> bool:
    with suppress(RefusedError):
        return bool(api.get(f"/api/v1/namespaces/{SPACE}/serviceaccounts/default"))
    return False


def is_gone(api: Api) -> bool:
    try:
        api.get(f"/api/v1/namespaces/{SPACE}")
    except RefusedError as refused:
        return refused.code == 404
    return False
