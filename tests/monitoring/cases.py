"""Each alert as a story: the series of a node, minute by minute, and when the alert must be silent, fire and be over.

Values are in promtool's notation: `0x9` is 0 for ten minutes, `1+0x9` too; `_` is no sample.
"""

from __future__ import annotations

from typing import NamedTuple

HERE = 'job="plugin", instance="n1"'
UP = {f"up{{{HERE}}}": "1x120", f'fairlead_build_info{{{HERE}, version="1"}}': "1x120"}


class Case(NamedTuple):
    series: dict[str, str]  # beside those of a daemon that is up
    fires: int  # minute of the hour
    labels: dict[str, str]  # of the alert, beside alertname and severity
    over: int = 50
    quiet: int = 9  # before the fault


def level(healthy: int, faulty: int) -> str:
    """Healthy for ten minutes, faulty for thirty, healthy again."""
    return f"{healthy}x9 {faulty}x29 {healthy}x20"


def gauge(name: str, healthy: int, faulty: int, **labels: str) -> dict[str, str]:
    return {series(name, **labels): level(healthy, faulty)}


def counter(name: str, more: int, **labels: str) -> dict[str, str]:
    """Grows at minute 10, at once."""
    return {series(name, **labels): f"0x9 {more}x50"}


def series(name: str, **labels: str) -> str:
    text = "".join(f', {key}="{value}"' for key, value in labels.items())
    return f"{name}{{{HERE}{text}}}"


def fault(health: str, cure: str, kind: str = "needs-reset") -> dict[str, str]:
    labels = {"resource": "x/gpu", "device": "g0", "health": health, "cause": "c", "kind": kind, "cure": cure}
    return {series("fairlead_device_fault", **labels): "_x9 1x29 _x20"}


NODE = {"job": "plugin", "instance": "n1"}
GPU = {"resource": "x/gpu"}
FAULT = {**NODE, **GPU, "device": "g0", "cause": "c"}
HOLDER = {"namespace": "ml", "pod": "train", "container": "main"}

CASES: dict[str, Case] = {
    "FairleadAbsent": Case({}, 25, {}),
    "FairleadDown": Case({}, 16, NODE),
    "FairleadRestarting": Case(
        {series("process_start_time_seconds"): "10x9 20x0 30x0 40x0 50x0 60x100"}, 15, NODE, over=100
    ),
    "FairleadConfigRefused": Case(gauge("fairlead_config_last_reload_successful", 1, 0), 16, NODE),
    "FairleadConfigRestartNeeded": Case({series("fairlead_config_restart_needed"): "0x9 1x35 0x20"}, 44, NODE, over=60),
    "FairleadApiServerAway": Case(gauge("fairlead_api_server_answers", 1, 0), 16, NODE),
    "FairleadEventLoopBlocked": Case(counter("fairlead_loop_blocked_seconds_total", 7), 12, NODE),
    "FairleadDefect": Case(
        counter("fairlead_defects_total", 1, event="call-failed"), 12, {**NODE, "event": "call-failed"}, over=75
    ),
    "FairleadProblem": Case({series("fairlead_problems"): "0x9 2x35 0x20"}, 44, NODE, over=60),
    "FairleadDeviceNeedsReset": Case(
        fault("unhealthy", "reset"), 12, {**FAULT, "health": "unhealthy", "kind": "needs-reset", "cure": "reset"}
    ),
    "FairleadDeviceNeedsOperator": Case(
        fault("unhealthy", "clear", "permanent"),
        12,
        {**FAULT, "health": "unhealthy", "kind": "permanent", "cure": "clear"},
    ),
    "FairleadDeviceUnhealthy": Case(
        fault("probation", "probes"), 26, {**FAULT, "health": "probation", "kind": "needs-reset", "cure": "probes"}
    ),
    "FairleadPodHoldsUnhealthyDevice": Case(
        {
            **fault("unhealthy", "reset"),
            # Two shares of the device, in one container: one alert.
            series("fairlead_slot_holder", **GPU, device="g0", slot="g0::0", **HOLDER): "1x60",
            series("fairlead_slot_holder", **GPU, device="g0", slot="g0::1", **HOLDER): "1x60",
            series("fairlead_slot_holder", **GPU, device="g1", slot="g1::0", **(HOLDER | {"pod": "other"})): "1x60",
        },
        16,
        {**FAULT, **HOLDER},
    ),
    "FairleadFaultsOften": Case(
        {series("fairlead_faults_total", cause="c"): "1x9 3x0 5x0 7x60"}, 14, {**NODE, "cause": "c"}, over=75
    ),
    "FairleadScanStale": Case(
        {
            series("fairlead_scan_interval_seconds"): "60x60",
            # The time of evaluation begins with 0: a scan each minute, then none for half an hour.
            series("fairlead_backend_scan_timestamp_seconds", backend="sim"): "0+60x9 540x29 2400+60x20",
        },
        20,
        {**NODE, "backend": "sim"},
    ),
    "FairleadProbesStale": Case(
        {
            series("fairlead_probe_interval_seconds"): "20x60",
            series("fairlead_backend_probe_timestamp_seconds", backend="sim"): "0+60x9 540x29 2400+60x20",
            # Another backend of the same daemon goes on.
            series("fairlead_backend_probe_timestamp_seconds", backend="other"): "0+60x60",
        },
        18,
        {**NODE, "backend": "sim"},
    ),
    "FairleadBackendProblem": Case(
        gauge("fairlead_backend_problem", 0, 1, backend="sim"), 21, {**NODE, "backend": "sim"}
    ),
    "FairleadNotRegistered": Case(gauge("fairlead_registered", 1, 0, **GPU), 16, {**NODE, **GPU}),
    "FairleadNothingOffered": Case(
        {
            series("fairlead_backend_devices", backend="sim"): "8x60",
            series("fairlead_registered", **GPU): "1x9 _x29 1x20",
        },
        27,  # a series that is gone counts for five minutes more
        NODE,
    ),
    "FairleadReregistering": Case(
        counter("fairlead_registrations_total", 8, **GPU, signal="kubelet-restarted"), 12, {**NODE, **GPU}, over=75
    ),
    "FairleadListRefused": Case(gauge("fairlead_list_refused", 0, 1, **GPU), 12, {**NODE, **GPU}),
    "FairleadListNearLimit": Case(
        {
            series("fairlead_list_limit_bytes"): "4194304x60",
            series("fairlead_list_bytes", **GPU): level(500, 4_000_000),
            series("fairlead_list_bytes", resource="x/small"): "500x60",
        },
        21,
        {**NODE, **GPU},
    ),
    "FairleadListStallsKubelet": Case(gauge("fairlead_list_stall_seconds", 0, 3, **GPU), 21, {**NODE, **GPU}),
    "FairleadSlowCalls": Case(
        {
            # Ten calls a minute, first within 1 ms, then over 1 s and within 5 s.
            series("fairlead_call_duration_seconds_bucket", method="Allocate", le="0.001"): "0+10x9 90x29 90+10x40",
            series("fairlead_call_duration_seconds_bucket", method="Allocate", le="1"): "0+10x9 90x29 90+10x40",
            series("fairlead_call_duration_seconds_bucket", method="Allocate", le="5"): "0+10x80",
            series("fairlead_call_duration_seconds_bucket", method="Allocate", le="+Inf"): "0+10x80",
        },
        30,
        {**NODE, "method": "Allocate"},
        over=60,
    ),
    "FairleadAllocationsRefused": Case(
        counter("fairlead_allocations_total", 2, **GPU, result="refused"), 12, {**NODE, **GPU}
    ),
    "FairleadPreparesFailed": Case(counter("fairlead_prepares_total", 1, **GPU, result="failed"), 12, {**NODE, **GPU}),
    "FairleadAssignmentsWrong": Case(
        counter("fairlead_assignments_total", 1, **GPU, result="wrong"), 12, {**NODE, **GPU}
    ),
    "FairleadSlotsHeldTwice": Case(gauge("fairlead_slots_held_twice", 0, 2), 12, NODE),
    "FairleadAuditDifference": Case(gauge("fairlead_audit_differences", 0, 1, kind="ghost-use"), 16, NODE),
    "FairleadHoldersUnknown": Case(gauge("fairlead_holders_known", 1, 0), 26, NODE),
    "FairleadHoldersOmitted": Case(gauge("fairlead_slot_holders_omitted", 0, 5), 26, NODE),
    "FairleadSchedulerNotReady": Case(gauge("fairlead_scheduler_ready", 1, 0), 16, NODE),
    "FairleadSchedulerWatchSilent": Case(
        {
            series("fairlead_scheduler_ready"): "1x60",
            # Heard something each minute, then not for half an hour; stories begin at the epoch.
            series("fairlead_scheduler_watch_heard_timestamp_seconds", kind="pods"): "0+60x9 540x29 2400+60x20",
        },
        20,
        {**NODE, "kind": "pods"},
    ),
    "FairleadSchedulerOvercommitted": Case(
        gauge("fairlead_scheduler_devices_overcommitted", 0, 1, **GPU), 16, {**NODE, **GPU}
    ),
    "FairleadSchedulerBindsFail": Case(
        {
            series("fairlead_scheduler_binds_total", result="bound"): "0+1x60",
            series("fairlead_scheduler_binds_total", result="conflict"): "0x9 0+3x20 60x60",
        },
        28,
        NODE,
        over=55,
    ),
}
# What a daemon that is up reports, where the story is of one that is not.
PRESENCE: dict[str, dict[str, str]] = {
    "FairleadAbsent": {f'fairlead_build_info{{{HERE}, version="1"}}': "1x9 _x29 1x20"},
    "FairleadDown": {
        f"up{{{HERE}}}": level(1, 0),
        'up{job="other", instance="n1"}': "0x60",
        f'fairlead_build_info{{{HERE}, version="1"}}': "1x9 _x29 1x20",
    },
}
