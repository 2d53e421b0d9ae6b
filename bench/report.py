"""Turns results into tables for people and an object for programs. Must not measure anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench.rows import OURS, Results, Row, Spread, Target

if TYPE_CHECKING:
    from collections.abc import Sequence

VERDICT = {True: "pass", False: "SHORT"}
HUNDREDTH = 0.01


def render(sheets: Sequence[Results], notes: Sequence[str]) -> str:
    parts = []
    for results in sheets:
        if results.samples:
            parts += [f"# {results.sheet.title}", _numbers(results), _goals(results)]
    parts.append("median [min-max] over the rounds; a ratio is taken round by round")
    parts += [f"note: {note}" for note in notes]
    return "\n\n".join(parts)


def as_json(sheets: Sequence[Results], facts: dict[str, Any], notes: Sequence[str]) -> dict[str, Any]:
    tables = {results.sheet.name: _as_json(results) for results in sheets if results.samples}
    return {"facts": facts, "notes": list(notes), "tables": tables}


def _as_json(results: Results) -> dict[str, Any]:
    targets = []
    for target in results.sheet.targets:
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
    rows = {row.key: {"title": row.title, "unit": row.unit, "digits": row.digits} for row in results.sheet.rows}
    samples = {
        key: {name: [round(value, 6) for value in sample] for name, sample in by_name.items()}
        for key, by_name in results.samples.items()
    }
    return {"title": results.sheet.title, "rows": rows, "samples": samples, "targets": targets}


def _numbers(results: Results) -> str:
    others = results.sheet.others
    head = ("", OURS, *others, *(f"{OURS} / {other}" for other in others))
    return _table([head, *(_line(results, row) for row in results.sheet.rows if row.key in results.samples)])


def _goals(results: Results) -> str:
    rows = {row.key: row for row in results.sheet.rows}
    lines = [("target", "wanted", "measured", "")]
    lines += [
        _goal(results, target, rows[target.key]) for target in results.sheet.targets if target.key in results.samples
    ]
    return _table(lines)


def _goal(results: Results, target: Target, row: Row) -> tuple[str, str, str, str]:
    verdict = results.judge(target)
    if verdict is None:
        return row.title, target.wording(), "not measured", "-"
    value, met = verdict
    return row.title, target.wording(), f"{value:.3g} {'x' if target.against else row.unit}", VERDICT[met]


def _line(results: Results, row: Row) -> tuple[str, ...]:
    title = f"{row.title} ({row.unit})" if row.unit else row.title
    others = results.sheet.others
    values = [_spread(results.spread(row.key, name), row.digits) for name in (OURS, *others)]
    ratios = [_ratio(results.ratio(row.key, name)) if row.compared else "" for name in others]
    return (title, *values, *ratios)


def _ratio(spread: Spread | None) -> str:
    return _spread(spread, 2 if spread is None or spread.median >= HUNDREDTH else 5)


def _spread(spread: Spread | None, digits: int) -> str:
    if spread is None:
        return ""
    median, low, high = (f"{value:.{digits}f}" for value in (spread.median, spread.low, spread.high))
    return median if low == high else f"{median} [{low}-{high}]"


def _table(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    drawn = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join([drawn[0], "  ".join("─" * width for width in widths), *drawn[1:]])
