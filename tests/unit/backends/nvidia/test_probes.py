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
        self.action = 0
        self.asked = 0

    def ask(self, uuid: str) -> None:
        self.asked += 1
        if self.code:
            raise NvmlError("nvmlDeviceGetMemoryInfo", self.code, f"no answer from {uuid}")

    def wants_reset(self, uuid: str) -> int:
        return self.action if uuid == GPU.uuid else 0


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
    driver.action = 4
    assert verdict(verdicts) is None  # advice alone withdraws nobody
    verdicts.remember(GPU.uuid, FAULTS.of_xid(31)[0])
    assert verdict(verdicts) is None  # nor does the fault of a program
    verdicts.remember(GPU.uuid, FAULTS.of_xid(95)[0])
    assert verdict(verdicts) == "reset-required"
    driver.action = 0
    assert verdict(verdicts) is None


def test_a_hang_replaces_no_answer_of_another_gpu(verdicts: Verdicts) -> None:
    verdicts.ask([GPU])
    verdicts.hangs("GPU-1")
    assert verdicts.found["GPU-0"] is None
    assert [(gpu, cause.code) for gpu, cause in verdicts.bad()] == [("GPU-1", "nvml-hang")]
