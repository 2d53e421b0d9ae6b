"""A node of a few devices for tests of metrics, and its exposition read back by Prometheus' own parser."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from fairlead.model.device import Device
from fairlead.model.holdings import Holdings, Unknown
from fairlead.model.inventory import Conditions, Inventory
from fairlead.model.names import DeviceId, ResourceName, SlotId
from fairlead.model.resource import Resource, Slot
from fairlead.observe.metrics import render
from fairlead.observe.process import Process
from fairlead.observe.status import BackendStatus, EndpointFacts, Snapshot
from fairlead.observe.totals import Own, Totals
from fairlead.policy.offering.rules import Offering

GPU = ResourceName("example.com/gpu")
NODE = Inventory((Device(DeviceId("g0")), Device(DeviceId("g1"))))
OWN = Own(
    registrations={(GPU, "started"): 1, (GPU, "kubelet-restarted"): 2},
    config_hash="0badcafe",
    config_problem="",
    process=Process(resident_bytes=20_000_000, cpu_seconds=1.5, open_files=12),
)


def snapshot(
    count: int = 4, holdings: Holdings | Unknown | None = None, conditions: Conditions | None = None
) -> Snapshot:
    devices = tuple(Device(DeviceId(f"g{n}"), backend="sim") for n in range(count))
    inventory = Inventory(devices)
    resource = Resource(GPU, tuple(Slot(SlotId(each.id), each.id) for each in devices), inventory)
    endpoint = EndpointFacts(
        list_bytes=100, socket="/x", phase="streaming", since_s=1.0, reason="", attempt=0, problem=""
    )
    return Snapshot(
        pid=1,
        instance="fairlead",
        started_s=1000.0,
        now_s=1010.0,
        monotonic_s=10.0,
        config='a "quoted"\\ path\nof two lines',
        directory="/dp",
        holdings=holdings if holdings is not None else Holdings(),
        holders_problem="",
        backends=(BackendStatus("sim", count, 1001.5, ""),),
        inventory=inventory,
        conditions=conditions or Conditions(),
        offering=Offering((resource,), (), ()),
        endpoints=((resource, endpoint),),
        elsewhere={},
        problems=("one",),
    )


Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def read(now: Snapshot, totals: Totals | None = None, own: Own = OWN) -> Samples:
    text = render(now, totals or Totals(lambda: 0.0), own).decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, frozenset(labels.items())]
