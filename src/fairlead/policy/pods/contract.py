"""Contracts: what a sharing system calls its resources, labels and annotations. Data, one value for each system."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct


class Contract(Struct, frozen=True, kw_only=True):
    """How pods of one resource ask, how nodes offer, and what is written on a pod that was placed."""

    resource: str  # of a pod's containers, and of the node
    count: str = ""  # of the node: how many devices there are, for nodes that tell no more
    small_unit: str = "GiB"  # of memory, where a device has few
    whole: bool = False  # a unit is a whole device
    devices: str = ""  # those of one name are on the same devices: what one has taken whole the others cannot give
    capacity: bool = False  # what the node has counts, and not what of it may be given to pods
    # Annotations of a pod.
    device: str  # index or id of its device; several with commas between them
    by_id: bool = False
    per_container: str = ""  # JSON: {number of the container: {index: units}}
    also_read: tuple[str, ...] = ()  # JSON of that form, under names that we do not write
    pod_units: str = ""
    device_units: str = ""
    time: str  # nanoseconds
    assigned: str = ""  # "false" until the pod has its devices
    actual: str = ""  # the daemon's: JSON, {name of the container: {device: units}}, where it has other devices
    # Labels.
    devices_label: str = ""  # of a pod: on how many devices its units are
    whole_label: tuple[str, str] = ("", "")  # of a pod, with its value: only devices that no other pod has
    preference_label: str = ""  # of a node: binpack or spread
    pods_max_label: str = ""  # of a node: pods of one device
    # In kube-system: with the node's name behind it, a ConfigMap whose `gpus` lists the indexes of unusable devices.
    unhealthy_map: str = ""
    # Words that clients of the other system look for in a refusal.
    too_small: str = "no single device has room"
    not_offered: str = "the node does not offer {resource}"


# On a pod that has another GPU than the scheduler chose. Aliyun's extender books a pod once and releases it by what its
# annotation says then; doslab's scheduler books GPU objects. Neither sees that an annotation was changed.
ACTUAL = "fairlead.dev/actual-device"
_ALIYUN = "ALIYUN_COM_GPU_MEM_"
GPUSHARE = Contract(
    resource="aliyun.com/gpu-mem",
    count="aliyun.com/gpu-count",
    capacity=True,
    device=f"{_ALIYUN}IDX",
    per_container="scheduler.framework.gpushare.allocation",
    also_read=("gpushare.alibabacloud.com/gpumemory",),
    pod_units=f"{_ALIYUN}POD",
    device_units=f"{_ALIYUN}DEV",
    time=f"{_ALIYUN}ASSUME_TIME",
    assigned=f"{_ALIYUN}ASSIGNED",
    actual=ACTUAL,
    devices_label="aliyun.com/gpu-count",
    whole_label=("ack.gpushare.placement", "require-whole-device"),
    preference_label="ack.node.gpu.placement",
    pods_max_label="ack.node.gpu.max-pod",
    unhealthy_map="unhealthy-gpu-",
    too_small="Insufficient GPU Memory in one device",
    not_offered="The node {node} is not for GPU share, need skip",
)
VOLCANO_MEMORY = Contract(
    resource="volcano.sh/gpu-memory",
    count="volcano.sh/gpu-number",
    small_unit="blocks",  # as large as --gpu-memory-factor says, and only a node with Fairlead publishes it
    devices="volcano",
    device="volcano.sh/gpu-index",
    time="volcano.sh/predicate-time",
)
VOLCANO_NUMBER = Contract(
    resource="volcano.sh/gpu-number",
    whole=True,
    devices="volcano",
    device="volcano.sh/gpu-index",
    time="volcano.sh/predicate-time",
)
DOSLAB = Contract(
    resource="doslab.io/gpu-memory",
    count="doslab.io/gpu-count",
    device="doslab.io/gpu-uuid",
    by_id=True,
    time="doslab.io/gpu-assume-time",
    assigned="doslab.io/gpu-assigned",
    actual=ACTUAL,
)
KNOWN: Mapping[str, tuple[Contract, ...]] = {
    "gpushare": (GPUSHARE,),
    "volcano": (VOLCANO_MEMORY, VOLCANO_NUMBER),
    "doslab": (DOSLAB,),
}


def native(resource: str, count: str = "") -> Contract:
    """Our own, for memory shared under any name."""
    prefix = "scheduler.fairlead/"
    return Contract(
        resource=resource,
        count=count,
        device=f"{prefix}device",
        per_container=f"{prefix}allocation",
        time=f"{prefix}time",
        assigned=f"{prefix}assigned",
        devices_label=f"{prefix}devices",
        whole_label=(f"{prefix}placement", "whole"),
        preference_label=f"{prefix}placement",
        pods_max_label=f"{prefix}pods-per-device",
    )
