"""What a daemon tells Prometheus: its status and its totals, in the text format 0.0.4.

Owns the names, their help and the bounds on series. A page of metrics is made of one snapshot, on any thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from fairlead._version import __version__
from fairlead.model.health import Cause, CauseKind, Health
from fairlead.model.holdings import Holdings
from fairlead.model.names import DeviceId
from fairlead.observe.exposition import Exposition, Label
from fairlead.observe.metricnames import HOLDERS_MAX, render_generic, render_gke, render_hami
from fairlead.observe.process import render_process
from fairlead.observe.status import Snapshot, Status, make_status
from fairlead.observe.totals import ALLOCATIONS, ASSIGNMENTS, DEFECTS, PREPARES, Own, Totals
from fairlead.policy.cordon import CODE as CORDONED
from fairlead.policy.offering.budget import KUBELET_MESSAGE_MAX_BYTES

HEALTHS = tuple(health.value for health in Health)


def render(now: Snapshot, totals: Totals, own: Own) -> bytes:
    status, page = make_status(now), Exposition()
    if "generic" in own.names:
        render_generic(page, status, totals, own)
    if "gke" in own.names:
        render_gke(page, now, own)
    if "hami" in own.names:
        render_hami(page, now, own)
    _render_process(page, status, totals, own)
    _render_devices(page, status, now, own)
    _render_resources(page, status, own)
    _render_holders(page, now)
    _render_totals(page, totals, [each.name for each in status.resources])
    return page.encode()


def _render_process(page: Exposition, status: Status, totals: Totals, own: Own) -> None:
    page.gauge("fairlead_build_info", "The version of the daemon.", 1, ("version", __version__))
    page.gauge(
        "fairlead_config_info",
        "The configuration in force. Equal configurations have equal hashes.",
        1,
        ("source", status.config),
        ("hash", own.config_hash),
    )
    page.gauge(
        "fairlead_config_last_reload_successful",
        "Whether the last reading of the configuration worked. If not, the one before is in force.",
        not own.config_problem,
    )
    page.gauge(
        "fairlead_config_applied_timestamp_seconds",
        "When the configuration in force was applied.",
        totals.config_applied_s or status.started_s,
    )
    page.gauge(
        "fairlead_config_restart_needed",
        "Whether a part of the configuration in force takes effect only when the daemon is restarted.",
        own.restart_needed,
    )
    page.gauge("fairlead_problems", "Things that `fairlead status` reports as problems.", len(status.problems))
    page.gauge(
        "fairlead_admission_storms",
        "Kinds of requests that are refused again and again now: a controller makes their pods anew each time.",
        len(status.storms),
    )
    if totals.first_list_s is not None:
        page.gauge(
            "fairlead_first_list_seconds",
            "Time from the start of the daemon until the kubelet opened the first stream.",
            totals.first_list_s - status.started_s,
        )
    page.family(
        "fairlead_audit_differences",
        "gauge",
        "Differences between grants, the kubelet's view and processes, by kind. Left out until an audit was made.",
        [([("kind", kind)], count) for kind, count in (own.differences or {}).items()],
    )
    page.family(
        "fairlead_api_server_answers",
        "gauge",
        "Whether the API server answered the last request, if only with a refusal. Left out where it is not asked.",
        [] if own.api_server_answers is None else [((), own.api_server_answers)],
    )
    render_process(page, status.started_s, own.process)


def _render_devices(page: Exposition, status: Status, now: Snapshot, own: Own) -> None:
    backends = status.backends
    page.family(
        "fairlead_backend_devices",
        "gauge",
        "Devices that the last scan of a backend found.",
        [([("backend", each.name)], each.devices) for each in backends],
    )
    page.family(
        "fairlead_backend_scan_timestamp_seconds",
        "gauge",
        "When a backend last scanned without an error. 0: never.",
        [([("backend", each.name)], each.scanned_s or 0) for each in backends],
    )
    page.gauge("fairlead_scan_interval_seconds", "Time between two scans of a backend.", own.scan_interval_s)
    page.family(
        "fairlead_backend_probe_timestamp_seconds",
        "gauge",
        "When probes of a backend last had a verdict on a device. 0: never. Left out where devices cannot be asked.",
        [([("backend", name)], probed_s or 0) for name, probed_s in own.probed_s.items()],
    )
    page.gauge(
        "fairlead_probe_interval_seconds",
        "The longest time between two rounds of probes of a backend.",
        own.probe_interval_s,
    )
    page.family(
        "fairlead_backend_problem",
        "gauge",
        "Whether the last scan of a backend failed. Its devices are those of the scan before.",
        [([("backend", each.name)], bool(each.problem)) for each in backends],
    )
    states = Counter((each.resource or "", each.health) for each in status.devices)
    page.family(
        "fairlead_devices",
        "gauge",
        "Devices by the resource that offers them (empty: none) and by health.",
        [
            ([("resource", resource), ("health", health)], states[resource, health])
            for resource in sorted({each.resource or "" for each in status.devices})
            for health in HEALTHS
        ],
    )
    faults = [
        (
            [
                ("resource", each.resource or ""),
                ("device", each.id),
                ("health", condition.health.value),
                ("cause", condition.cause.code),
                ("kind", condition.cause.kind.value),
                ("cure", cure_of(condition.cause)),
            ],
            condition,
        )
        for each in status.devices
        if (condition := now.conditions.of(DeviceId(each.id))).cause is not None
    ]
    page.family(
        "fairlead_device_fault",
        "gauge",
        "1 for each device that is not healthy, with the code and the kind of its cause, and what ends it.",
        [(labels, 1) for labels, _ in faults],
    )
    page.family(
        "fairlead_device_fault_timestamp_seconds",
        "gauge",
        "Since when a device is in this state of health.",
        [([labels[0], labels[1]], condition.since_s + now.now_s - now.monotonic_s) for labels, condition in faults],
    )
    page.family(
        "fairlead_device_memory_bytes",
        "gauge",
        "Memory of a device.",
        [([("device", each.id)], each.memory_bytes) for each in status.devices if each.memory_bytes],
    )
    page.family(
        "fairlead_device_memory_used_bytes",
        "gauge",
        "Memory of a device that is in use. With http.usage, where the backend can say it.",
        [
            ([("device", device)], use.memory_used_bytes)
            for device, use in own.usage.items()
            if use.memory_used_bytes is not None
        ],
    )
    page.family(
        "fairlead_device_utilization_ratio",
        "gauge",
        "How busy a device is, from 0 to 1. With http.usage, where the backend can say it.",
        [([("device", device)], use.utilization) for device, use in own.usage.items() if use.utilization is not None],
    )


def _render_resources(page: Exposition, status: Status, own: Own) -> None:
    resources = status.resources
    page.family(
        "fairlead_slots",
        "gauge",
        "Slots in the list of a resource. Retired: the device has left, and a pod may still hold the slot.",
        [
            ([("resource", each.name), ("state", state)], count)
            for each in resources
            for state, count in (
                ("healthy", each.healthy),
                ("unhealthy", each.slots - each.healthy),
                ("retired", each.retired),
            )
        ],
    )
    if status.holders_known:
        page.family(
            "fairlead_slots_held",
            "gauge",
            "Slots that containers hold, by the kubelet's pod-resources. Left out while the kubelet gives no answer.",
            [([("resource", each.name)], each.held) for each in resources],
        )
        page.family(
            "fairlead_slots_free",
            "gauge",
            "Slots that are healthy and held by no container. Left out while the kubelet gives no answer.",
            [([("resource", each.name)], each.free) for each in resources],
        )
    page.gauge(
        "fairlead_holders_known",
        "Whether the kubelet's pod-resources tells which containers hold what.",
        status.holders_known,
    )
    page.family(
        "fairlead_registered",
        "gauge",
        "Whether the kubelet follows the list of the resource.",
        [([("resource", each.name)], each.phase == "streaming") for each in resources],
    )
    page.family(
        "fairlead_registrations_total",
        "counter",
        "Registrations that the kubelet accepted, by what made them necessary.",
        [([("resource", name), ("signal", signal)], count) for (name, signal), count in own.registrations.items()],
    )
    page.family(
        "fairlead_list_bytes",
        "gauge",
        "Size of the encoded list of a resource.",
        [([("resource", each.name)], each.list_bytes) for each in resources],
    )
    served = {each.name: bool(each.problem) for each in resources}
    page.family(
        "fairlead_list_refused",
        "gauge",
        "Whether the list of a resource is too large for the kubelet. The one before it stays in force.",
        [([("resource", name)], refused) for name, refused in (served | dict.fromkeys(own.refused, True)).items()],
    )
    page.family(
        "fairlead_list_stall_seconds",
        "gauge",
        "Estimate: how long a kubelet that restarts is busy with the list when containers hold all of it.",
        [([("resource", each.name)], each.stall_s) for each in resources],
    )
    page.gauge("fairlead_list_limit_bytes", "Size above which the kubelet drops a list.", KUBELET_MESSAGE_MAX_BYTES)


def _render_holders(page: Exposition, now: Snapshot) -> None:
    if not isinstance(now.holdings, Holdings):
        return
    held = [
        (
            [
                ("resource", resource.name),
                ("device", now.elsewhere.get((resource.name, slot.id), slot.device)),
                ("slot", slot.id),
                ("namespace", holder.namespace),
                ("pod", holder.pod),
                ("container", holder.container),
            ],
            1,
        )
        for resource, _ in now.endpoints
        for slot in resource.slots
        if (holder := now.holdings.by_slot.get((resource.name, slot.id))) is not None
    ]
    page.family(
        "fairlead_slot_holder",
        "gauge",
        f"1 for each slot that a container holds; {HOLDERS_MAX} at most. Scrape with honorLabels.",
        held[:HOLDERS_MAX],
    )
    page.gauge(
        "fairlead_slot_holders_omitted",
        "Held slots that fairlead_slot_holder leaves out.",
        max(0, len(held) - HOLDERS_MAX),
    )
    names = {resource.name for resource, _ in now.endpoints}
    twice = sum(name in names for name, _slot in now.holdings.twice)
    page.gauge("fairlead_slots_held_twice", "Slots that the kubelet gave to two pods at once.", twice)


def cure_of(cause: Cause) -> str:
    """What ends a cause: a reset that is seen, an operator's `fairlead clear` or `uncordon`, or clean probes."""
    if cause.cured_by:
        return "reset"
    if cause.code == CORDONED:
        return "uncordon"
    return "clear" if cause.kind is CauseKind.PERMANENT else "probes"


def _render_totals(page: Exposition, totals: Totals, resources: Iterable[str]) -> None:
    """A counter is 0 before the first event: a rate over the first one would be lost otherwise."""
    for name, text, counts, results in (
        ("allocations", "Calls of Allocate, by what became of them.", totals.allocations, ALLOCATIONS),
        ("prepares", "Preparations of devices before a container starts, by result.", totals.prepares, PREPARES),
        (
            "assignments",
            "Devices that a scheduler chose for a pod, by what became of the assignment.",
            totals.assignments,
            ASSIGNMENTS,
        ),
    ):
        page.family(f"fairlead_{name}_total", "counter", text, _by_result(dict(counts), results, resources))
    faults, defects = dict(totals.faults), dict(totals.defects)  # the loop goes on counting
    page.family(
        "fairlead_faults_total",
        "counter",
        "Times that a device became unhealthy, by the code of the cause.",
        [([("cause", code)], count) for code, count in faults.items()],
    )
    page.family(
        "fairlead_recoveries_total", "counter", "Times that a device was offered again.", [((), totals.recoveries)]
    )
    page.family(
        "fairlead_defects_total",
        "counter",
        "Errors that only a defect of the daemon causes, by the event of the journal.",
        [([("event", event)], defects.get(event, 0)) for event in sorted(DEFECTS)],
    )
    page.family(
        "fairlead_loop_blocked_seconds_total",
        "counter",
        "Time in which the event loop was blocked, as far as the watchdog has seen it.",
        [((), totals.loop_blocked_s)],
    )
    page.histogram(
        "fairlead_call_duration_seconds", "Time to answer a call of the kubelet.", "method", dict(totals.calls)
    )


def _by_result(
    counts: Mapping[tuple[str, str], int], results: Mapping[str, str], resources: Iterable[str]
) -> list[tuple[list[Label], float]]:
    known = dict.fromkeys([(name, result) for name in resources for result in results.values()], 0) | dict(counts)
    return [([("resource", name), ("result", result)], count) for (name, result), count in known.items()]
