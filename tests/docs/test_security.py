"""Every number on the page about security is the one in the code."""

from __future__ import annotations

import re
from pathlib import Path
from unittest import mock

import pytest
from tests.docs.blocks import ROOT

from fairlead.app.questions import Questions
from fairlead.cluster import client, credentials, lines, pods
from fairlead.config import compile as rules
from fairlead.engine import quota, validate
from fairlead.fronts import checkpoint, handover, podresources
from fairlead.fronts.deviceplugin import inherited
from fairlead.kit import documents, files, owner
from fairlead.observe import control, http
from fairlead.policy.pods import annotations as pod_annotations
from fairlead.wire import deviceplugin, limits

PAGE = (ROOT / "docs" / "guide" / "security.md").read_text()
ROWS = dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", PAGE.partition("## What comes from outside")[2], re.MULTILINE))
KIB, MIB = 1024, 2**20
WIRE = limits.Limits()
YAML = documents.LIMITS


def size(count: float) -> str:
    return f"{count / MIB:g} MiB" if count >= MIB else f"{count / KIB:g} KiB"


BOUNDS = {
    "a file that others write (configuration, fleet, kubeconfig)": [size(files.MAX_BYTES)],
    "its YAML": [
        f"{YAML.depth} levels",
        f"{YAML.nodes:,} values",
        f"{size(YAML.text)} per text",
        f"{YAML.seconds:g} s",
    ],
    "a token, or a small file of the system": [size(files.SMALL_BYTES)],
    "rules and backends in one configuration": [f"{rules.RULES_MAX:,} rules", f"{rules.BACKENDS_MAX} backends"],
    "a backend": [
        f"{validate.DEVICES_MAX:,} devices",
        f"{validate.PARTS_MAX:,} nodes or attributes",
        f"{validate.EDITS_MAX:,} characters of edits",
    ],
    "the kubelet, and any client of a resource's socket": [
        f"{size(WIRE.message_bytes)} per message",
        f"{deviceplugin.MAX_IDS:,} ids",
        f"{deviceplugin.MAX_CONTAINERS:,} containers",
    ],
    "connections to one socket": [
        f"{WIRE.connections}, {WIRE.concurrent_streams} streams",
        f"{size(WIRE.queue_bytes)} unread for one client, {size(WIRE.server_queue_bytes)} for all",
        f"{WIRE.stall_s:g} s without reading and {WIRE.idle_s:g} s without a call",
    ],
    "HTTP/2 header lists": [
        size(WIRE.header_list_bytes),
        f"{WIRE.resets:,} resets",
        f"in {WIRE.flood_window_s:g} s",
    ],
    "a daemon that takes over": [
        f"{size(handover.PACKET_BYTES)} per message",
        f"{handover.PACKET_DESCRIPTORS} descriptors",
        f"{inherited.MOST} connections",
        f"{handover.ANSWER_S:g} s",
    ],
    "the kubelet's pod-resources": [size(podresources.ANSWER_MAX_BYTES), f"{podresources.DEADLINE_S:g} s"],
    "the kubelet's checkpoint": [size(checkpoint.MAX_BYTES)],
    "the status socket": [
        f"{size(control.REQUEST_MAX_BYTES)} per request",
        f"{control.READ_DEADLINE_S:g} s to send it",
        f"{control.MAX_WAITING} waiting",
        f"{control.MAX_CONNECTIONS} connections",
    ],
    "HTTP": [
        f"{size(http.HEAD_MAX_BYTES)} of head",
        f"{http.MAX_CONNECTIONS} connections",
        f"{http.MAX_STREAMS} streams",
        f"{http.DEADLINE_S:g} s",
    ],
    "the API server": [
        f"{size(client.BODY_MAX_BYTES)} per answer",
        f"{pods.PODS_MAX:,} pods",
        f"{client.ATTEMPT_S:g} s per attempt",
    ],
    "an annotation of a pod that names devices": [f"{pod_annotations.TEXT_MAX:,} characters"],
    "a credential program": [
        f"{credentials.EXEC_DEADLINE_S:g} s",
        f"{size(credentials.EXEC_OUTPUT_MAX_BYTES)} of output",
    ],
    "a call into a driver": [f"{owner.DEADLINE_S:g} s by default"],
    "events of one backend": [f"{quota.FACTS:,} in {quota.WINDOW_S:g} s"],
}


def test_every_bound_on_the_page_is_known_here_and_no_other():
    table = PAGE.partition("## What comes from outside")[2].partition("\n## ")[0]
    told = {line.split(" | ")[0].removeprefix("| ") for line in table.splitlines() if line.startswith("| ")}
    assert told - {"from"} == set(BOUNDS)


@pytest.mark.parametrize("row", BOUNDS)
def test_a_bound_is_the_one_of_the_code(row: str):
    for bound in BOUNDS[row]:
        assert re.search(rf"(?<![\d,.]){re.escape(bound)}", ROWS[row]), f"{row}: the code says {bound}"


def test_an_event_of_a_watch_has_the_bound_of_an_answer():
    assert lines.LINE_MAX_BYTES == client.BODY_MAX_BYTES
    assert WIRE.resets == WIRE.idle_frames


def test_a_directory_that_the_daemon_makes_has_the_mode_of_the_page():
    assert "mode=0o750" in (ROOT / "src/fairlead/app/entry.py").read_text()
    assert "mode=0o755" in (ROOT / "src/fairlead/observe/control.py").read_text()


def test_every_order_of_the_status_socket_is_named() -> None:
    text = PAGE.partition("## The status socket")[2].partition("\n## ")[0]
    daemon = mock.Mock()
    asked = Questions(daemon).control(Path("/nowhere"))._handlers
    assert not [name for name in asked if f"`{name}`" not in text]


def test_what_runs_other_programs_is_named() -> None:
    """Each module that starts one, by the word of the page for it."""
    told = PAGE.partition("The daemon starts no other program")[2].partition("\n\n")[0]
    for word in ("`mps`", "`nvidia-smi`", "`exec`", "`cleanup.command`"):
        assert word in told


def test_the_comparison_knows_the_chart() -> None:
    page = (ROOT / "docs/guide/comparison.md").read_text()
    row = next(line for line in page.splitlines() if "| Helm chart |" in line)
    assert (ROOT / "deploy" / "chart" / "Chart.yaml").exists()
    assert row.split("|")[2].strip().startswith("[yes]")
