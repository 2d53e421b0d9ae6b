"""Writes deploy/monitoring/dashboard.json, a dashboard for Grafana: `python -m docs.dashboard`.

Owns which panels there are and what they ask. How Grafana wants them written is in `docs.panels`. Every series is
chosen by `instance`, which is the node where the scraper relabels it so, and by `resource`; no name of a job, of a
namespace or of a cluster occurs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from docs.panels import Grid, Panel, Target, datasource, graph, heatmap, stat, table, variable

COMMAND = "python -m docs.dashboard"
FILE = Path(__file__).parent.parent / "deploy" / "monitoring" / "dashboard.json"
SCHEMA = 41  # of Grafana 12

NODE = 'instance=~"$node"'
SERIES = f'{NODE}, resource=~"$resource"'
DAEMON = "and on (job, instance) fairlead_build_info"
FAULT = "instance, resource, device"
RED_FROM_1 = ((None, "green"), (1, "red"))
RED_AT_0 = ((None, "red"), (1, "green"))
STATES = {"healthy": "green", "suspect": "yellow", "probation": "blue", "unhealthy": "red", "retired": "text"}


def make() -> dict[str, Any]:
    grid = Grid()
    for title, panels in (
        ("Overview", overview()),
        ("Devices and health", health()),
        ("Slots and who holds them", slots()),
        ("The kubelet", kubelet()),
        ("The daemon", daemon()),
    ):
        grid.row(title, panels)
    return {
        "uid": "fairlead",
        "title": "Fairlead: devices and their pods",
        "description": "Devices, their health, who holds them, and what the kubelet asks. Of Fairlead's metrics alone.",
        "tags": ["fairlead", "kubernetes", "devices"],
        "schemaVersion": SCHEMA,
        "version": 1,
        "id": None,
        "editable": True,
        "fiscalYearStartMonth": 0,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timepicker": {},
        "timezone": "browser",
        "links": [],
        "annotations": {"list": []},
        "templating": {
            "list": [
                datasource(),
                variable("node", "Node", "label_values(fairlead_build_info, instance)"),
                variable("resource", "Resource", f"label_values(fairlead_slots{{{NODE}}}, resource)"),
            ]
        },
        "panels": grid.panels,
    }


def overview() -> list[Panel]:
    return [
        stat("Nodes", "Daemons that answer.", f"count(fairlead_build_info{{{NODE}}})"),
        stat("Devices", "Devices that the rules offer.", f'sum(fairlead_devices{{{SERIES}, resource!=""}})'),
        stat(
            "Unhealthy devices",
            "Devices that are withdrawn. The table below says why.",
            f'sum(fairlead_devices{{{SERIES}, health=~"unhealthy|probation"}}) or vector(0)',
            steps=RED_FROM_1,
        ),
        stat(
            "Slots",
            "What the kubelet counts: devices, or shares of them.",
            f'sum(fairlead_slots{{{SERIES}, state!="retired"}})',
        ),
        stat(
            "Held",
            "Share of the slots that containers hold.",
            f'sum(fairlead_slots_held{{{SERIES}}}) / sum(fairlead_slots{{{SERIES}, state!="retired"}})',
            unit="percentunit",
        ),
        stat(
            "Lists that no kubelet follows",
            "Resources that show as 0 on their node.",
            f"count(fairlead_registered{{{SERIES}}} == 0) or vector(0)",
            steps=RED_FROM_1,
        ),
        stat(
            "Held twice",
            "Slots that a kubelet gave to two pods at once.",
            f"sum(fairlead_slots_held_twice{{{NODE}}}) or vector(0)",
            steps=RED_FROM_1,
        ),
        stat(
            "Problems",
            "What `fairlead status` reports as problems, on all nodes.",
            f"sum(fairlead_problems{{{NODE}}})",
            steps=((None, "green"), (1, "orange")),
        ),
        table(
            "Nodes",
            "One line for each daemon. Equal configurations have equal hashes.",
            [
                Target(f"max by (instance, version) (fairlead_build_info{{{NODE}}})", "Up"),
                Target(f"max by (instance, hash) (fairlead_config_info{{{NODE}}})", ""),
                Target(f"sum by (instance) (fairlead_devices{{{SERIES}}})", "Devices"),
                Target(f'sum by (instance) (fairlead_devices{{{SERIES}, health=~"unhealthy|probation"}})', "Unhealthy"),
                Target(f"sum by (instance) (fairlead_slots_held{{{SERIES}}})", "Held"),
                Target(f"sum by (instance) (fairlead_slots_free{{{SERIES}}})", "Free"),
                Target(f"min by (instance) (fairlead_registered{{{SERIES}}})", "Registered"),
                Target(f"max by (instance) (fairlead_problems{{{NODE}}})", "Problems"),
                Target(f"max by (instance) (time() - (process_start_time_seconds{{{NODE}}} {DAEMON}))", "Running for"),
            ],
            rename={"instance": "Node", "version": "Version", "hash": "Configuration"},
            units={"Running for": "s"},
            colours={"Unhealthy": RED_FROM_1, "Registered": RED_AT_0, "Problems": ((None, "green"), (1, "orange"))},
        ),
        table(
            "Alerts",
            "Alerts of Fairlead's rules that fire now. Empty also where the rules are not loaded.",
            [Target(f'ALERTS{{{NODE}, alertname=~"Fairlead.*", alertstate="firing"}}', "")],
            rename={
                "alertname": "Alert",
                "severity": "Severity",
                "instance": "Node",
                "resource": "Resource",
                "device": "Device",
            },
            hide=("alertstate", "job", "__name__"),
            height=6,
        ),
    ]


def health() -> list[Panel]:
    return [
        graph(
            "Devices by state",
            "Suspect devices are still offered; unhealthy ones and those on probation are not.",
            [Target(f"sum by (health) (fairlead_devices{{{SERIES}}})", "{{health}}")],
            stack=True,
            series_colours=STATES,
        ),
        table(
            "Faults now",
            "Every device that is not healthy: the code of its cause, and what ends it.",
            [
                Target(
                    f"max by ({FAULT}, health, cause, kind, cure) (fairlead_device_fault{{{SERIES}}})",
                    "",
                ),
                Target(
                    f"time() - max by ({FAULT}) (fairlead_device_fault_timestamp_seconds{{{SERIES}}})",
                    "For",
                ),
            ],
            rename={
                "instance": "Node",
                "resource": "Resource",
                "device": "Device",
                "health": "State",
                "cause": "Cause",
                "kind": "Kind",
                "cure": "Ended by",
            },
            units={"For": "s"},
            width=12,
        ),
        graph(
            "Faults by cause",
            "Times that a device was withdrawn. The first fault of a cause after a start of the daemon does not show.",
            [Target(f"sum by (cause) (increase(fairlead_faults_total{{{NODE}}}[$__rate_interval]))", "{{cause}}")],
            bars=True,
            stack=True,
            width=8,
        ),
        graph(
            "Recoveries",
            "Times that a device was offered again.",
            [
                Target(
                    f"sum by (instance) (increase(fairlead_recoveries_total{{{NODE}}}[$__rate_interval]))",
                    "{{instance}}",
                )
            ],
            bars=True,
            stack=True,
            width=8,
        ),
        graph(
            "Use of devices",
            "How busy devices are. With http.usage, where the backend can say it.",
            [Target(f"avg by (instance) (fairlead_device_utilization_ratio{{{NODE}}})", "{{instance}}")],
            unit="percentunit",
            width=8,
        ),
    ]


def slots() -> list[Panel]:
    return [
        graph(
            "Slots held and free",
            "Free: healthy, and held by no container. The rest is unhealthy, or its device has left.",
            [
                Target(f"sum by (resource) (fairlead_slots_held{{{SERIES}}})", "{{resource}} held"),
                Target(f"sum by (resource) (fairlead_slots_free{{{SERIES}}})", "{{resource}} free"),
                Target(
                    f'sum by (resource) (fairlead_slots{{{SERIES}, state!="healthy"}}) > 0',
                    "{{resource}} unhealthy or retired",
                ),
            ],
            stack=True,
        ),
        graph(
            "How full the nodes are",
            "Share of the slots that containers hold.",
            [
                Target(
                    f"sum by (instance, resource) (fairlead_slots_held{{{SERIES}}}) / "
                    f'sum by (instance, resource) (fairlead_slots{{{SERIES}, state!="retired"}})',
                    "{{instance}} {{resource}}",
                )
            ],
            unit="percentunit",
        ),
        table(
            "Pods",
            "Slots and devices that each container holds. 2,000 slots of a node at most.",
            [
                Target(
                    f"count by (instance, resource, namespace, pod, container) (fairlead_slot_holder{{{SERIES}}})",
                    "Slots",
                ),
                Target(
                    "count by (instance, resource, namespace, pod, container) (count by "
                    f"(instance, resource, namespace, pod, container, device) (fairlead_slot_holder{{{SERIES}}}))",
                    "Devices",
                ),
            ],
            rename={
                "instance": "Node",
                "resource": "Resource",
                "namespace": "Namespace",
                "pod": "Pod",
                "container": "Container",
            },
        ),
    ]


def kubelet() -> list[Panel]:
    calls = "fairlead_call_duration_seconds_bucket"
    return [
        heatmap(
            "Time to answer Allocate",
            "Calls by their duration.",
            f'sum by (le) (increase({calls}{{{NODE}, method="Allocate"}}[$__rate_interval]))',
        ),
        graph(
            "Time to answer the kubelet",
            "Percentiles over all nodes. The kubelet starts no other pod while it waits.",
            [
                Target(
                    f"histogram_quantile({share}, sum by (le, method) (rate({calls}{{{NODE}}}[$__rate_interval])))",
                    f"{{{{method}}}} p{share * 100:g}",
                )
                for share in (0.5, 0.99)
            ],
            unit="s",
        ),
        graph(
            "Allocations",
            "Calls of Allocate. A refused one is a pod with UnexpectedAdmissionError.",
            [
                Target(
                    f"sum by (result) (increase(fairlead_allocations_total{{{SERIES}}}[$__rate_interval]))",
                    "{{result}}",
                )
            ],
            bars=True,
            stack=True,
            width=8,
            series_colours={"granted": "green", "refused": "red"},
        ),
        graph(
            "Registrations",
            "By what made them necessary: a kubelet that restarted, a stream that ended, a socket that was removed.",
            [
                Target(
                    f"sum by (signal) (increase(fairlead_registrations_total{{{SERIES}}}[$__rate_interval]))",
                    "{{signal}}",
                )
            ],
            bars=True,
            stack=True,
            width=8,
        ),
        graph(
            "Registered",
            "1: the kubelet follows the list.",
            [Target(f"min by (instance, resource) (fairlead_registered{{{SERIES}}})", "{{instance}} {{resource}}")],
            width=8,
        ),
        graph(
            "Size of the lists",
            "Share of the 4 MiB above which the kubelet drops a list.",
            [
                Target(
                    f"max by (job, instance, resource) (fairlead_list_bytes{{{SERIES}}}) "
                    "/ on (job, instance) group_left () max by (job, instance) "
                    f"(fairlead_list_limit_bytes{{{NODE}}})",
                    "{{instance}} {{resource}}",
                )
            ],
            unit="percentunit",
        ),
        graph(
            "What the lists cost the kubelet",
            "Estimate: how long a kubelet that restarts admits no pod, when containers hold all slots.",
            [
                Target(
                    f"max by (instance, resource) (fairlead_list_stall_seconds{{{SERIES}}})",
                    "{{instance}} {{resource}}",
                )
            ],
            unit="s",
        ),
    ]


def daemon() -> list[Panel]:
    return [
        graph(
            "Age of the last scan",
            "By backend. A failed scan keeps the devices of the one before.",
            [Target(f"time() - fairlead_backend_scan_timestamp_seconds{{{NODE}}}", "{{instance}} {{backend}}")],
            unit="s",
            width=8,
        ),
        graph(
            "From start to the first list",
            "Time until the kubelet opened the first stream.",
            [Target(f"fairlead_first_list_seconds{{{NODE}}}", "{{instance}}")],
            unit="s",
            width=8,
        ),
        graph(
            "Starts of the daemon",
            "",
            [Target(f"changes(process_start_time_seconds{{{NODE}}}[1h]) {DAEMON}", "{{instance}}")],
            width=8,
        ),
        graph(
            "Memory",
            "Resident memory of the daemon.",
            [Target(f"process_resident_memory_bytes{{{NODE}}} {DAEMON}", "{{instance}}")],
            unit="bytes",
            width=8,
        ),
        graph(
            "CPU",
            "Seconds of CPU in a second.",
            [Target(f"rate(process_cpu_seconds_total{{{NODE}}}[$__rate_interval]) {DAEMON}", "{{instance}}")],
            unit="percentunit",
            width=8,
        ),
        graph(
            "Errors of the daemon",
            "Defects, seconds in which its event loop was blocked, and requests that the API server did not answer.",
            [
                Target(f"sum by (event) (increase(fairlead_defects_total{{{NODE}}}[$__rate_interval]))", "{{event}}"),
                Target(
                    f"sum(increase(fairlead_loop_blocked_seconds_total{{{NODE}}}[$__rate_interval]))",
                    "loop blocked (s)",
                ),
                Target(
                    f"count(fairlead_api_server_answers{{{NODE}}} == 0) or vector(0)", "no answer of the API server"
                ),
            ],
            width=8,
        ),
    ]


def text() -> str:
    return json.dumps(make(), indent=2) + "\n"


if __name__ == "__main__":
    FILE.write_text(text())
