"""What GPUs answer when they are asked how they are."""

from __future__ import annotations

from typing import cast

import pytest

from fairlead.backends.nvidia.driver import Driver
from fairlead.backends.nvidia.errors import NvmlError
from fairlead.backends.nvidia.faults import Faults
from fairlead.backends.nvidia.probes import Probes
from fairlead.backends.nvidia.snapshot import Gpu
from fairlead.backends.nvidia.spec import Health

GPU = Gpu("GPU-0", 0, 0)
FAULTS = Faults(Health())


class Scripted:
    """A driver that answers as it is told."""

    def __init__(self) -> None:
        self.code = 0
        self.protected = 0
        self.asked = 0
        self.sessions = 1
        self.pending = self.failed = False

    def ask(self, uuid: str) -> None:
        self.asked += 1
        if self.code:
            raise NvmlError("nvmlDeviceGetMemoryInfo", self.code, f"no answer from {uuid}")

    def action(self, uuid: str) -> int | None:
        return self.protected if uuid == GPU.uuid else None

    def rows(self, uuid: str) -> tuple[bool, bool] | None:
        return (self.pending, self.failed) if uuid == GPU.uuid else None


@pytest.fixture
def driver() -> Scripted:
    return Scripted()


@pytest.fixture
def probes(driver: Scripted) -> Probes:
    return Probes(cast("Driver", driver), FAULTS)


def verdict(probes: Probes) -> str | None:
    probes.ask([GPU])
    cause = probes.results[GPU.uuid]
    return cause.code if cause else None


@pytest.mark.parametrize(
    ("code", "cause"), [(0, None), (15, "gpu-lost"), (6, "gpu-lost"), (16, "reset-required"), (999, "nvml-error")]
)
def test_each_answer_has_its_cause(driver: Scripted, probes: Probes, code: int, cause: str | None) -> None:
    driver.code = code
    assert verdict(probes) == cause


def test_a_gpu_that_fell_is_not_clean_while_the_driver_wants_a_reset(driver: Scripted, probes: Probes) -> None:
    driver.protected = 4
    assert verdict(probes) is None  # advice alone withdraws nobody
    probes.remember(GPU.uuid, FAULTS.of_xid(31)[0])
    assert verdict(probes) is None  # nor does the fault of a program
    probes.remember(GPU.uuid, FAULTS.of_xid(95)[0])
    assert verdict(probes) == "reset-required"
    driver.protected = 0
    assert verdict(probes) is None


@pytest.mark.parametrize("action", [1, 2])
def test_a_reset_that_the_driver_asked_for_before_the_session_is_found(
    driver: Scripted, probes: Probes, action: int
) -> None:
    driver.protected = action
    assert verdict(probes) == "reset-required"
    driver.protected = 0
    assert verdict(probes) is None


def test_rows_that_wait_for_a_reset_are_found_when_a_session_begins(driver: Scripted, probes: Probes) -> None:
    driver.pending = True
    assert verdict(probes) == "rows-pending"
    driver.pending, driver.failed = False, True
    assert verdict(probes) == "rows-failed"
    driver.failed = False
    assert verdict(probes) is None
    driver.pending = True
    assert verdict(probes) is None  # within a session an event tells of it
    driver.sessions += 1
    assert verdict(probes) == "rows-pending"


def test_rows_do_not_count_where_their_xids_are_ignored(driver: Scripted) -> None:
    probes = Probes(cast("Driver", driver), Faults(Health(ignored_xids=(63, 64))))
    driver.pending = driver.failed = True
    assert verdict(probes) is None


def test_a_hang_replaces_no_answer_of_another_gpu(probes: Probes) -> None:
    probes.ask([GPU])
    probes.record_hang("GPU-1")
    assert probes.results["GPU-0"] is None
    assert [(gpu, cause.code) for gpu, cause in probes.failing()] == [("GPU-1", "nvml-hang")]
