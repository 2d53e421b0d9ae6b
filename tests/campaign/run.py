"""Plays a list of events on a fresh node, checks after each, and looks for what was left behind at the end."""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import os
import shutil
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.campaign.checks import Checks, Violation
from tests.campaign.events import QUIET, Event
from tests.campaign.node import Node
from tests.campaign.trouble import Troubled
from tests.campaign.warp import WarpLoop, breathe

Say = Callable[[str], None]
SHM = Path("/dev/shm")
# A loop that turns for ever without time passing is ended by this, with a traceback. Real seconds.
HANG_S = 60.0
GROWTH_MAX_BYTES = 48 * 1024 * 1024
FROZEN_GROWTH_MAX = 20_000  # objects that the collector will not look at again


@dataclass(frozen=True, slots=True)
class Failure:
    """Where it went wrong, and how."""

    played: int  # events up to and with the one that failed
    reason: str


@dataclass(frozen=True, slots=True)
class Result:
    events: int
    quiets: int
    real_s: float
    warped_s: float
    failure: Failure | None = None


def run(events: Sequence[Event], seed: int, say: Say = lambda _: None) -> Result:
    """Plays them on a loop of its own."""
    began_s = time.monotonic()
    # In memory where there is such a place: the stand-in syncs its checkpoint at every list.
    root = Path(tempfile.mkdtemp(prefix="fl", dir=SHM if SHM.is_dir() else None))
    loop = WarpLoop()
    try:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            started_s = loop.time()
            failure = runner.run(_campaign(events, seed, root, say))
            warped_s = loop.time() - started_s
    finally:
        faulthandler.cancel_dump_traceback_later()
        shutil.rmtree(root, ignore_errors=True)
    quiets = sum(event.kind == QUIET for event in events)
    return Result(len(events) - quiets, quiets, time.monotonic() - began_s, warped_s, failure)


async def _campaign(events: Sequence[Event], seed: int, root: Path, say: Say) -> Failure | None:
    # One short life first: what is loaded once and kept is no leak.
    faulthandler.dump_traceback_later(HANG_S, exit=True)
    failure = await _life([Event(QUIET)], seed, root, lambda _: None)
    before, tasks = await _belongings(), asyncio.all_tasks()
    memory_bytes, frozen = _memory_bytes(), gc.get_freeze_count()
    if failure is None:
        failure = await _life(events, seed, root, say)
    if failure is not None:
        return failure
    if left := asyncio.all_tasks() - tasks:
        return Failure(len(events), f"tasks left behind: {sorted(task.get_name() for task in left)} {left}"[:2000])
    after = await _belongings()
    for _ in range(100):  # gRPC closes on its own threads
        if len(after) <= len(before):
            break
        await breathe(0.05)
        after = await _belongings()
    else:
        extra = {fd: name for fd, name in after.items() if fd not in before}
        return Failure(len(events), f"files left open: {extra}")
    if sockets := [path for path in (root / "k").rglob("*.sock") if path.name != "kubelet.sock"]:
        return Failure(len(events), f"sockets left behind: {sockets}")
    if (grown := _memory_bytes() - memory_bytes) > GROWTH_MAX_BYTES:
        return Failure(len(events), f"memory grew by {grown / 1e6:.0f} MB")
    if (frozen := gc.get_freeze_count() - frozen) > FROZEN_GROWTH_MAX:
        return Failure(len(events), f"{frozen} more objects are kept from the garbage collector")
    return None


async def _life(events: Sequence[Event], seed: int, root: Path, say: Say) -> Failure | None:
    """One daemon and one kubelet through all events. The failure, if there is one, is the first."""
    node = Troubled(root, seed)
    checks = Checks(node)
    loop = asyncio.get_running_loop()
    assert isinstance(loop, WarpLoop)
    loop.set_exception_handler(checks.on_loop_fault)
    await node.start()
    loop.expects_answer = node.expects_answer
    began_s, played, number = time.monotonic(), 0, 0
    failure: Failure | None = None
    try:
        for number, event in enumerate(events, 1):
            if number % 50 == 1:
                faulthandler.dump_traceback_later(HANG_S, exit=True)
            if event.kind == QUIET:
                await node.calm()
                await checks.quiet()
                forget_calls(node)
                say(f"{played} events, {time.monotonic() - began_s:.0f} s, all registered, streaming and equal")
            else:
                await node.play(event)
                played += 1
            checks.now()
    except (Exception, asyncio.CancelledError) as error:
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise  # Ctrl-C
        failure = Failure(number, explain(error))
    try:
        await node.stop()
    except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - whatever it is, it is reported
        failure = failure or Failure(number, f"stopping: {explain(error)}")
    gc.collect()  # what nobody handled is told when it is collected
    if checks.faults and failure is None:
        failure = Failure(number, f"nobody handled: {checks.faults[0]}")
    return failure


def explain(error: BaseException) -> str:
    if isinstance(error, Violation):
        return str(error)
    if isinstance(error, BaseExceptionGroup):
        return f"{error.message}: {'; '.join(explain(part) for part in error.exceptions)}"
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    way = " > ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames)
    return f"{type(error).__name__}: {error} ({way})"


def forget_calls(node: Node) -> None:
    """The stand-in keeps every call; this many would be a leak of the campaign's own."""
    made = node.kubelet._setup.calls.made
    made[:] = [call for call in made if call.seconds is None]


async def _belongings() -> dict[str, str]:
    await breathe(0.02)
    gc.collect()
    return open_files()


def open_files() -> dict[str, str]:
    found = {}
    for fd in os.listdir("/proc/self/fd"):  # noqa: PTH208 - names only
        try:
            found[fd] = str(Path(f"/proc/self/fd/{fd}").readlink())
        except OSError:
            continue  # the listing's own
    return found


def _memory_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
