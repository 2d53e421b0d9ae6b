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
import traceback
from collections import Counter
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TextIO

from fairlead.cli.draw import colourful, paint, short
from fairlead.kit.decoding import did_you_mean
from fairlead.model.errors import HostError, MissingExtra, UsageError

try:
    from fairlead.standin import conformance as suite
except ImportError as error:  # grpcio, or what else the stand-in needs
    raise MissingExtra("conformance", "standin") from error

LABELS = {"pass": "pass", "fail": "FAIL", "advice": "warn", "skip": "skip"}
MOST_DELAY_S, MOST_REPEATS = 60.0, 100
STYLES = {"pass": "good", "fail": "bad", "advice": "warn", "skip": "dim"}


def show_list(only: str, *, as_json: bool) -> int:
    """Every scenario, with its rule."""
    chosen = choose(only)
    if as_json:
        print(json.dumps([suite.describe(one) for one in chosen], indent=2))  # noqa: T201 - this is the answer
        return 0
    for chapter in suite.CHAPTERS:
        mine = [scenario for scenario in chapter.scenarios if scenario in chosen]
        if mine:
            print(paint(chapter.title, "bold"))  # noqa: T201 - as above
        for scenario in mine:
            print(f"  {scenario.id}  {scenario.level:8}  {scenario.name}: {scenario.rule}")  # noqa: T201 - as above
    return 0


def show_one(name: str, *, as_json: bool) -> int:
    """One scenario, with its reason and with what a kubelet does."""
    (scenario,) = choose(name)[:1]
    if as_json:
        print(json.dumps(suite.describe(scenario), indent=2))  # noqa: T201 - this is the answer
        return 0
    lines = [paint(f"{scenario.id}  {scenario.name} ({scenario.level})", "bold"), scenario.rule, scenario.why]
    if (evidence := scenario.evidence) is not None:
        lines += [f"Kubelet {suite.VERSION}: {evidence.does}", evidence.place]
    if scenario.foreign:
        lines.append("The suite does here what no kubelet does; an end of the plugin that follows is not counted.")
    print("\n".join(lines))  # noqa: T201 - as above
    return 0


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How to play, as it was asked for."""

    resource: str | None = None
    timeout: float = 10.0
    delay: float = 1.1
    private_mount: bool = False
    breaks: str = ""
    mends: str = ""
    repeat: int = 1
    log: str | None = None

    def check(self) -> None:
        if self.timeout <= 0:
            raise UsageError(f"--timeout {self.timeout:g}: give a number of seconds above 0")
        if not 0 <= self.delay <= MOST_DELAY_S:
            raise UsageError(f"--delay {self.delay:g}: give a number of seconds from 0 to {MOST_DELAY_S:g}")
        if not 1 <= self.repeat <= MOST_REPEATS:
            raise UsageError(f"--repeat {self.repeat}: give a number from 1 to {MOST_REPEATS}")
        if bool(self.breaks) != bool(self.mends):
            raise UsageError("--break and --mend go together: what is broken must be mended for the next scenario")


def judge(words: Sequence[str], options: RunOptions, *, only: str = "", as_json: bool = False) -> int:
    """Plays the scenarios; 0 if every required one that could be played passed."""
    chosen = choose(only)
    if not words:
        raise UsageError("no command was given. Say: fairlead conformance -- ./your-plugin --its-flag {dir}")
    options.check()
    cards: list[suite.Card] = []
    try:
        with _opened(options.log) as log:
            for number in range(1, options.repeat + 1):
                if options.repeat > 1:
                    _announce(f"run {number} of {options.repeat}", as_json=as_json)
                cards.append(_play(words, options, chosen, log, as_json=as_json))
                if cards[-1].trouble:
                    break
    except suite.CannotStart as error:
        raise UsageError(str(error)) from None
    except suite.NeedsRoot as error:
        raise HostError(str(error)) from None
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except asyncio.CancelledError:
        return 128 + signal.SIGTERM
    if as_json:
        facts = [card.facts() for card in cards]
        print(json.dumps({"runs": facts} if options.repeat > 1 else facts[0], indent=2))  # noqa: T201 - this is the answer
    elif len(cards) > 1:
        print(repeated(cards))  # noqa: T201 - as above
    if cards[-1].trouble:
        sys.stderr.write(f"fairlead: there is nothing to play with: {cards[-1].trouble}\n")
    return 0 if all(card.conforms for card in cards) else 1


def _play(
    words: Sequence[str], options: RunOptions, chosen: Sequence[suite.Scenario], log: IO[bytes] | None, *, as_json: bool
) -> suite.Card:
    lines = Lines(len(chosen), _width(), sys.stderr if as_json else sys.stdout)
    work = suite.run(
        suite.Command(tuple(words), options.private_mount, log=log),
        chosen,
        timeouts=suite.Timeouts.of(options.timeout, options.delay),
        resource=options.resource,
        hooks=suite.Hooks(options.breaks, options.mends),
        progress=lines,
    )
    card = asyncio.run(_stoppable(work))
    if not card.trouble:
        lines.write(summary(card))
    return card


@contextmanager
def _opened(path: str | None) -> Iterator[IO[bytes] | None]:
    if path is None:
        yield None
        return
    try:
        file = Path(path).open("wb")  # noqa: SIM115 - closed below; an error of the run is not one of opening
    except OSError as error:
        raise UsageError(f"--log {path}: {error.strerror}") from None
    with file:
        yield file


def _announce(text: str, *, as_json: bool) -> None:
    (sys.stderr if as_json else sys.stdout).write(f"{paint(text, 'bold')}\n")


async def _stoppable(work: Coroutine[Any, Any, suite.Card]) -> suite.Card:
    """SIGTERM ends the run as Ctrl-C does: with everything that it started."""
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    loop.set_exception_handler(_quiet)
    return await work


def _quiet(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """The gRPC library leaves callbacks behind that fail when its sockets are closed. Nothing else is kept quiet."""
    error = context.get("exception")
    frames = traceback.extract_tb(error.__traceback__) if isinstance(error, BaseException) else []
    if not any(f"{os.sep}grpc{os.sep}" in frame.filename or "grpc/_cython" in frame.filename for frame in frames):
        loop.default_exception_handler(context)


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


class Lines(suite.Progress):
    """One line per scenario, as it ends; on a terminal also one that says what is being played."""

    def __init__(self, total: int, width: int, out: TextIO) -> None:
        self._total = total
        self._width = width
        self._out = out
        self._done = 0
        self._live = out.isatty() and os.environ.get("TERM") != "dumb"

    def write(self, text: str) -> None:
        self._out.write(f"{text}\n")
        self._out.flush()

    def begins(self, scenario: suite.Scenario) -> None:
        self._done += 1
        if self._live:
            text = f"{self._done}/{self._total} {scenario.id} {scenario.name} …"
            self._out.write(f"\r\x1b[K{paint(short(text, self._width), 'dim')}")
            self._out.flush()

    def ended(self, result: suite.Result) -> None:
        if self._live:
            self._out.write("\r\x1b[K")
        if result.reason == suite.NOTHING:
            return  # one line says it for all
        self.write(line(result))


def line(result: suite.Result) -> str:
    scenario = result.scenario
    kind = "advice" if result.outcome is suite.Outcome.FAIL and not result.counts else str(result.outcome)
    text = f"{scenario.id}  {paint(LABELS[kind], STYLES[kind])}  {scenario.name}"
    if result.reason:
        text += f": {result.reason}"
    return f"{text}  {paint('→ ' + scenario.link, 'dim')}" if result.outcome is suite.Outcome.FAIL else text


def summary(card: suite.Card) -> str:
    totals = card.totals
    parts = [f"{totals['pass']} passed"]
    parts += [f"{totals['fail']} failed"] if totals["fail"] else []
    parts += [f"{totals['advice']} advised and not kept"] if totals["advice"] else []
    parts += [f"{totals['skip']} skipped"] if totals["skip"] else []
    verdict = paint("conforms", "good") if card.conforms else paint("does not conform", "bad")
    about = f"{card.resource}, {card.devices} device{'' if card.devices == 1 else 's'}: " if card.resource else ""
    return f"\n{about}{', '.join(parts)} in {card.seconds:.0f} s: {verdict}"


def repeated(cards: Sequence[suite.Card]) -> str:
    """What did not come out the same in every run, and what failed in all of them."""
    failed = Counter(name for card in cards for name in card.failed())
    rows = [f"{name} failed in {count} of {len(cards)} runs" for name, count in sorted(failed.items())]
    good = sum(card.conforms for card in cards)
    return "\n".join(["", *rows, f"{good} of {len(cards)} runs conform"])


def _width() -> int:
    return shutil.get_terminal_size().columns - 1 if colourful() else 100
