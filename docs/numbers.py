"""The tables of the last measured run, from docs/bench.json: ranges, ratios, and whether targets were met."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

RUN = Path(__file__).with_name("bench.json")
OURS, THEIRS = "fairlead", "NVIDIA"


def facts() -> dict[str, Any]:
    return dict(json.loads(RUN.read_text(encoding="utf-8"))["facts"])


def summary() -> str:
    told = facts()
    return (
        f"Fairlead {told['fairlead']} on Python {told['python']} beside NVIDIA's plugin {told['nvidia']}, "
        f"{told['date']}: {told['system']}, {told['cores']} cores, load of other programs {told['load']:g}, "
        f"{told['rounds']} rounds. The driver is simulated."
    )


def command() -> str:
    """What made the run."""
    only = " ".join(f"--only {name}" for name in _tables())
    return f"python -m bench {only} --rounds {facts()['rounds']} --json docs/bench.json"


def alone() -> Iterator[tuple[str, list[tuple[str, ...]]]]:
    """Of what was measured without another plugin, a title and rows: title, ours, target."""
    for name, table in _tables().items():
        if name != "nvidia":
            yield table["title"], list(_alone(table))


def _alone(table: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    targets = {target["row"]: target for target in table["targets"]}
    for key, row in table["rows"].items():
        if samples := table["samples"].get(key, {}).get(OURS):
            yield row["title"], f"{_range(samples, row['digits'])} {row['unit']}", _target(targets.get(key))


def _tables() -> dict[str, Any]:
    return dict(json.loads(RUN.read_text(encoding="utf-8"))["tables"])


def rows() -> Iterator[tuple[str, ...]]:
    """One per measure beside NVIDIA's plugin: title, ours, theirs, ratio, target."""
    table = _tables()["nvidia"]
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
