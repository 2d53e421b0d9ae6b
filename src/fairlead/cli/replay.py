"""`fairlead replay` and `fairlead explain --recording`: what a daemon did, from a recording of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fairlead.cli.draw import paint, short, table
from fairlead.cli.options import json_option, load_config, print_answer
from fairlead.cli.say import say
from fairlead.model.errors import UsageError

if TYPE_CHECKING:
    from fairlead.programs.replay.compare import Difference, Report
    from fairlead.programs.replay.past import Decision

DIFFERENT = 1  # exit code
SHOWN = 20  # differences and decisions that are drawn; --json has all


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--config", metavar="FILE", help="Answer with the rules and health of this configuration, and compare.")
@json_option
def replay(file: Path, config: str | None, as_json: bool) -> None:
    """Play a recording again and compare the answers.

    Everything that the daemon was told is told to the same engine again: without hardware, without a kubelet, at once.
    Without --config all lists and answers must come out as they were recorded. Ends with 1 if something differs.
    """
    from fairlead.programs.replay.compare import Comparison, Report  # noqa: PLC0415 - loads the engine

    other = load_config(config, {}) if config is not None else None
    report = Comparison(file, other).run()
    print_answer(report, as_json, draw, Report)
    if not report.same:
        sys.exit(DIFFERENT)


def draw(report: Report) -> str:
    counted = f"{report.records:,} records, {report.lists:,} lists, {report.calls:,} calls"
    if report.registered or report.refused:
        counted += f", {report.registered:,} registration{'' if report.registered == 1 else 's'}"
    if report.refused:
        counted += f" ({report.refused:,} refused)"
    head = f"{_time(report.began_s)} to {_time(report.ended_s)}: {counted}"
    if report.same:
        as_before = f"with {report.config} as it was" if report.config else "byte for byte as recorded"
        verdict = paint(f"every list and every answer is {as_before}", "good")
    else:
        count = len(report.differences) + report.untold
        verdict = paint(f"{count:,} difference{'' if count == 1 else 's'}", "warn" if report.config else "bad")
    more = len(report.differences) + report.untold - SHOWN
    return "\n".join(
        [
            f"{paint(report.program, 'bold')}  {head}",
            verdict,
            *(_difference(each, report.config) for each in report.differences[:SHOWN]),
            *([paint(f"and {more:,} more: --json", "dim")] if more > 0 else []),
            *([f"{report.not_replayed:,} calls act on hardware, and were not made again"] * bool(report.not_replayed)),
            *(paint(note, "warn") for note in report.notes),
        ]
    )


def _difference(one: Difference, config: str) -> str:
    now = config or "played again"
    width = max(len(now), len("recorded"))
    return "\n".join(
        [
            "",
            f"{_time(one.at_s)}  {paint(one.what, 'bold')}",
            f"  {'recorded':{width}}  {one.recorded}",
            f"  {now:{width}}  {one.now}",
        ]
    )


def explain_past(recording: Path, at: str | None, pod: str | None, slot: str | None, as_json: bool) -> None:
    from fairlead.cli.options import read_time  # noqa: PLC0415 - as below
    from fairlead.kit.clock import SystemClock  # noqa: PLC0415 - as below
    from fairlead.programs.replay.past import Decision, Wanted, decisions  # noqa: PLC0415 - loads the engine

    at_s = read_time("--at", at, SystemClock().now()) if at else None
    notes: list[str] = []
    found = decisions(recording, Wanted(at_s, pod or "", slot or ""), notes)
    for note in notes:
        say(note)
    if not found:
        raise UsageError(f"{recording}: no decision is about that. Without --at, --pod and --slot all are shown")
    print_answer(found, as_json, draw_decisions, list[Decision])


def draw_decisions(found: list[Decision]) -> str:
    older = len(found) - SHOWN
    return "\n\n".join(
        [
            *([paint(f"{older:,} older decisions are left out: --json", "dim")] if older > 0 else []),
            *map(_decision, found[-SHOWN:]),
        ]
    )


def _decision(one: Decision) -> str:
    lines = [f"{_time(one.at_s)}  {one.call} of {paint(one.resource, 'bold')}: {one.asked}"]
    if one.refused:
        lines.append(paint(f"  refused: {one.refused}", "bad"))
    else:
        slots = ", ".join(one.slots[:SHOWN]) + (f" and {len(one.slots) - SHOWN} more" if len(one.slots) > SHOWN else "")
        lines.append(f"  {paint(slots or 'no preference', 'good')}{f'  for {one.pod}' if one.pod else ''}")
    if one.reasons:
        rows = [["✓" if each.picked else "", short(each.device, 24), each.score, each.why] for each in one.reasons]
        lines += [f"  {line}" for line in table(["", "DEVICE", "SCORE", "WHY"], rows, right=(2,)).splitlines()]
    lines += [paint(f"  not usable then: {device}", "warn") for device in one.unusable[:SHOWN]]
    return "\n".join(lines)


def _time(at_s: float) -> str:
    from fairlead.observe.journal import stamp  # noqa: PLC0415 - only this

    return stamp(at_s)
