"""Probes: what each GPU answered when it was last asked how it is.

All GPUs are asked in one call to the thread: a round of probes is one call, however many devices are cut from them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fairlead.backends.nvidia import faults, nvml
from fairlead.backends.nvidia.driver import Driver
from fairlead.backends.nvidia.errors import NvmlError
from fairlead.backends.nvidia.faults import Faults
from fairlead.backends.nvidia.snapshot import Gpu
from fairlead.model.health import Cause, CauseKind

ACTIONS = {
    1: "reset the GPU",
    2: "restart the node",
    3: "end what uses its links to other GPUs",
    4: "drain and reset the GPU",
    6: "reset the bus",
    7: "restart the machine",
}
_AT_ONCE = frozenset({1, 2, 6, 7})  # the others are advice: a GPU that had no fault is used until they are followed
_PENDING_XID, _FAILED_XID = 63, 64


class Probes:
    def __init__(self, driver: Driver, table: Faults) -> None:
        self._driver = driver
        self._table = table
        self.results: dict[str, Cause | None] = {}  # by the GPU's UUID
        self._faulty: set[str] = set()  # GPUs that had a fault which needs a reset
        self._no_reset_asked: set[str] = set()  # GPUs that asked for no reset when this session began
        self._session = 0

    def ask(self, gpus: Sequence[Gpu]) -> None:
        """On the owner thread. Each answer counts as soon as it is there: a later one may hang."""
        self.results = {}
        if self._session != self._driver.sessions:
            self._session = self._driver.sessions
            self._no_reset_asked.clear()
        for gpu in gpus:
            self.results[gpu.uuid] = self._ask(gpu.uuid)

    def failing(self) -> Iterator[tuple[str, Cause]]:
        yield from ((gpu, cause) for gpu, cause in self.results.items() if cause is not None)

    def record_hang(self, gpu: str) -> None:
        """The driver went to ask this GPU and did not come back."""
        if gpu:
            self.results = {**self.results, gpu: self._table.of(faults.HANG)[0]}

    def remember(self, gpu: str, cause: Cause) -> None:
        """From now on the driver is asked too whether this GPU waits for a reset: that it answers proves nothing."""
        if cause.kind is CauseKind.NEEDS_RESET:
            self._faulty.add(gpu)

    def _ask(self, gpu: str) -> Cause | None:
        try:
            self._driver.ask(gpu)
        except NvmlError as error:
            return self._cause(error)
        if gpu in self._no_reset_asked and gpu not in self._faulty:
            return None
        cause = self._wants_reset(gpu)
        if cause is None:
            self._no_reset_asked.add(gpu)
        return cause

    def _wants_reset(self, gpu: str) -> Cause | None:
        """Asked when a session begins, so that a fault from before it is found again; and of GPUs that had one."""
        action = self._driver.action(gpu) or 0
        if action in _AT_ONCE or (gpu in self._faulty and action in ACTIONS):
            return self._table.of(faults.RESET_REQUIRED, ACTIONS[action])[0]
        pending, failed = self._driver.rows(gpu) or (False, False)
        if failed and not self._table.ignores(_FAILED_XID):
            return self._table.of(faults.ROWS_FAILED)[0]
        if pending and not self._table.ignores(_PENDING_XID):
            return self._table.of(faults.ROWS_PENDING)[0]
        return None

    def _cause(self, error: NvmlError) -> Cause | None:
        if error.code in {nvml.GPU_IS_LOST, nvml.NOT_FOUND}:
            return self._table.of(faults.GPU_LOST)[0]
        if error.code == nvml.RESET_REQUIRED:
            return self._table.of(faults.RESET_REQUIRED)[0]
        return self._table.of(faults.NO_ANSWER, str(error))[0]
