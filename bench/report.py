"""Turns results into a table for people and an object for programs. Must not measure anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench.rows import AIO, GO, OURS, ROWS, TARGETS, Results, Row, Spread

if TYPE_CHECKING:
    from collections.abc import Sequence

VERDICT = {True: "pass", False: "SHORT"}


def render(results: Results, notes: Sequence[str]) -> str:
    head = ("", OURS, AIO, GO, f"{OURS} / {AIO}", f"{OURS} / {GO}")
    body = [_line(results, row) for row in ROWS if row.key in results.samples]
    parts = [_table([head, *body]), "median [min-max] over the rounds; a ratio is taken round by round"]
    goals = [("target", "wanted", "measured", "")]
    titles = {row.key: row for row in ROWS}
    for target in TARGETS:
        if target.key not in results.samples:
            continue  # not asked for
        row = titles[target.key]
        verdict = results.judge(target)
        if verdict is None:
            goals.append((row.title, target.wording(), "not measured", "-"))
            continue
        value, met = verdict
        unit = "x" if target.against else row.unit
        goals.append((row.title, target.wording(), f"{value:.3g} {unit}", VERDICT[met]))
    parts.append(_table(goals))
    parts += [f"note: {note}" for note in notes]
    return "\n\n".join(parts)


def as_json(results: Results, facts: dict[str, Any], notes: Sequence[str]) -> dict[str, Any]:
    targets = []
    for target in TARGETS:
        verdict = results.judge(target)
        targets.append(
            {
                "row": target.key,
                "against": target.against,
                "at_most": target.at_most,
                "at_least": target.at_least,
                "measured": verdict and verdict[0],
                "met": verdict and verdict[1],
            }
        )
    units = {row.key: row.unit for row in ROWS}
    return {"facts": facts, "units": units, "samples": results.samples, "targets": targets, "notes": list(notes)}


def _line(results: Results, row: Row) -> tuple[str, ...]:
    title = f"{row.title} ({row.unit})" if row.unit else row.title
    values = [_spread(results.spread(row.key, name), row.digits) for name in (OURS, AIO, GO)]
    ratios = [_spread(results.ratio(row.key, name), 2) if row.compared else "" for name in (AIO, GO)]
    return (title, *values, *ratios)


def _spread(spread: Spread | None, digits: int) -> str:
    if spread is None:
        return ""
    median, low, high = (f"{value:.{digits}f}" for value in (spread.median, spread.low, spread.high))
    return median if low == high else f"{median} [{low}-{high}]"


def _table(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    drawn = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join([drawn[0], "  ".join("─" * width for width in widths), *drawn[1:]])
