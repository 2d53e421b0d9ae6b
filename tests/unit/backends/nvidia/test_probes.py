"""What GPUs answer when they are asked how they are."""

from __future__ import annotations

from typing import cast

import pytest

from fairlead.backends.nvidia.driver import Driver
from fairlead.backends.nvidia.errors import NvmlError
from fairlead.backends.nvidia.faults import Faults
from fairlead.backends.nvidia.probes import Verdicts
from fairlead.backends.nvidia.records import Gpu
from fairlead.backends.nvidia.spec import Health

GPU = Gpu("GPU-0", 0, 0)
FAULTS = Faults(Health())


class Scripted:
    """A driver that answers as it is told."""

    def __init__(self) -> None:
        self.code = 0
        self.wanted = 0
        self.asked = 0
        self.sessions = 1
        self.pending = self.failed = False

    def ask(self, uuid: str) -> None:
        self.asked += 1
        if self.code:
            raise NvmlError("nvmlDeviceGetMemoryInfo", self.code, f"no answer from {uuid}")

    def action(self, uuid: str) -> int | None:
        return self.wanted if uuid == GPU.uuid else None

    def rows(self, uuid: str) -> tuple[bool, bool] | None:
        return (self.pending, self.failed) if uuid == GPU.uuid else None


@pytest.fixture
def driver() -> Scripted:
    return Scripted()


@pytest.fixture
def verdicts(driver: Scripted) -> Verdicts:
    return Verdicts(cast("Driver", driver), FAULTS)


def verdict(verdicts: Verdicts) -> str | None:
    verdicts.ask([GPU])
    cause = verdicts.found[GPU.uuid]
    return cause.code if cause else None


@pytest.mark.parametrize(
    ("code", "cause"), [(0, None), (15, "gpu-lost"), (6, "gpu-lost"), (16, "reset-required"), (999, "nvml-error")]
)
def test_each_answer_has_its_cause(driver: Scripted, verdicts: Verdicts, code: int, cause: str | None) -> None:
    driver.code = code
    assert verdict(verdicts) == cause


def test_a_gpu_that_fell_is_not_clean_while_the_driver_wants_a_reset(driver: Scripted, verdicts: Verdicts) -> None:
    driver.wanted = 4
    assert verdict(verdicts) is None  # advice alone withdraws nobody
    verdicts.remember(GPU.uuid, FAULTS.of_xid(31)[0])
    assert verdict(verdicts) is None  # nor does the fault of a program
    verdicts.remember(GPU.uuid, FAULTS.of_xid(95)[0])
    assert verdict(verdicts) == "reset-required"
    driver.wanted = 0
    assert verdict(verdicts) is None


@pytest.mark.parametrize("action", [1, 2])
def test_a_reset_that_the_driver_asked_for_before_the_session_is_found(
    driver: Scripted, verdicts: Verdicts, action: int
) -> None:
    driver.wanted = action
    assert verdict(verdicts) == "reset-required"
    driver.wanted = 0
    assert verdict(verdicts) is None


def test_rows_that_wait_for_a_reset_are_found_when_a_session_begins(driver: Scripted, verdicts: Verdicts) -> None:
    driver.pending = True
    assert verdict(verdicts) == "rows-pending"
    driver.pending, driver.failed = False, True
    assert verdict(verdicts) == "rows-failed"
    driver.failed = False
    assert verdict(verdicts) is None
    driver.pending = True
    assert verdict(verdicts) is None  # within a session an event tells of it
    driver.sessions += 1
    assert verdict(verdicts) == "rows-pending"


def test_rows_do_not_count_where_their_xids_are_ignored(driver: Scripted) -> None:
    verdicts = Verdicts(cast("Driver", driver), Faults(Health(ignored_xids=(63, 64))))
    driver.pending = driver.failed = True
    assert verdict(verdicts) is None


def test_a_hang_replaces_no_answer_of_another_gpu(verdicts: Verdicts) -> None:
    verdicts.ask([GPU])
    verdicts.hangs("GPU-1")
    assert verdicts.found["GPU-0"] is None
    assert [(gpu, cause.code) for gpu, cause in verdicts.bad()] == [("GPU-1", "nvml-hang")]
