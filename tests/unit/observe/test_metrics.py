"""The text of metrics, read back by Prometheus' own parser."""

from __future__ import annotations

from collections.abc import Awaitable

import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families
from tests.unit.observe.exposed import GPU, OWN, read, snapshot, value

from fairlead.model.device import Usage
from fairlead.model.health import Cause, CauseKind, Condition, Health
from fairlead.model.holdings import Holder, Holdings, Unknown
from fairlead.model.inventory import Conditions
from fairlead.model.names import DeviceId, ResourceName, SlotId
from fairlead.observe.journal import Fact
from fairlead.observe.metricnames import HOLDERS_MAX
from fairlead.observe.metrics import render
from fairlead.observe.totals import Totals
from fairlead.policy.cordon import condition_of, make_cordon


def test_every_family_has_help_a_type_and_a_name_by_the_rules():
    families = list(text_string_to_metric_families(render(snapshot(), Totals(lambda: 0.0), OWN).decode()))
    assert len({family.name for family in families}) == len(families)
    for family in families:
        assert family.documentation
        assert family.type in {"gauge", "counter", "histogram"}
        assert family.name.startswith(("fairlead_", "process_"))


def test_labels_with_quotes_backslashes_and_lines_come_back_as_they_were():
    samples = read(snapshot())
    assert value(samples, "fairlead_config_info", source='a "quoted"\\ path\nof two lines', hash="0badcafe") == 1


def test_a_cordon_is_told_apart_from_a_fault():
    cordoned = condition_of(make_cordon("g1", "fan", 1000.0, None), 1000.0, 5.0)
    (labels,) = [
        dict(labels)
        for name, labels in read(snapshot(conditions=Conditions({"g1": cordoned})))
        if name == "fairlead_device_fault"
    ]
    assert (labels["health"], labels["cause"], labels["cure"]) == ("unhealthy", "cordoned", "uncordon")


def test_devices_and_slots_by_state():
    fault = Condition(Health.UNHEALTHY, Cause("xid-79", CauseKind.NEEDS_RESET, "fell off the bus"), 5.0)
    samples = read(snapshot(conditions=Conditions({DeviceId("g1"): fault})))
    assert value(samples, "fairlead_slots", resource=GPU, state="healthy") == 3
    assert value(samples, "fairlead_slots", resource=GPU, state="unhealthy") == 1
    fault_labels = {"health": "unhealthy", "cause": "xid-79", "kind": "needs-reset", "cure": "probes"}
    assert value(samples, "fairlead_device_fault", resource="", device="g1", **fault_labels) == 1
    assert value(samples, "fairlead_device_fault_timestamp_seconds", resource="", device="g1") == 1005.0
    assert value(samples, "fairlead_scan_interval_seconds") == 60
    assert value(samples, "fairlead_backend_scan_timestamp_seconds", backend="sim") == 1001.5
    assert value(samples, "fairlead_registered", resource=GPU) == 1
    assert value(samples, "fairlead_registrations_total", resource=GPU, signal="kubelet-restarted") == 2


def test_holders_are_named_by_slot():
    held = Holdings({(GPU, SlotId("g2")): Holder("ml", "train", "main")})
    samples = read(snapshot(holdings=held))
    labels = {"resource": GPU, "device": "g2", "slot": "g2", "namespace": "ml", "pod": "train", "container": "main"}
    assert value(samples, "fairlead_slot_holder", **labels) == 1
    assert value(samples, "fairlead_slots_held", resource=GPU) == 1
    assert value(samples, "fairlead_slots_free", resource=GPU) == 3
    assert value(samples, "fairlead_holders_known") == 1


def test_slots_held_twice_are_those_of_our_own_resources():
    first = Holder("default", "a", "main")
    twice = {(GPU, SlotId("g1")): first, (ResourceName("other.example/thing"), SlotId("0")): first}
    samples = read(snapshot(holdings=Holdings(dict.fromkeys(twice, Holder("default", "b", "main")), twice=twice)))
    assert value(samples, "fairlead_slots_held_twice") == 1


def test_holders_that_are_not_known_are_left_out_and_not_zero():
    samples = read(snapshot(holdings=Unknown("away")))
    assert not {"fairlead_slots_held", "fairlead_slots_free", "fairlead_slot_holder"} & {name for name, _ in samples}
    assert value(samples, "fairlead_holders_known") == 0


@pytest.mark.parametrize(
    ("cause", "cure"),
    [
        (Cause("x", CauseKind.TRANSIENT), "probes"),
        (Cause("x", CauseKind.NEEDS_RESET), "probes"),
        (Cause("x", CauseKind.NEEDS_RESET, cured_by=("driver", "pci")), "reset"),
        (Cause("x", CauseKind.PERMANENT), "clear"),
    ],
)
def test_a_fault_says_what_ends_it(cause: Cause, cure: str):
    samples = read(snapshot(conditions=Conditions({DeviceId("g1"): Condition(Health.UNHEALTHY, cause, 5.0)})))
    (labels,) = [dict(labels) for name, labels in samples if name == "fairlead_device_fault"]
    assert (labels["kind"], labels["cure"]) == (cause.kind.value, cure)


def test_a_list_that_the_kubelet_would_not_take_is_refused_whether_there_was_one_before_or_not():
    now = snapshot()
    ((resource, endpoint),) = now.endpoints
    assert value(read(now), "fairlead_list_refused", resource=GPU) == 0
    now = replace(now, endpoints=((resource, replace(endpoint, problem="too large")),))
    samples = read(now, own=replace(OWN, refused=("example.com/new",)))
    assert value(samples, "fairlead_list_refused", resource=GPU) == 1
    assert value(samples, "fairlead_list_refused", resource="example.com/new") == 1


def test_what_the_daemon_knows_of_its_configuration_and_of_the_api_server():
    samples = read(snapshot())
    assert value(samples, "fairlead_config_last_reload_successful") == 1
    assert value(samples, "fairlead_config_restart_needed") == 0
    assert not any(name == "fairlead_api_server_answers" for name, _ in samples)
    own = replace(OWN, config_problem="no such key", restart_needed=True, api_server_answers=False)
    samples = read(snapshot(), own=own)
    assert value(samples, "fairlead_config_last_reload_successful") == 0
    assert value(samples, "fairlead_config_restart_needed") == 1
    assert value(samples, "fairlead_api_server_answers") == 0


def test_counters_are_zero_before_the_first_event():
    """Prometheus sees no increase in a series that begins with 1."""
    samples = read(snapshot())
    for result in ("granted", "refused"):
        assert value(samples, "fairlead_allocations_total", resource=GPU, result=result) == 0
    assert value(samples, "fairlead_prepares_total", resource=GPU, result="failed") == 0
    assert value(samples, "fairlead_assignments_total", resource=GPU, result="wrong") == 0
    for event in ("call-failed", "endpoint-crashed", "loop-error", "task-crashed"):
        assert value(samples, "fairlead_defects_total", event=event) == 0
    assert value(samples, "fairlead_recoveries_total") == 0
    assert value(samples, "fairlead_loop_blocked_seconds_total") == 0


def test_series_with_pods_are_bounded_and_the_rest_is_counted():
    count = HOLDERS_MAX + 7
    held = Holdings({(GPU, SlotId(f"g{n}")): Holder("ml", f"pod-{n}", "main") for n in range(count)})
    samples = read(snapshot(count, held))
    assert sum(name == "fairlead_slot_holder" for name, _ in samples) == HOLDERS_MAX
    assert value(samples, "fairlead_slot_holders_omitted") == 7


def test_totals_are_counted_from_facts():
    totals = Totals(lambda: 0.0)
    for kind, keys in (
        ("allocated", {"resource": GPU}),
        ("allocated", {"resource": GPU}),
        ("allocate-refused", {"resource": GPU}),
        ("unhealthy", {"was": "healthy", "cause": "xid-79: fell off the bus"}),
        ("healthy", {"was": "probation", "cause": ""}),
        ("healthy", {"was": "suspect", "cause": ""}),
        ("streaming", {"resource": GPU}),
        ("prepare-failed", {"resource": GPU}),
        ("assignment-missing", {"resource": GPU}),
        ("task-crashed", {"task": "sockets"}),
        ("loop-resumed", {"seconds": 2.5}),
    ):
        totals.note(Fact(0, 1000.25, kind, keys))
    samples = read(snapshot(), totals)
    assert value(samples, "fairlead_allocations_total", resource=GPU, result="granted") == 2
    assert value(samples, "fairlead_allocations_total", resource=GPU, result="refused") == 1
    assert value(samples, "fairlead_faults_total", cause="xid-79") == 1
    assert value(samples, "fairlead_recoveries_total") == 1
    assert value(samples, "fairlead_first_list_seconds") == 0.25
    assert value(samples, "fairlead_prepares_total", resource=GPU, result="failed") == 1
    assert value(samples, "fairlead_assignments_total", resource=GPU, result="missing") == 1
    assert value(samples, "fairlead_defects_total", event="task-crashed") == 1
    assert value(samples, "fairlead_loop_blocked_seconds_total") == 2.5


def test_causes_without_end_become_one_series():
    totals = Totals(lambda: 0.0)
    for number in range(1000):
        totals.note(Fact(0, 0.0, "unhealthy", {"cause": f"made-up-{number}: x"}))
    assert len(totals.faults) <= 201
    assert sum(totals.faults.values()) == 1000


def test_use_is_said_where_it_is_known():
    own = replace(OWN, usage={DeviceId("g0"): Usage(0.75, 1 << 30), DeviceId("g1"): Usage()})
    text = render(snapshot(), Totals(lambda: 0.0), own).decode()
    assert 'fairlead_device_utilization_ratio{device="g0"} 0.75' in text
    assert 'fairlead_device_memory_used_bytes{device="g0"} 1073741824' in text
    assert 'device="g1"' not in text


class Ticking:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        self.now_s += 0.002
        return self.now_s


async def test_calls_are_timed_whether_they_answer_at_once_later_or_not_at_all():
    totals = Totals(Ticking())

    def fail(_request: str) -> str:
        raise ValueError("no")

    async def later(request: str) -> str:
        return request

    def now_or_later(request: str) -> Awaitable[str]:
        return later(request)

    assert totals.timed("Allocate", lambda request: request)("x") == "x"
    assert await totals.timed("Allocate", now_or_later)("y") == "y"
    with pytest.raises(ValueError, match="no"):
        totals.timed("Allocate", fail)("z")
    samples = read(snapshot(), totals)
    assert value(samples, "fairlead_call_duration_seconds_count", method="Allocate") == 3
    assert value(samples, "fairlead_call_duration_seconds_bucket", method="Allocate", le="0.001") == 0
    assert value(samples, "fairlead_call_duration_seconds_bucket", method="Allocate", le="0.0025") == 3
    assert value(samples, "fairlead_call_duration_seconds_sum", method="Allocate") == pytest.approx(0.006)
