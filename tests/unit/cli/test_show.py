"""The tables of a status, also of one from a newer daemon."""

from __future__ import annotations

from fairlead.cli import show
from fairlead.observe.status import DeviceStatus, Status


def device(health: str, since_s: float) -> DeviceStatus:
    return DeviceStatus(
        id="GPU-1",
        index="1",
        vendor="nvidia",
        model="H100",
        memory_bytes=0,
        pci_address="",
        numa_nodes=(),
        nodes=(),
        parent=None,
        backend="sim",
        health=health,
        cause="xid-79: it fell off the bus",
        cured_by=(),
        since_s=since_s,
        resource=None,
        rule="",
        slots=0,
        held=0,
        holders=(),
    )


def status(*devices: DeviceStatus) -> Status:
    return Status(
        version="9",
        pid=1,
        instance="fairlead",
        started_s=1000.0,
        now_s=2000.0,
        config="c.yaml",
        directory="/d",
        holders_known=True,
        holders_problem="",
        backends=(),
        devices=devices,
        resources=(),
        problems=(),
    )


def test_the_cause_is_shown_with_its_age():
    assert "device 1: unhealthy for 10 s: xid-79: it fell off the bus" in show.status(
        status(device("unhealthy", 1990.0))
    )


def test_the_cause_is_shown_whatever_a_newer_daemon_calls_the_state():
    assert "device 1: draining for 10 s: xid-79" in show.status(status(device("draining", 1990.0)))


def test_a_cause_without_a_time_has_no_age():
    assert "device 1: unhealthy: xid-79" in show.status(status(device("unhealthy", 0.0)))
