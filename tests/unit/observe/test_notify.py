"""What a service manager hears, wherever it listens."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from fairlead.config.settings import Supervision, supervision
from fairlead.observe.notify import Notifier


@pytest.mark.parametrize("abstract", [False, True])
def test_a_state_is_one_datagram(kubelet_root: Path, abstract: bool):
    name = f"{kubelet_root}/notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0{name}" if abstract else name)
        manager.settimeout(5)
        notifier = Notifier(f"@{name}" if abstract else name)
        notifier.tell("READY=1")
        assert manager.recv(100) == b"READY=1"
        notifier.close()
        notifier.tell("STOPPING=1")  # too late, and no error


@pytest.mark.parametrize("address", ["", "/nowhere/notify"])
def test_nobody_who_listens_is_no_error(address: str):
    notifier = Notifier(address)
    notifier.tell("READY=1")
    notifier.close()


def test_the_managers_variables_are_taken_and_not_passed_on():
    environ = {"NOTIFY_SOCKET": "/run/n", "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid()), "OTHER": "1"}
    assert supervision(environ) == Supervision("/run/n", 3.0)
    assert environ == {"OTHER": "1"}


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"NOTIFY_SOCKET": "relative", "WATCHDOG_USEC": "x"},
        {"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"},
        {"WATCHDOG_USEC": "-1"},
    ],
)
def test_what_is_not_meant_for_us_is_passed_over(environ: dict[str, str]):
    assert supervision(environ) == Supervision()
