"""The status as it is made of a snapshot, sent as JSON, and read by an older or a newer command."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from fairlead.model.device import Device
from fairlead.model.errors import FairleadError
from fairlead.model.health import Cause, CauseKind, Condition, Health
from fairlead.model.holdings import Holder, Holdings, Unknown
from fairlead.model.inventory import Conditions, Inventory
from fairlead.model.names import DeviceId, ResourceName, SlotId
from fairlead.observe.status import BackendStatus, EndpointFacts, Snapshot, Status, decode, make_status
from fairlead.policy.offering.rules import ANY, Rule, make_offering

GPU = ResourceName("nvidia.com/gpu")
A, B = (Device(DeviceId(name), index=str(number)) for number, name in enumerate("ab"))
BROKEN = Condition(Health.UNHEALTHY, Cause("xid-79", CauseKind.PERMANENT, "it fell off the bus"), since_s=40.0)
INVENTORY = Inventory((A, B))
ENDPOINT = EndpointFacts(list_bytes=9, socket="/s", phase="streaming", since_s=1000.0, reason="", attempt=0, problem="")


def snapshot(**other: Any) -> Snapshot:
    offering = make_offering(INVENTORY, (Rule(ANY, GPU),))
    made = Snapshot(
        pid=1,
        instance="fairlead",
        started_s=900.0,
        now_s=1000.0,
        monotonic_s=50.0,
        config="f.yaml",
        directory="/d",
        holdings=Holdings({(GPU, SlotId("a")): Holder("default", "p", "main")}),
        holders_problem="",
        backends=(BackendStatus("sim", 2, 999.0, ""),),
        inventory=INVENTORY,
        conditions=Conditions({B.id: BROKEN}),
        offering=offering,
        endpoints=tuple((resource, ENDPOINT) for resource in offering.resources),
        elsewhere={},
        problems=(),
    )
    return replace(made, **other)


def test_slots_holders_and_health_are_counted_by_resource_and_by_device():
    status = make_status(snapshot())
    (resource,) = status.resources
    assert (resource.name, resource.slots, resource.healthy, resource.held) == (GPU, 2, 1, 1)
    first, second = status.devices
    assert (first.held, first.holders, first.health) == (1, ("default/p/main",), "healthy")
    assert (second.held, second.health, second.cause) == (0, "unhealthy", "xid-79: it fell off the bus")
    assert second.since_s == 990.0  # in wall time: 10 s ago
    assert not status.healthy


def test_a_slot_is_free_when_it_is_usable_and_not_held():
    held = Holdings({(GPU, SlotId("b")): Holder("default", "p", "main")})
    (resource,) = make_status(snapshot(holdings=held)).resources
    assert (resource.slots, resource.healthy, resource.held, resource.free) == (2, 1, 1, 1)  # the one held is broken
    (resource,) = make_status(snapshot()).resources
    assert resource.free == 0


def test_a_holder_is_shown_at_the_device_that_its_container_was_given():
    first, second = make_status(snapshot(elsewhere={(GPU, SlotId("a")): B.id})).devices
    assert (first.holders, second.holders) == ((), ("default/p/main",))


def test_it_is_healthy_when_all_is_registered_and_healthy_and_something_is_offered():
    good = snapshot(conditions=Conditions())
    assert make_status(good).healthy
    assert not make_status(replace(good, problems=("a problem",))).healthy
    assert not make_status(replace(good, endpoints=())).healthy
    waiting = replace(ENDPOINT, phase="backoff")
    assert not make_status(replace(good, endpoints=tuple((each, waiting) for each, _ in good.endpoints))).healthy


def test_holders_that_are_not_known_are_not_the_same_as_none():
    status = make_status(snapshot(holdings=Unknown("no socket"), holders_problem="no socket"))
    assert (status.holders_known, status.holders_problem) == (False, "no socket")


def test_json_keeps_its_keys_and_is_read_back():
    """Users read them."""
    status = make_status(snapshot())
    sent = json.loads(msgspec.json.encode(status))
    assert " ".join(sent) == (
        "version pid instance started_s now_s config directory holders_known holders_problem backends devices resources"
        " cordons doctor storms problems"
    )
    assert " ".join(sorted(sent["devices"][0])) == (
        "backend cause cured_by health held holders id index memory_bytes model nodes numa_nodes parent pci_address"
        " resource rule since_s slots vendor"
    )
    assert " ".join(sorted(sent["resources"][0])) == (
        "attempt free healthy held list_bytes name note phase placement problem reason retired since_s slots socket"
        " stall stall_long stall_s unit_bytes wish_bytes"
    )
    assert decode(sent, Status) == status


def test_fields_of_a_newer_daemon_are_ignored_and_missing_ones_are_explained():
    sent = json.loads(msgspec.json.encode(make_status(snapshot())))
    sent["devices"][0]["temperature"] = 40
    assert decode({**sent, "uptime": 1}, Status) == make_status(snapshot())
    del sent["pid"]
    with pytest.raises(FairleadError, match=r"not understood: .*`pid`.* another version"):
        decode(sent, Status)


def test_a_slot_that_two_pods_hold_is_a_problem_of_its_resource_only():
    p, q = Holder("default", "p", "main"), Holder("default", "q", "main")
    keys = (GPU, SlotId("a")), (ResourceName("example.com/other"), SlotId("a"))
    made = make_status(snapshot(holdings=Holdings(dict.fromkeys(keys, q), dict.fromkeys(keys, p))))
    assert [problem.partition(": the kubelet")[0] for problem in made.problems] == [
        "nvidia.com/gpu: a is held by default/p/main and by default/q/main"
    ]
