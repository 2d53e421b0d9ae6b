"""Findings of a backend: what cannot be told to the kubelet is left out, and people hear of it."""

from __future__ import annotations

from fairlead.app.sound import check_findings
from fairlead.model.device import Device, DeviceNode
from fairlead.model.inventory import Findings


def test_a_device_that_cannot_be_told_is_left_out_with_a_problem() -> None:
    odd = (Device("a\udcff"), Device("b", model="\ud800"), Device("c", nodes=(DeviceNode("/dev/\udcfe"),)))
    found = check_findings(Findings((*odd, Device("good"))))
    assert [device.id for device in found.devices] == ["good"]
    assert found.problems[0].startswith(r"a\xff, b, c: left out, because")
