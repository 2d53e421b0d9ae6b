"""Metrics under the names of other systems."""

from __future__ import annotations

from msgspec.structs import replace
from tests.unit.observe.exposed import GPU, NODE, OWN, read, snapshot, value

from fairlead.model.device import Device, Usage
from fairlead.model.holdings import Holder, Holdings, Unknown
from fairlead.model.inventory import Inventory
from fairlead.model.names import DeviceId, ResourceName, SlotId
from fairlead.model.resource import Resource, Slot
from fairlead.observe.journal import Fact
from fairlead.observe.metricnames import HOLDERS_MAX
from fairlead.observe.metrics import render
from fairlead.observe.status import Snapshot
from fairlead.observe.totals import Totals


def test_names_of_the_generic_plugin_are_served_on_request_only():
    totals = Totals(lambda: 0.0)
    totals.note(Fact(0, 0.0, "allocated", {"resource": GPU}))
    assert not any(name.startswith("generic_") for name, _ in read(snapshot(), totals))
    own = replace(OWN, names=("generic",))
    text = render(snapshot(), totals, own).decode()
    assert f'generic_device_plugin_devices{{resource="{GPU}"}} 4' in text
    assert f'generic_device_plugin_allocations_total{{resource="{GPU}"}} 1' in text
    assert f'generic_device_plugin_restarts_total{{resource="{GPU}"}} 2' in text  # of three registrations


def test_the_names_of_gke_leave_out_what_containers_share():
    shared = Resource(GPU, (Slot(SlotId("g0::0"), DeviceId("g0")), Slot(SlotId("g0::1"), DeviceId("g0"))), NODE)
    whole = Resource(ResourceName("example.com/whole"), (Slot(SlotId("g1"), DeviceId("g1")),), NODE)
    endpoint = snapshot().endpoints[0][1]
    held = Holdings(
        {(GPU, SlotId("g0::0")): Holder("ml", "a", "c"), (whole.name, SlotId("g1")): Holder("ml", "b", "c")}
    )
    now = replace(snapshot(2, held), endpoints=((shared, endpoint), (whole, endpoint)))
    own = replace(OWN, names=("gke",), usage={DeviceId(name): Usage(0.5, 1) for name in ("g0", "g1")})
    text = render(now, Totals(lambda: 0.0), own).decode()
    pods = [line for line in text.splitlines() if line.startswith("duty_cycle{")]
    assert len(pods) == 1
    assert 'pod="b"' in pods[0]
    assert pods[0].endswith(" 50")
    assert text.count("duty_cycle_gpu_node{") == 2
    assert f'request{{namespace="ml",pod="a",container="c",resource_name="{GPU}"}} 1' in text


GIB = 1 << 30
MEMORY = ResourceName("aliyun.com/gpu-mem")
HAMI = replace(OWN, names=("hami",), node="n1")


def sharing(held: dict[str, Holder] | None) -> Snapshot:
    """Two GPUs of 4 GiB, shared in units of 1 GiB, beside a GPU that is given as a whole."""
    devices = (
        *(Device(DeviceId(f"g{n}"), index=str(n), model="L4", memory_bytes=4 * GIB) for n in range(2)),
        Device(DeviceId("whole"), memory_bytes=4 * GIB),
    )
    inventory = Inventory(devices)
    units = tuple(Slot(SlotId(f"g{n}::{unit}"), DeviceId(f"g{n}")) for n in range(2) for unit in range(4))
    memory = Resource(MEMORY, units, inventory, unit_bytes=GIB)
    whole = Resource(GPU, (Slot(SlotId("whole"), DeviceId("whole")),), inventory)
    endpoint = snapshot().endpoints[0][1]
    holdings = (
        Unknown("away") if held is None else Holdings({(MEMORY, SlotId(slot)): who for slot, who in held.items()})
    )
    now = replace(snapshot(0, holdings), inventory=inventory)
    return replace(now, endpoints=((memory, endpoint), (whole, endpoint)))


def test_the_names_of_hami_say_what_was_granted_of_memory_that_is_shared():
    train, serve = Holder("ml", "train", "main"), Holder("ml", "serve", "main")
    samples = read(sharing({"g0::0": train, "g0::1": train, "g0::3": serve}), own=HAMI)
    gpu = {"node": "n1", "device_uuid": "g0", "device_index": "0", "device_type": "L4"}
    assert value(samples, "hami_gpu_memory_limit_bytes", **gpu) == 4 * GIB
    assert value(samples, "hami_gpu_memory_allocated_bytes", **gpu) == 3 * GIB
    assert value(samples, "hami_gpu_shared_count", **gpu) == 2
    del gpu["device_type"]
    assert value(samples, "hami_node_gpu_memory_allocated_ratio", **gpu) == 0.75
    pod = {"namespace": "ml", "pod": "train", "container": "main", "device_uuid": "g0"}
    assert value(samples, "hami_vgpu_memory_allocated_bytes", node="n1", **pod) == 2 * GIB
    assert value(samples, "hami_vgpu_memory_limit_bytes", vdevice_index="0", **pod) == 2 * GIB
    assert not any(dict(labels).get("device_uuid") == "whole" for name, labels in samples if name.startswith("hami_"))
    assert not any("used" in name or "utilization" in name for name, _ in samples if name.startswith("hami_"))


def test_a_container_on_two_gpus_has_a_hami_series_for_each():
    who = Holder("ml", "train", "main")
    samples = read(sharing({"g0::0": who, "g1::0": who, "g1::1": who}), own=HAMI)
    pod = {"namespace": "ml", "pod": "train", "container": "main"}
    name = "hami_vgpu_memory_limit_bytes"
    assert value(samples, name, device_uuid="g0", vdevice_index="0", **pod) == GIB
    assert value(samples, name, device_uuid="g1", vdevice_index="1", **pod) == 2 * GIB


def test_grants_count_on_the_gpu_that_the_container_was_really_given():
    now = replace(
        sharing({"g0::0": Holder("ml", "train", "main")}), elsewhere={(MEMORY, SlotId("g0::0")): DeviceId("g1")}
    )
    samples = read(now, own=HAMI)
    granted = {
        dict(labels)["device_uuid"]: count
        for (name, labels), count in samples.items()
        if name == "hami_gpu_memory_allocated_bytes"
    }
    assert granted == {"g0": 0, "g1": GIB}


def test_without_an_answer_of_the_kubelet_grants_are_left_out_of_hamis_names_and_limits_are_not():
    names = {name for name, _ in read(sharing(None), own=HAMI) if name.startswith("hami_")}
    assert names == {"hami_gpu_memory_limit_bytes"}


def test_hamis_names_are_served_on_request_only_and_are_bounded():
    count = HOLDERS_MAX + 5
    devices = (Device(DeviceId("g0"), memory_bytes=count * GIB),)
    slots = tuple(Slot(SlotId(f"g0::{n}"), DeviceId("g0")) for n in range(count))
    memory = Resource(MEMORY, slots, Inventory(devices), unit_bytes=GIB)
    held = Holdings({(MEMORY, slot.id): Holder("ml", f"pod-{n}", "main") for n, slot in enumerate(slots)})
    now = replace(snapshot(0, held), inventory=memory.inventory, endpoints=((memory, snapshot().endpoints[0][1]),))
    assert not any(name.startswith("hami_") for name, _ in read(now))
    samples = read(now, own=replace(HAMI, node=""))
    for name in ("hami_vgpu_memory_allocated_bytes", "hami_vgpu_memory_limit_bytes"):
        assert sum(found == name for found, _ in samples) == HOLDERS_MAX
    assert not any("node" in dict(labels) for _, labels in samples)
