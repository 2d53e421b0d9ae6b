"""Verdicts: what each GPU answered when it was last asked how it is.

All GPUs are asked in one call to the thread: a round of probes is one call, however many devices are cut from them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fairlead.backends.nvidia import faults, nvml
from fairlead.backends.nvidia.driver import Driver
from fairlead.backends.nvidia.errors import NvmlError
from fairlead.backends.nvidia.faults import Faults
from fairlead.backends.nvidia.records import Gpu
from fairlead.model.health import Cause, CauseKind

_ACTIONS = {
    1: "reset the GPU",
    2: "restart the node",
    3: "end what uses its links to other GPUs",
    4: "drain and reset the GPU",
    6: "reset the bus",
    7: "restart the machine",
}


class Verdicts:
    def __init__(self, driver: Driver, table: Faults) -> None:
        self._driver = driver
        self._table = table
        self.found: dict[str, Cause | None] = {}  # by the GPU's UUID
        self._ill: set[str] = set()  # GPUs that had a fault which needs a reset

    def ask(self, gpus: Sequence[Gpu]) -> None:
        """On the owner thread. Each answer counts as soon as it is there: a later one may hang."""
        self.found = {}
        for gpu in gpus:
            self.found[gpu.uuid] = self._ask(gpu.uuid)

    def bad(self) -> Iterator[tuple[str, Cause]]:
        yield from ((gpu, cause) for gpu, cause in self.found.items() if cause is not None)

    def hangs(self, gpu: str) -> None:
        """The driver went to ask this GPU and did not come back."""
        if gpu:
            self.found = {**self.found, gpu: self._table.of(faults.HANG)[0]}

    def remember(self, gpu: str, cause: Cause) -> None:
        """From now on the driver is asked too whether this GPU waits for a reset: that it answers proves nothing."""
        if cause.kind is CauseKind.NEEDS_RESET:
            self._ill.add(gpu)

    def _ask(self, gpu: str) -> Cause | None:
        try:
            self._driver.ask(gpu)
        except NvmlError as error:
            return self._cause(error)
        action = self._driver.wants_reset(gpu) if gpu in self._ill else 0
        return self._table.of(faults.RESET_REQUIRED, _ACTIONS[action])[0] if action in _ACTIONS else None

    def _cause(self, error: NvmlError) -> Cause | None:
        if error.code in {nvml.GPU_IS_LOST, nvml.NOT_FOUND}:
            return self._table.of(faults.GPU_LOST)[0]
        if error.code == nvml.RESET_REQUIRED:
            return self._table.of(faults.RESET_REQUIRED)[0]
        return self._table.of(faults.NO_ANSWER, str(error))[0]
