"""`python -m tests.campaign --events 10000 --seed 1`; see docs/guide/proofs.md.

--seconds 600          new seeds for as long as asked
--replay FILE          one list of events again
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tests.campaign import events as ev
from tests.campaign.run import Result, run
from tests.campaign.shrink import shrink

SAY_EVERY_S = 5.0
SHRINK_S = 120.0


def say(line: str) -> None:
    print(line, flush=True)


class Progress:
    """Says something every few seconds, not at every quiet."""

    def __init__(self) -> None:
        self._last_s = time.monotonic()

    def __call__(self, line: str) -> None:
        if time.monotonic() - self._last_s >= SAY_EVERY_S:
            self._last_s = time.monotonic()
            say(f"  {line}")


def play(events: list[ev.Event], seed: int, replay: str) -> Result:
    result = run(events, seed, Progress())
    if result.failure is None:
        say(
            f"ok: {result.events} events and {result.quiets} quiets in {result.real_s:.1f} s "
            f"({result.warped_s / 3600:.1f} hours of the node's time)"
        )
        return result
    say(f"FAILED after {result.failure.played} of {len(events)}: {result.failure.reason}")
    say(f"replay: {replay}")
    return result


def shorten(events: list[ev.Event], seed: int, result: Result, out: Path) -> None:
    assert result.failure is not None
    say(f"shrinking, for {SHRINK_S:.0f} s at most")
    short = shrink(events[: result.failure.played], lambda some: run(some, seed).failure is not None, SHRINK_S, say)
    failure = run(short, seed).failure
    out.write_text(f"# seed {seed}: {failure.reason if failure else 'did not fail again'}\n".replace("\n", " ") + "\n")
    with out.open("a") as file:
        file.write(ev.write(short))
    say(f"{len(short)} events are left, in {out}:")
    for event in short[:60]:
        say(f"  {event}")
    say(f"replay: python -m tests.campaign --seed {seed} --replay {out}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description="Play faults against the daemon.")
    parser.add_argument("--events", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, help="go on with new seeds for this long")
    parser.add_argument("--replay", type=Path, help="play the events of this file")
    parser.add_argument("--no-shrink", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("campaign-failed.jsonl"))
    args = parser.parse_args()

    seed, until_s = args.seed, time.monotonic() + (args.seconds or 0)
    while True:
        if args.replay is not None:
            events, command = ev.read(args.replay.read_text()), f"--seed {seed} --replay {args.replay}"
        else:
            events, command = ev.generate(seed, args.events), f"--seed {seed} --events {args.events}"
        say(f"campaign: seed {seed}, {len(events)} events (python -m tests.campaign {command})")
        result = play(events, seed, f"python -m tests.campaign {command}")
        if result.failure is not None:
            if not args.no_shrink and args.replay is None:
                shorten(events, seed, result, args.out)
            return 1
        if time.monotonic() >= until_s:
            return 0
        seed += 1


if __name__ == "__main__":
    sys.exit(main())
