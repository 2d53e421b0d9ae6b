"""What of the kubelet's log counts against us."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.node import verdict
from tests.node.verdict import complaints

AT = "1115 23:33:56.717471    6619"


@pytest.mark.parametrize(
    "line",
    [
        "panic: runtime error: invalid memory address or nil pointer dereference",
        f"E{AT} runtime.go:142] Observed a panic",
        f'E{AT} server.go:166] "Bad registration request from device plugin with resource" err="it"',
        f'E{AT} pod_devices.go:282] "Environment variable has conflicting setting" envKey="A"',
        f'F{AT} manager.go:1] "device manager" resource="example.com/x"',
    ],
)
def test_panics_and_errors_about_device_plugins_count(line: str):
    assert complaints([line]) == [line]


@pytest.mark.parametrize(
    "line",
    [
        f'I{AT} handler.go:111] "Registered client" name="example.com/x"',
        f'E{AT} server.go:177] "Error connecting to device plugin client" err="broken.example.com: no options"',
        f'E{AT} kubelet.go:3516] "Unable to register mirror pod because node is not registered yet"',
        f'E{AT} status_manager.go:1187] "Failed to update status" err="example.com/x: read: connection reset by peer"',
        f'E{AT} client.go:94] "ListAndWatch ended unexpectedly for device plugin" err="EOF" resource="example.com/x"',
    ],
)
def test_news_the_nodes_own_troubles_and_what_a_scenario_provokes_do_not(line: str):
    assert complaints([line]) == []


def test_what_was_provoked_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    log = tmp_path / "kubelet.log"
    log.write_text("before\nfirst\nprovoked\npanic: provoked\nlast\n")
    monkeypatch.setattr(verdict, "provoked", [range(13, 38)])
    assert list(verdict.read(log, 7)) == ["first\n", "last\n"]
