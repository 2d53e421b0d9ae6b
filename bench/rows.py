"""The rows of the table and the targets: names, units, which way is better, what is promised.

Owns the arithmetic of medians and ratios. Must not know how a number was taken.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

OURS, AIO, GO, NVIDIA = "fairlead", "grpc.aio", "grpc-go", "NVIDIA"
BUSY_LOAD = 1.0  # of other programs: their turns show in the numbers


@dataclass(frozen=True, slots=True)
class Row:
    key: str
    title: str
    unit: str
    digits: int = 2
    compared: bool = True  # whether a ratio says anything


ROWS = (
    Row("start_registered", "start → registered", "ms", 0),
    Row("start_listed", "start → first list", "ms", 0),
    Row("allocate_p50", "Allocate p50", "ms"),
    Row("allocate_p99", "Allocate p99", "ms"),
    Row("admit_p50", "preferred + Allocate p50", "ms"),
    Row("admit_p99", "preferred + Allocate p99", "ms"),
    Row("in_flight", "Allocate, 8 in flight", "calls/s", 0),
    Row("restart_registered", "kubelet restart → registered", "ms", 1),
    Row("restart_listed", "kubelet restart → first list", "ms", 1),
    Row("pss", "PSS", "MB", 1),
    Row("rss", "RSS", "MB", 1),
    Row("threads", "threads", "", 0),
    Row("fds", "open files", "", 0),
    Row("idle_cpu", "idle CPU", "% of a core", 3, compared=False),
    Row("slots_first_frame", "60,000 slots: ListAndWatch → list", "s", 3),
    Row("slots_pss", "60,000 slots: PSS on top", "MB", 1),
    Row("place_128", "placement, 128 devices, worst", "ms", 2),
    Row("place_128_first", "placement, 128 devices, first look", "ms", 2),
    Row("place_16", "placement, 16 devices, worst", "ms", 2),
)


@dataclass(frozen=True, slots=True)
class Target:
    key: str
    against: str | None  # a contestant: the limit is a ratio; None: the limit is in the row's unit
    at_most: float | None = None
    at_least: float | None = None

    def met(self, value: float) -> bool:
        return (self.at_most is None or value <= self.at_most) and (self.at_least is None or value >= self.at_least)

    def wording(self) -> str:
        bound = f"≤ {self.at_most:g}" if self.at_most is not None else f"≥ {self.at_least:g}"
        return f"{bound} x {self.against}" if self.against else bound


TARGETS = (
    Target("allocate_p50", AIO, at_most=0.45),
    Target("in_flight", AIO, at_least=4),
    Target("pss", AIO, at_most=0.65),
    Target("start_registered", AIO, at_most=0.8),
    Target("allocate_p50", GO, at_most=1.5),
    Target("restart_registered", GO, at_most=1.5),
    Target("idle_cpu", None, at_most=0.1),
    Target("slots_first_frame", None, at_most=0.5),
    Target("slots_pss", None, at_most=40),
    Target("place_128", None, at_most=5),
)


@dataclass(frozen=True, slots=True)
class Sheet:
    """One table: whom we are held against, and in what."""

    name: str
    title: str
    others: tuple[str, ...]
    rows: tuple[Row, ...]
    targets: tuple[Target, ...]


TRANSPORT = Sheet("transport", "our daemon beside plugins that do nothing", (AIO, GO), ROWS, TARGETS)
PEER = Sheet(
    "nvidia",
    "`fairlead nvidia` beside NVIDIA's device plugin, on the same simulated driver",
    (NVIDIA,),
    (
        Row("admit_p50", "8 GPUs: preferred + Allocate p50", "ms"),
        Row("admit_p99", "8 GPUs: preferred + Allocate p99", "ms"),
        Row("prefer_16_2", "16 GPUs: preferred, 2", "ms"),
        Row("prefer_16_4", "16 GPUs: preferred, 4", "ms"),
        Row("allocate_p50", "Allocate p50", "ms"),
        Row("allocate_p99", "Allocate p99", "ms"),
        Row("in_flight", "Allocate, 8 in flight", "calls/s", 0),
        Row("start_registered", "start → registered", "ms", 1),
        Row("start_listed", "start → first list", "ms", 1),
        Row("restart_registered", "kubelet restart → registered", "ms", 1),
        Row("restart_listed", "kubelet restart → first list", "ms", 1),
        Row("fault_frame", "XID → list", "ms"),
        Row("pss", "PSS", "MB", 1),
        Row("rss", "RSS", "MB", 1),
        Row("threads", "threads", "", 0),
        Row("fds", "open files", "", 0),
        Row("idle_cpu", "idle CPU", "% of a core", 3),
    ),
    (
        Target("admit_p50", NVIDIA, at_most=0.25),
        Target("admit_p99", NVIDIA, at_most=0.25),
        Target("prefer_16_2", NVIDIA, at_most=0.001),
        Target("prefer_16_4", NVIDIA, at_most=0.001),
        Target("allocate_p50", NVIDIA, at_most=1.0),
        Target("in_flight", NVIDIA, at_least=0.6),
        Target("start_registered", NVIDIA, at_most=4),
        Target("restart_registered", NVIDIA, at_most=1),
        Target("fault_frame", NVIDIA, at_most=1),
        Target("pss", NVIDIA, at_most=0.8),
        Target("idle_cpu", NVIDIA, at_most=1),
    ),
)


@dataclass(frozen=True, slots=True)
class Spread:
    median: float
    low: float
    high: float

    @classmethod
    def of(cls, sample: list[float]) -> Spread:
        return cls(statistics.median(sample), min(sample), max(sample))


@dataclass(slots=True)
class Results:
    """Samples by row and contestant, one per round, in the order of the rounds."""

    sheet: Sheet
    samples: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def add(self, contestant: str, numbers: dict[str, float]) -> None:
        for key, value in numbers.items():
            self.samples.setdefault(key, {}).setdefault(contestant, []).append(value)

    def spread(self, key: str, contestant: str) -> Spread | None:
        sample = self.samples.get(key, {}).get(contestant)
        return Spread.of(sample) if sample else None

    def ratio(self, key: str, against: str) -> Spread | None:
        """Ours over theirs, round by round: both halves of a ratio are taken seconds apart, on a machine as busy."""
        ours, theirs = (self.samples.get(key, {}).get(name, []) for name in (OURS, against))
        ratios = [a / b for a, b in zip(ours, theirs, strict=False) if b]
        return Spread.of(ratios) if ratios else None

    def missed(self) -> list[Target]:
        return [target for target in self.sheet.targets if (verdict := self.judge(target)) and not verdict[1]]

    def judge(self, target: Target) -> tuple[float, bool] | None:
        """The number the target speaks of, and whether it is met; None where it was not measured."""
        spread = self.ratio(target.key, target.against) if target.against else self.spread(target.key, OURS)
        return (spread.median, target.met(spread.median)) if spread else None
