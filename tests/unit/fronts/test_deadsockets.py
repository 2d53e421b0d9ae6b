"""Sockets with a time in their name that an earlier process left."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from tests.recorded.stage import leave_socket

from fairlead.fronts.deadsockets import MOST, remove_dead_sockets

TEMPLATE = "nvidiaGPU-{started}.sock"


@pytest.fixture
def directory(kubelet_root: Path) -> Path:
    return kubelet_root


def test_only_dead_sockets_of_this_form_are_removed(directory: Path):
    for name in ("nvidiaGPU-1700000000.sock", "nvidiaGPU-2.sock", "nvidiaGPU-x.sock", "other.sock", "kubelet.sock"):
        leave_socket(directory / name)
    (directory / "nvidiaGPU-3.sock").touch()
    (directory / "nvidiaGPU-4.sock").symlink_to(directory / "other.sock")
    with socket.socket(socket.AF_UNIX) as alive:
        alive.bind(str(directory / "nvidiaGPU-5.sock"))
        alive.listen(1)
        assert remove_dead_sockets(directory, TEMPLATE) == ["nvidiaGPU-1700000000.sock", "nvidiaGPU-2.sock"]
    kept = {path.name for path in directory.glob("*.sock")}
    assert kept == {"nvidiaGPU-x.sock", "other.sock", "kubelet.sock", *(f"nvidiaGPU-{n}.sock" for n in (3, 4, 5))}


def test_names_of_resources_may_be_part_of_it(directory: Path):
    leave_socket(directory / "a-x.com_gpu-7.sock")
    assert remove_dead_sockets(directory, "a-{domain}_{name}-{started}.sock") == ["a-x.com_gpu-7.sock"]


def test_a_directory_full_of_them_is_cleared_in_parts(directory: Path):
    for number in range(MOST + 5):
        (directory / f"nvidiaGPU-{number}.sock").touch()
    leave_socket(directory / "nvidiaGPU-0000.sock")
    assert remove_dead_sockets(directory, TEMPLATE) == ["nvidiaGPU-0000.sock"]
