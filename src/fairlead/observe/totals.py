"""What a daemon counts for its metrics, and what its process knows of itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import Struct

from fairlead.model.device import Usage
from fairlead.model.health import Health
from fairlead.model.names import DeviceId
from fairlead.observe.exposition import Histogram
from fairlead.observe.journal import Fact
from fairlead.observe.process import Process

CODES_MAX = 200  # causes that totals are kept of
# Events of the journal that are counted by resource, and the result that each stands for.
ALLOCATIONS = {"allocated": "granted", "allocate-refused": "refused"}
PREPARES = {"prepared": "done", "prepare-failed": "failed"}
ASSIGNMENTS = {
    "assigned": "assigned",
    "assignment-missing": "missing",
    "assignment-rewritten": "rewritten",
    "assignment-wrong": "wrong",
    "assignment-lost": "lost",
}
# Events that only a defect of the daemon causes.
DEFECTS = frozenset({"call-failed", "endpoint-crashed", "loop-error", "task-crashed"})


class Totals:
    """What only grows: counted from the facts of the journal, and around the kubelet's calls."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self.calls: dict[str, Histogram] = {}
        self.allocations: Counter[tuple[str, str]] = Counter()  # resource, result
        self.prepares: Counter[tuple[str, str]] = Counter()
        self.assignments: Counter[tuple[str, str]] = Counter()
        self.defects: Counter[str] = Counter()  # by the event of the journal
        self.loop_blocked_s = 0.0
        self.faults: Counter[str] = Counter()  # by the code of the cause
        self.recoveries = 0
        self.first_list_s: float | None = None  # wall time
        self.config_applied_s: float | None = None

    def note(self, fact: Fact) -> None:
        keys = fact.keys
        match fact.kind:
            case "allocated" | "allocate-refused":
                self.allocations[str(keys["resource"]), ALLOCATIONS[fact.kind]] += 1
            case "prepared" | "prepare-failed":
                self.prepares[str(keys["resource"]), PREPARES[fact.kind]] += 1
            case Health.UNHEALTHY:
                code = str(keys.get("cause", "")).partition(":")[0]
                self.faults[code if code in self.faults or len(self.faults) < CODES_MAX else "other"] += 1
            case Health.HEALTHY if keys.get("was") != Health.SUSPECT:
                self.recoveries += 1
            case "streaming" if self.first_list_s is None:
                self.first_list_s = fact.at_s
            case "config-applied":
                self.config_applied_s = fact.at_s
            case "loop-resumed":
                self.loop_blocked_s += float(keys["seconds"])
            case event if event in ASSIGNMENTS:
                self.assignments[str(keys["resource"]), ASSIGNMENTS[event]] += 1
            case event if event in DEFECTS:
                self.defects[event] += 1

    def timed(self, name: str, handler: Callable[..., Any]) -> Callable[..., Any]:
        """The handler of a unary call, with its time observed. It may give the answer, or something that is awaited."""
        observe, clock = self.calls.setdefault(name, Histogram()).observe, self._monotonic

        async def later(answer: Awaitable[Any], began_s: float) -> Any:
            try:
                return await answer
            finally:
                observe(clock() - began_s)

        def call(*arguments: Any) -> Any:
            began_s = clock()
            try:
                answer = handler(*arguments)
            except BaseException:
                observe(clock() - began_s)
                raise
            if isinstance(answer, Awaitable):
                return later(answer, began_s)
            observe(clock() - began_s)
            return answer

        return call


class Own(Struct, frozen=True, kw_only=True):
    """What the process knows of itself, beside the snapshot."""

    registrations: Mapping[tuple[str, str], int]  # by resource and signal
    names: tuple[str, ...] = ()  # of other systems, which are served too
    usage: Mapping[DeviceId, Usage] = {}  # how busy devices are, where it is wanted and known
    refused: tuple[str, ...] = ()  # resources whose list is too large for the kubelet
    scan_interval_s: float = 60.0
    probe_interval_s: float = 5.0  # the longest time between two rounds
    probed_s: Mapping[str, float | None] = {}  # by backend whose devices can be asked; None: not yet
    api_server_answers: bool | None = None  # None: it was not asked
    differences: Mapping[str, int] | None = None  # of the last audit, by kind; None: there was none
    node: str = ""  # the name of this node in the cluster, where it is known
    config_hash: str
    config_problem: str
    restart_needed: bool = False  # for a part of the configuration
    process: Process
