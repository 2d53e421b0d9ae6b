"""`fairlead conformance`: puts a device plugin through the scenarios and draws its report card.

Owns what people see and the exit code. The scenarios, and what they mean, belong to the stand-in.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import Coroutine, Sequence
from typing import Any

from fairlead.backends.strict import did_you_mean
from fairlead.cli.draw import colourful, paint, short
from fairlead.model.errors import HostError, MissingExtra, UsageError

try:
    from fairlead.standin import conformance as suite
except ImportError as error:  # grpcio, or what else the stand-in needs
    raise MissingExtra("conformance", "standin") from error

WORDS = {"pass": "pass", "fail": "FAIL", "advice": "warn", "skip": "skip"}
STYLES = {"pass": "good", "fail": "bad", "advice": "warn", "skip": "dim"}


def show_list(only: str, *, as_json: bool) -> int:
    """Every scenario, with its rule."""
    chosen = choose(only)
    if as_json:
        print(json.dumps(suite.describe_all(chosen), indent=2))  # noqa: T201 - this is the answer
        return 0
    for chapter in suite.CHAPTERS:
        mine = [scenario for scenario in chapter.scenarios if scenario in chosen]
        if mine:
            print(paint(chapter.title, "bold"))  # noqa: T201 - as above
        for scenario in mine:
            print(f"  {scenario.id}  {scenario.level:8}  {scenario.name}: {scenario.rule}")  # noqa: T201 - as above
    return 0


def judge(
    words: Sequence[str],
    *,
    resource: str | None = None,
    only: str = "",
    timeout_s: float = 10.0,
    private_mount: bool = False,
    as_json: bool = False,
) -> int:
    """Plays the scenarios; 0 if every required one that could be played passed."""
    chosen = choose(only)
    if not words:
        raise UsageError("no command was given. Say: fairlead conformance -- ./your-plugin --its-flag {dir}")
    if timeout_s <= 0:
        raise UsageError(f"--timeout {timeout_s:g}: give a number of seconds above 0")
    command = suite.Command(tuple(words), private_mount)
    progress = suite.Progress() if as_json else Lines(len(chosen), _width()).progress()
    work = suite.run(command, chosen, patience=suite.Patience.of(timeout_s), resource=resource, progress=progress)
    try:
        card = asyncio.run(_stoppable(work))
    except suite.CannotStart as error:
        raise UsageError(str(error)) from None
    except suite.NeedsRoot as error:
        raise HostError(str(error)) from None
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except asyncio.CancelledError:
        return 128 + signal.SIGTERM
    if as_json:
        print(json.dumps(card.facts(), indent=2))  # noqa: T201 - this is the answer
    elif not card.trouble:
        print(summary(card))  # noqa: T201 - as above
    if card.trouble:
        sys.stderr.write(f"fairlead: there is nothing to play with: {card.trouble}\n")
    return 0 if card.conforms else 1


async def _stoppable(work: Coroutine[Any, Any, suite.Card]) -> suite.Card:
    """SIGTERM ends the run as Ctrl-C does: with everything that it started."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await work


def choose(only: str) -> list[suite.Scenario]:
    """The scenarios named, such as `C07,C12` or `C41-C58`; all of them for an empty word."""
    known = {scenario.id: scenario for scenario in suite.SCENARIOS}
    if not only.strip():
        return list(known.values())
    wanted: set[str] = set()
    for word in only.upper().replace(" ", "").split(","):
        first, dash, last = word.partition("-")
        for name in (first, last) if dash else (first,):
            if name not in known:
                raise UsageError(f"no scenario {name!r}{did_you_mean(name, known)}. --list shows them")
        wanted |= {name for name in known if first <= name <= (last or first)}
    return [scenario for name, scenario in known.items() if name in wanted]


class Lines:
    """One line per scenario, as it ends; on a terminal also one that says what is being played."""

    def __init__(self, total: int, width: int) -> None:
        self._total = total
        self._width = width
        self._done = 0
        self._live = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"

    def progress(self) -> suite.Progress:
        return suite.Progress(self.begins, self.ended)

    def begins(self, scenario: suite.Scenario) -> None:
        self._done += 1
        if self._live:
            text = f"{self._done}/{self._total} {scenario.id} {scenario.name} …"
            sys.stdout.write(f"\r\x1b[K{paint(short(text, self._width), 'dim')}")
            sys.stdout.flush()

    def ended(self, result: suite.Result) -> None:
        if self._live:
            sys.stdout.write("\r\x1b[K")
        if result.reason == suite.NOTHING:
            return  # one line says it for all
        sys.stdout.write(line(result) + "\n")
        sys.stdout.flush()


def line(result: suite.Result) -> str:
    scenario = result.scenario
    kind = "advice" if result.mark is suite.Mark.FAIL and not result.counts else str(result.mark)
    text = f"{scenario.id}  {paint(WORDS[kind], STYLES[kind])}  {scenario.name}"
    if result.reason:
        text += f": {result.reason}"
    return f"{text}  {paint('→ ' + scenario.link, 'dim')}" if result.mark is suite.Mark.FAIL else text


def summary(card: suite.Card) -> str:
    totals = card.totals
    parts = [f"{totals['pass']} passed"]
    parts += [f"{totals['fail']} failed"] if totals["fail"] else []
    parts += [f"{totals['advice']} advised and not kept"] if totals["advice"] else []
    parts += [f"{totals['skip']} skipped"] if totals["skip"] else []
    verdict = paint("conforms", "good") if card.conforms else paint("does not conform", "bad")
    about = f"{card.resource}, {card.devices} device{'' if card.devices == 1 else 's'}: " if card.resource else ""
    return f"\n{about}{', '.join(parts)} in {card.seconds:.0f} s: {verdict}"


def _width() -> int:
    return shutil.get_terminal_size().columns - 1 if colourful() else 100
