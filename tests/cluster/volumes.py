"""Volumes that are made after kube-scheduler has chosen a node. Until then it does not bind the pod."""

from __future__ import annotations

from typing import Any

from fairlead.cluster.client import AnyObject
from fairlead.cluster.kinds import Kind
from fairlead.cluster.patches import MergePatch
from tests.cluster.plane import Object, Plane

CLAIMS = Kind("", "v1", "persistentvolumeclaims", namespaced=True)
VOLUMES = Kind("", "v1", "persistentvolumes")
STORAGE_CLASSES = Kind("storage.k8s.io", "v1", "storageclasses")
CLASS = "late"
CHOSEN = "volume.kubernetes.io/selected-node"


def late_class() -> Object:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": CLASS},
        "provisioner": "example.com/late",
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def claim(name: str) -> Object:
    wanted = {"requests": {"storage": "1Gi"}}
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": CLASS, "resources": wanted}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}


def volume(name: str) -> dict[str, Any]:
    """For the spec of a pod."""
    return {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]}


async def chosen(plane: Plane) -> list[Object]:
    """Claims for which kube-scheduler has chosen a node."""
    listed = await plane.client.list(CLAIMS, dict[str, Any], namespace="default")
    return [one for one in listed.items if CHOSEN in one["metadata"].get("annotations", {})]


async def provide(plane: Plane, wanted: Object) -> None:
    """What a provisioner and the controller of volumes do, where kwok does not."""
    meta = wanted["metadata"]
    name = f"of-{meta['uid']}"
    whose = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default"}
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "persistentVolumeReclaimPolicy": "Delete",
        "storageClassName": CLASS,
        "hostPath": {"path": "/nowhere"},
        "claimRef": {**whose, "name": meta["name"], "uid": meta["uid"]},
    }
    made = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}
    await plane.create(VOLUMES, [made])
    done = {"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}, "spec": {"volumeName": name}}
    await plane.client.patch(CLAIMS, meta["name"], MergePatch(done), AnyObject, namespace="default")
    status = {"status": {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}}
    await plane.client.patch(
        CLAIMS, meta["name"], MergePatch(status), AnyObject, namespace="default", subresource="status"
    )
