"""Findings of a backend: what cannot be told to the kubelet is left out, and people hear of it."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.engine.validate import CAUSE_MAX, DEVICES_MAX, PARTS_MAX, SLOTS_MAX, TEXT_MAX, check_cause, check_findings
from fairlead.model.device import Device, DeviceNode
from fairlead.model.errors import BackendError
from fairlead.model.health import Cause, CauseKind
from fairlead.model.inventory import Findings


def test_a_device_that_cannot_be_told_is_left_out_with_a_problem() -> None:
    odd = (Device("a\udcff"), Device("b", model="\ud800"), Device("c", nodes=(DeviceNode("/dev/\udcfe"),)))
    found = check_findings(Findings((*odd, Device("good"))))
    assert [device.id for device in found.devices] == ["good"]
    assert found.problems[0].startswith(r"a\xff, b, c: left out, because")


@pytest.mark.parametrize(
    "large",
    [
        Device("x" * (TEXT_MAX + 1)),
        Device("a", model="x" * (TEXT_MAX + 1)),
        Device("a", attributes={"x" * (TEXT_MAX + 1): ""}),
        Device("a", nodes=(DeviceNode("/dev/" + "x" * TEXT_MAX),)),
        Device("a", nodes=(DeviceNode("/dev/a"),) * (PARTS_MAX + 1)),
        Device("a", slots=("x",) * (SLOTS_MAX + 1)),
    ],
)
def test_a_device_over_a_bound_is_left_out_with_a_problem(large: Device) -> None:
    found = check_findings(Findings((large, Device("good"))))
    assert [device.id for device in found.devices] == ["good"]
    assert "over" in found.problems[0]
    assert len(found.problems[0]) < 500


def test_a_long_text_in_all_is_no_long_text() -> None:
    many = Device("a", nodes=tuple(DeviceNode(f"/dev/{number}") for number in range(PARTS_MAX)))
    assert check_findings(Findings((many,))).devices == (many,)


def test_more_devices_than_a_node_can_have_are_a_failed_scan() -> None:
    crowd = tuple(Device(f"d{number}") for number in range(DEVICES_MAX + 1))
    assert len(check_findings(Findings(crowd[1:])).devices) == DEVICES_MAX
    with pytest.raises(BackendError, match="16,385 devices, over 16,384"):
        check_findings(Findings(crowd))


def test_a_cause_is_cut_to_what_people_read() -> None:
    cause = Cause("c" * 5000, CauseKind.PERMANENT, "m" * 5000)
    assert len(str(check_cause(cause))) <= 2 * CAUSE_MAX + 2


@pytest.mark.parametrize(
    "junk",
    [
        None,
        "smoke",
        Cause("a", "permanent"),  # type: ignore[arg-type]  # the point
        Cause(1, CauseKind.PERMANENT),  # type: ignore[arg-type]  # the point
        Cause("a", CauseKind.PERMANENT, hold_s="1s"),  # type: ignore[arg-type]  # the point
    ],
)
def test_what_is_no_cause_is_refused(junk: Any) -> None:
    with pytest.raises(BackendError):
        check_cause(junk)
