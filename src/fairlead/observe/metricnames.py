"""Metrics under the names of other systems, for dashboards and alerts that exist. Served on request only.

Owns these names, their labels and their bounds. What an existing name would have to invent is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from fairlead.model.device import Device
from fairlead.model.holdings import Holder, Holdings
from fairlead.model.names import DeviceId
from fairlead.observe.exposition import Exposition, Label
from fairlead.observe.status import Snapshot, Status
from fairlead.observe.totals import Own, Totals

HOLDERS_MAX = 2_000  # series that name a pod, for each name; a node with more holders counts the rest


def render_generic(page: Exposition, status: Status, totals: Totals, own: Own) -> None:
    """The names of squat's generic-device-plugin. A registration after the first is a restart there."""
    registered = Counter[str]()
    for (name, _signal), count in own.registrations.items():
        registered[name] += count
    for name, kind, text, values in (
        ("devices", "gauge", "The devices that a resource offers.", {r.name: r.slots for r in status.resources}),
        (
            "allocations_total",
            "counter",
            "Allocate calls that were granted.",
            {r.name: totals.allocations[r.name, "granted"] for r in status.resources},
        ),
        (
            "restarts_total",
            "counter",
            "Registrations after the first.",
            {r.name: max(0, registered[r.name] - 1) for r in status.resources},
        ),
    ):
        samples = [([("resource", resource)], value) for resource, value in values.items()]
        page.family(f"generic_device_plugin_{name}", kind, text, samples)


def render_gke(page: Exposition, now: Snapshot, own: Own) -> None:
    """The names of Google's plugin: of each GPU, and again for the container that has the whole of it."""
    holders = now.holdings.by_slot if isinstance(now.holdings, Holdings) else {}
    requests, owners = Counter[tuple[Holder, str]](), dict[DeviceId, Holder]()
    for resource, _ in now.endpoints:
        for slot in resource.slots:
            if (holder := holders.get((resource.name, slot.id))) is not None:
                requests[holder, resource.name] += 1
                if len(resource.slots_of[slot.device]) == 1:  # a share says nothing of what its container uses
                    owners[slot.device] = holder
    page.family(
        "request",
        "gauge",
        "Devices that a container asked for.",
        [
            ([*_owner(holder), ("resource_name", name)], count)
            for (holder, name), count in requests.most_common(HOLDERS_MAX)
        ],
    )
    for name, text, values in _gke_values(now, own):
        known = [(each.id, _accelerator(each)) for each in now.inventory.devices if each.id in values]
        page.family(f"{name}_gpu_node", "gauge", text, [(labels, values[device]) for device, labels in known])
        page.family(
            name,
            "gauge",
            f"{text} By the container that has it.",
            [([*_owner(owners[device]), *labels], values[device]) for device, labels in known if device in owners],
        )


def _gke_values(now: Snapshot, own: Own) -> Iterable[tuple[str, str, Mapping[DeviceId, float]]]:
    usage = own.usage.items()
    duty = {device: 100 * use.utilization for device, use in usage if use.utilization is not None}
    used = {device: use.memory_used_bytes for device, use in usage if use.memory_used_bytes is not None}
    yield "duty_cycle", "Percent of time in which the GPU was busy.", duty
    yield "memory_used", "Memory of the GPU that is in use, in bytes.", used
    total = {each.id: each.memory_bytes for each in now.inventory.devices if each.memory_bytes}
    yield "memory_total", "Memory of the GPU, in bytes.", total


def render_hami(page: Exposition, now: Snapshot, own: Own) -> None:
    """The names of HAMi's scheduler and monitor: memory that can be granted and was, never what is in use.

    Of devices whose memory is shared. HAMi counts cores too, and numbers containers; neither is known here.
    """
    holders = now.holdings.by_slot if isinstance(now.holdings, Holdings) else {}
    limits, granted = Counter[DeviceId](), Counter[tuple[DeviceId, Holder]]()
    for resource, _ in now.endpoints:
        for slot in resource.slots if resource.unit_bytes else ():
            device = now.elsewhere.get((resource.name, slot.id), slot.device)
            limits[slot.device] += resource.unit_bytes if slot.retired_s is None else 0
            if (holder := holders.get((resource.name, slot.id))) is not None:
                granted[device, holder] += resource.unit_bytes
    node: list[Label] = [("node", own.node)] if own.node else []
    shared = [each for each in now.inventory.devices if each.id in limits]
    page.family(
        "hami_gpu_memory_limit_bytes",
        "gauge",
        "Memory of a GPU that containers can be granted.",
        [([*node, *_hami_device(each), ("device_type", each.model)], limits[each.id]) for each in shared],
    )
    if not isinstance(now.holdings, Holdings):
        return
    by_device, containers = Counter[DeviceId](), Counter[DeviceId]()
    for (device, _holder), count in granted.items():
        by_device[device] += count
        containers[device] += 1
    for name, text, values in (
        ("gpu_memory_allocated_bytes", "Memory of a GPU that containers were granted.", by_device),
        ("gpu_shared_count", "Containers that share a GPU.", containers),
    ):
        samples = [([*node, *_hami_device(each), ("device_type", each.model)], values[each.id]) for each in shared]
        page.family(f"hami_{name}", "gauge", text, samples)
    page.family(
        "hami_node_gpu_memory_allocated_ratio",
        "gauge",
        "Share of the memory of a GPU that containers were granted, from 0 to 1.",
        [([*node, *_hami_device(each)], by_device[each.id] / limits[each.id]) for each in shared if limits[each.id]],
    )
    grants = list(granted.items())[:HOLDERS_MAX]
    page.family(
        "hami_vgpu_memory_allocated_bytes",
        "gauge",
        f"Memory of a GPU that a container was granted; {HOLDERS_MAX} series at most.",
        [([*node, *_owner(holder), ("device_uuid", device)], count) for (device, holder), count in grants],
    )
    page.family(
        "hami_vgpu_memory_limit_bytes",
        "gauge",
        f"Memory of a GPU that a container was granted, as its limit; {HOLDERS_MAX} series at most.",
        [
            ([*_owner(holder), ("vdevice_index", str(number)), ("device_uuid", device)], count)
            for number, device, holder, count in _numbered(grants)
        ],
    )


def _numbered(
    grants: Iterable[tuple[tuple[DeviceId, Holder], int]],
) -> Iterator[tuple[int, DeviceId, Holder, int]]:
    """With the number of each device in its container."""
    seen = Counter[Holder]()
    for (device, holder), count in grants:
        yield seen[holder], device, holder, count
        seen[holder] += 1


def _hami_device(device: Device) -> list[Label]:
    return [("device_uuid", device.id), ("device_index", device.index)]


def _accelerator(device: Device) -> list[Label]:
    return [
        ("make", device.vendor),
        ("accelerator_id", device.attributes.get("gpu", device.id)),
        ("model", device.model),
    ]


def _owner(holder: Holder) -> list[Label]:
    return [("namespace", holder.namespace), ("pod", holder.pod), ("container", holder.container)]
