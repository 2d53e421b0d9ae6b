"""What of the kubelet's log counts against us."""

from __future__ import annotations

import pytest

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
        f'E{AT} client.go:94] "ListAndWatch ended unexpectedly for device plugin" err="EOF" resource="example.com/x"',
    ],
)
def test_news_the_nodes_own_troubles_and_what_a_scenario_provokes_do_not(line: str):
    assert complaints([line]) == []
