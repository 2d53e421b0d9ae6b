"""The tables of the last measured run, from docs/bench.json: ranges, ratios, and whether targets were met."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

RUN = Path(__file__).with_name("bench.json")
ALONE = Path(__file__).with_name("bench-alone.json")  # what is measured without another plugin, in a run of its own
OURS, THEIRS = "fairlead", "NVIDIA"


def summary() -> str:
    told = _read(RUN)["facts"]
    return (
        f"Fairlead {told['fairlead']} beside NVIDIA's plugin {told['nvidia']}, {_where(told)}. The driver is simulated."
    )


def command(run: Path) -> str:
    """What made a run."""
    made = _read(run)
    only = " ".join(f"--only {name}" for name in made["tables"])
    return f"python -m bench {only} --rounds {made['facts']['rounds']} --json docs/{run.name}"


def summary_alone() -> str:
    told = _read(ALONE)["facts"]
    return f"Fairlead {told['fairlead']}, {_where(told)}. Sysfs and device nodes are simulated."


def alone() -> Iterator[tuple[str, list[tuple[str, ...]]]]:
    """A title and rows: title, ours, target."""
    for table in _read(ALONE)["tables"].values():
        yield table["title"], list(_alone(table))


def _alone(table: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    targets = {target["row"]: target for target in table["targets"]}
    for key, row in table["rows"].items():
        if samples := table["samples"].get(key, {}).get(OURS):
            yield row["title"], f"{_range(samples, row['digits'])} {row['unit']}", _target(targets.get(key))


def _where(told: dict[str, Any]) -> str:
    return (
        f"Python {told['python']}, {told['date']}: {told['system']}, {told['cores']} cores, "
        f"load of other programs {told['load']:g}, {told['rounds']} rounds"
    )


def _read(run: Path) -> dict[str, Any]:
    return dict(json.loads(run.read_text(encoding="utf-8")))


def rows() -> Iterator[tuple[str, ...]]:
    """One per measure beside NVIDIA's plugin: title, ours, theirs, ratio, target."""
    table = _read(RUN)["tables"]["nvidia"]
    targets = {target["row"]: target for target in table["targets"]}
    for key, row in table["rows"].items():
        samples = table["samples"].get(key)
        if samples is None:
            continue
        ours, theirs = samples[OURS], samples[THEIRS]
        unit = f" {row['unit']}" if row["unit"] else ""
        yield (
            row["title"],
            f"{_range(ours, row['digits'])}{unit}",
            f"{_range(theirs, row['digits'])}{unit}",
            f"{_ratio(ours, theirs):.2g}",
            _target(targets.get(key)),
        )


def _ratio(ours: Iterable[float], theirs: Iterable[float]) -> float:
    """The median over rounds: what was measured in one round is compared with the same round of the other."""
    return median(one / other for one, other in zip(ours, theirs, strict=True))


def _range(samples: list[float], digits: int) -> str:
    least, most = (f"{value:,.{digits}f}" for value in (min(samples), max(samples)))
    return least if least == most else f"{least} to {most}"


def _target(target: dict[str, Any] | None) -> str:
    if target is None:
        return ""
    bound = f"≤ {target['at_most']:g}" if target["at_most"] is not None else f"≥ {target['at_least']:g}"
    return f"{bound}: {'met' if target['met'] else '**missed**'}"
