"""Reads the true kubelet's log and says what it holds against us.

An error line counts when it comes from the device manager or the plugin watcher, or names a resource of ours.
What a scenario provokes on purpose is listed here, each with its reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

OURS = re.compile(
    r"example\.com/|device.?plugin|devicemanager|device update channel|checkpoint|plugins_registry|podresources"
    r"|pod_devices\.go|plugin_watcher\.go|topology_hints\.go",
    re.IGNORECASE,
)
ERROR = re.compile(r"^[EF]\d{4} ")
PANIC = re.compile(r"^panic: |^goroutine \d+ \[|Observed a panic|runtime error|nil pointer")
EXPECTED = {
    r"broken\.example\.com": "a plugin of tests/node/broken.py, which breaks on purpose",
    r"checkpoint is not found": "a scenario restarts a kubelet that has not met a plugin yet",
    r"status_manager.go.*not found": "a scenario deletes its pods at once, and their last status finds nobody",
    r"status_manager.go.*context canceled": "a scenario ended the kubelet while it told the API server of pods",
    r"(node_status|status_manager).go.*(connection refused|connection reset|EOF|i/o timeout|deadline exceeded)": (
        "a scenario stopped the API server"
    ),
    r"node_status.go.*Client.Timeout exceeded": "the same; and on a busy machine, where it has a second to answer",
    r"illegal phase transition.*originalStatusPhase=\"Failed\"": "a scenario deletes a pod that was refused, at once",
    r"(handler|server)\.go.*device plugin options.*context canceled": "a scenario ended the daemon while it registered",
    r"PreStartContainer rpc failed.* is not clean: ": "a scenario hands out a device whose clean-up fails",
    r"ListAndWatch ended unexpectedly": "a scenario ended the daemon or the kubelet; the stream ends with it",
}


# Stretches of the log, in bytes, in which plugins misbehaved on purpose: what the kubelet says of them is compared
# elsewhere, word for word (tests/differential).
provoked: list[range] = []


def read(log: Path, start: int) -> Iterator[str]:
    """The lines of the log from a place on, without those that were provoked."""
    with log.open("rb") as lines:
        lines.seek(start)
        at = start
        for line in lines:
            if not any(at in stretch for stretch in provoked):
                yield line.decode(errors="replace")
            at += len(line)


def complaints(lines: Iterable[str]) -> list[str]:
    return [
        line for line in lines if PANIC.search(line) or (ERROR.match(line) and OURS.search(line) and not _known(line))
    ]


def _known(line: str) -> bool:
    return any(re.search(pattern, line) for pattern in EXPECTED)
