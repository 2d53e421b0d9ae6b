"""A day of a node's time, watched: `python -m tests.campaign.day --hours 24`; see docs/guide/proofs.md.

One daemon lives through all of it, under churn and faults, while metrics are scraped, probes are asked and the page is
open. At the end of each hour the node is brought into the same state, and what the process has is counted: two counts
differ only by what was left behind.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import faulthandler
import gc
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from unittest import mock

from fairlead.app import web
from fairlead.observe.recordingfile import files_of
from fairlead.programs.replay.compare import Comparison
from tests.campaign.checks import Checks, Violation
from tests.campaign.events import ENDINGS, QUIET, Event, generate
from tests.campaign.run import HANG_S, SHM, Say, explain, forget_calls, open_files
from tests.campaign.trouble import Troubled
from tests.campaign.variants import HEALTH, PLAIN, THIRD, VARIANTS, Variant, by_vendor
from tests.campaign.warp import WarpLoop, breathe
from tests.campaign.watchers import CountedOwner, Watchers

HOUR_S = 3600.0
PACE_S = 8.0  # what passes between two events, on average and beside their own gaps
WARM_HOURS = 2.0  # before that memory is not compared: the journal fills, caches and pools reach their size
# A count may be so far above the first that it is compared with. In a day there are 5,700 scrapes, 6,900 events and
# 20,000 documents: one object left behind at every third scrape is too many, and so are 200 bytes for each document.
# Less is lost in what gRPC and the C library keep: the kubelet is in the same process.
BOUNDS = {"objects": 1000, "blocks": 2000, "own_mb": 4.0}
SAY_EVERY_S = 5.0
HTTP = "http: {listen: '127.0.0.1:0'}\n"
RECORD_MAX_BYTES = 2 * 2**20
# No device of the others: what they remember goes with them.
BARE = Variant("bare", f"backends:{THIRD}{PLAIN}{HEALTH}", frozenset({"third"}), by_vendor({}))


@dataclass(frozen=True, slots=True)
class Count:
    """What the process has."""

    hour: float
    pss_mb: float
    own_mb: float  # of it, what is in no file: a kernel may drop pages of files, and reads them again
    objects: int  # that the garbage collector knows
    blocks: int  # of Python's memory, whatever is in them
    fds: int
    threads: int
    twice: tuple[str, ...] = ()  # names that two threads have

    def __str__(self) -> str:
        return (
            f"hour {self.hour:4.1f}: PSS {self.pss_mb:.1f} MB, {self.own_mb:.1f} MB of it its own, "
            f"{self.objects:,} objects, {self.blocks:,} blocks, {self.fds} files, {self.threads} threads"
        )


@dataclass(slots=True)
class Day:
    counts: list[Count] = field(default_factory=list)
    seen: Mapping[str, int] = field(default_factory=dict)  # by the watchers
    events: int = 0
    quiets: int = 0
    real_s: float = 0.0
    failure: str = ""


class Watched(Troubled):
    """A node with HTTP on, and with those who use it."""

    def __init__(self, root: Path, seed: int, record: Path | None = None) -> None:
        super().__init__(root, seed)
        self.more = f"{HTTP}record: {{file: {record}, maxSize: {RECORD_MAX_BYTES}}}\n" if record else HTTP
        self.watchers = Watchers(self, seed)

    async def start(self) -> None:
        await super().start()
        assert self.daemon.web is not None
        while not self.daemon.web.port:  # noqa: ASYNC110 - it calls no one
            await asyncio.sleep(0.1)
        self.watchers.start()

    async def stop(self) -> None:
        await self.watchers.stop()
        await super().stop()

    def expects_answer(self) -> bool:
        return self.watchers.out > 0 or super().expects_answer()


def run(
    hours: float, seed: int, say: Say = lambda _: None, *, every_s: float = HOUR_S, record: Path | None = None
) -> Day:
    """Plays it on a loop of its own, and counts at this distance."""
    began_s, day = time.monotonic(), Day()
    root = Path(tempfile.mkdtemp(prefix="fl", dir=SHM if SHM.is_dir() else None))
    loop = WarpLoop()
    loop.works = lambda: CountedOwner.owed > 0
    try:
        with mock.patch.object(web, "Owner", CountedOwner), asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(_live(day, hours * HOUR_S, partial(Watched, root, seed, record), seed, say, every_s))
    finally:
        faulthandler.cancel_dump_traceback_later()
        shutil.rmtree(root, ignore_errors=True)
    day.failure = day.failure or judge(day.counts)
    day.real_s = time.monotonic() - began_s
    return day


async def _live(day: Day, long_s: float, make: Callable[[], Watched], seed: int, say: Say, every_s: float) -> None:
    node = make()
    checks = Checks(node)
    loop = asyncio.get_running_loop()
    assert isinstance(loop, WarpLoop)
    loop.set_exception_handler(checks.on_loop_fault)
    began_s, life = loop.time(), _Life(day, node, checks, seed, say)
    try:
        await node.start()
        loop.expects_answer = node.expects_answer
        for number in range(1, round(long_s / every_s) + 1):
            await life.play_until(began_s + number * every_s)
            day.counts.append(await life.count(number * every_s / HOUR_S))
            say(str(day.counts[-1]))
    except (Exception, asyncio.CancelledError) as error:
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise  # Ctrl-C
        day.failure = explain(error)
    day.seen = dict(node.watchers.counts)
    try:
        await node.stop()
    except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - whatever it is, it is reported
        day.failure = day.failure or f"stopping: {explain(error)}"
    gc.collect()  # what nobody handled is told when it is collected
    if checks.faults:
        day.failure = day.failure or f"nobody handled: {checks.faults[0]}"


class _Life:
    def __init__(self, day: Day, node: Watched, checks: Checks, seed: int, say: Say) -> None:
        self._day, self._node, self._checks, self._say = day, node, checks, say
        self._loop = asyncio.get_running_loop()
        self._events = _endless(seed)
        self._rng = random.Random(f"day {seed}")
        self._said_s = self._began_s = time.monotonic()

    async def play_until(self, end_s: float) -> None:
        node, day = self._node, self._day
        while self._loop.time() < end_s:
            faulthandler.dump_traceback_later(HANG_S, exit=True)
            event = next(self._events)
            if event.kind == QUIET:
                await node.calm()
                await self._quiet()
            else:
                await node.play(event)
                day.events += 1
                await asyncio.sleep(self._rng.uniform(0.0, 2 * PACE_S))
            self._check()
            self._progress()

    async def count(self, hour: float) -> Count:
        """In a state that is always the same: no pods, the first configuration, and the devices that it begins with."""
        node, loop = self._node, self._loop
        assert isinstance(loop, WarpLoop)
        await node.calm()
        for pod in node.kubelet.pods:
            await node.kubelet.delete_pod(pod)
        for variant in (BARE, VARIANTS[0]):
            node.write(variant)
            node.daemon.reload()
            await self._quiet()
        await node.watchers.rest()
        while loop.busy or CountedOwner.owed:  # noqa: ASYNC110 - they call no one
            await asyncio.sleep(0.1)
        self._check()
        before = self._day.counts[-1] if self._day.counts else None
        looks = [await _look(hour)]
        for _ in range(100):  # gRPC closes on its own threads: the first count is one that stays
            if looks[-1].fds <= before.fds if before else [look.fds for look in looks[-5:]] == [looks[-1].fds] * 5:
                break
            await breathe(0.05)
            looks.append(await _look(hour))
        node.watchers.resume()
        return looks[-1]

    async def _quiet(self) -> None:
        await self._checks.quiet()
        forget_calls(self._node)
        self._day.quiets += 1
        if (answer := await self._node.watchers.get("/readyz"))[0] != 200:
            raise Violation(f"all is right, and /readyz says: {answer}")

    def _check(self) -> None:
        self._checks.now()
        node = self._node
        if wrong := node.watchers.wrong:
            raise Violation(wrong[0])
        if node.journal.counts["http-failed"]:
            raise Violation(
                f"a request failed: {[fact.keys for fact in node.journal.tail() if fact.kind == 'http-failed']}"
            )
        if node.lives != 1:
            raise Violation("the daemon did not live through it")

    def _progress(self) -> None:
        if time.monotonic() - self._said_s >= SAY_EVERY_S:
            self._said_s = time.monotonic()
            seen = self._node.watchers.counts
            self._say(
                f"  {self._day.events} events, {seen['/metrics']} scrapes, {seen['documents']} documents, "
                f"{self._said_s - self._began_s:.0f} s"
            )


def _endless(seed: int) -> Iterator[Event]:
    part = 0
    while True:
        yield from (event for event in generate(seed * 1000 + part, 500) if event.kind not in ENDINGS)
        part += 1


async def _look(hour: float) -> Count:
    await breathe(0.02)
    for _ in range(2):  # what the first round finalizes may free more
        gc.collect()
    _trim()
    objects = len(gc.get_objects()) + gc.get_freeze_count()
    pss_mb, own_mb = _memory_mb()
    names = Counter(thread.name for thread in threading.enumerate())
    twice = tuple(name for name, number in names.items() if number > 1)
    blocks, fds = sys.getallocatedblocks(), len(open_files())
    return Count(hour, pss_mb, own_mb, objects, blocks, fds, threads=names.total(), twice=twice)


def _trim() -> None:
    """What the C library keeps for later is given back: how much that is depends on the order in which it was freed."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # not in every one
    if trim is not None:
        trim(0)


def _memory_mb() -> tuple[float, float]:
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]
    kb = {name: int(rest.split()[0]) for name, rest in (line.split(":", 1) for line in lines)}
    return kb["Pss"] / 1024, (kb["Pss_Anon"] + kb["SwapPss"]) / 1024


def judge(counts: Sequence[Count]) -> str:
    """What was left behind; empty: nothing."""
    warm = next((count for count in counts if count.hour >= WARM_HOURS), None)
    for count in counts:
        found = [_grown(count, counts[0], "fds", 0), *(f"two threads {name}" for name in count.twice)]
        if warm is not None and count.hour > warm.hour:
            # Each owner of a library starts its one thread when it is first needed.
            found += [_grown(count, warm, "threads", 0)]
            found += [_grown(count, warm, name, most) for name, most in BOUNDS.items()]
        if wrong := [text for text in found if text]:
            return f"at hour {count.hour:.3g}: {', '.join(wrong)}"
    return ""


def replayed(path: Path) -> str:
    """What is wrong with the recording; empty: it is within its bound, and comes out again."""
    size = sum(each.stat().st_size for each in files_of(path))
    report = Comparison(path).run()
    print(f"recording: {size:,} bytes, {report.records:,} records, {report.lists:,} lists, {report.calls:,} calls")
    if size > RECORD_MAX_BYTES:
        return f"the recording has {size:,} bytes, and {RECORD_MAX_BYTES:,} were allowed"
    return str(report.differences[0]) if report.differences else "; ".join(report.notes)


def _grown(count: Count, first: Count, name: str, most: float) -> str:
    """Fewer files or threads are no better than more: it is not the same state then."""
    grown = getattr(count, name) - getattr(first, name)
    wrong = grown > most if most else grown != 0
    return f"{grown:+.4g} {name} since hour {first.hour:.3g}" if wrong else ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaign.day", description="A day of a watched node.")
    parser.add_argument("--hours", type=float, default=24.0, help="of the node's time")
    parser.add_argument("--every", type=float, default=HOUR_S, help="seconds of its time between two counts")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--record", type=Path, help="record it in this file, and play that again")
    args = parser.parse_args()
    command = f"python -m tests.campaign.day --hours {args.hours:g} --every {args.every:g} --seed {args.seed}"
    print(f"a watched node for {args.hours:g} hours of its time ({command})", flush=True)
    day = run(args.hours, args.seed, lambda line: print(line, flush=True), every_s=args.every, record=args.record)
    if args.record is not None:
        day.failure = day.failure or replayed(args.record)
    print(f"{day.events} events and {day.quiets} quiets in {day.real_s:.0f} s")
    print(", ".join(f"{what}: {count:,}" for what, count in sorted(day.seen.items())))
    print(f"FAILED: {day.failure}\nagain: {command}" if day.failure else "ok")
    return 1 if day.failure else 0


if __name__ == "__main__":
    sys.exit(main())
