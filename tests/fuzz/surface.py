"""Fuzzes everything that others write to: RPCs, configuration, config files of other systems, fleets, sysfs, answers of
pod-resources, control lines, HTTP.

    python -m tests.fuzz.surface --cases 100000 [--seed N] [--target NAME]
    python -m tests.fuzz.surface --seed N --only rpc:123     one case again, after those of its block

A case fails when anything but a documented error comes out, or it hangs, or a task stays. The same seed gives the same
cases on every machine.
"""

from __future__ import annotations

import argparse
import asyncio
import faulthandler
import gc
import random
import time
from collections.abc import Callable

from tests.fuzz.targets import Target, promise
from tests.fuzz.targets.config import ConfigTarget
from tests.fuzz.targets.control import ControlTarget
from tests.fuzz.targets.extender import ExtenderTarget
from tests.fuzz.targets.foreign import ForeignTarget
from tests.fuzz.targets.http import HttpTarget
from tests.fuzz.targets.podresources import PodResourcesTarget
from tests.fuzz.targets.rpc import RpcTarget
from tests.fuzz.targets.sim import SimTarget
from tests.fuzz.targets.sysfs import SysfsTarget

HANG_S = 30.0
SAY_EVERY_S = 5.0
# Name -> how to make it, and its part of the cases.
TARGETS: dict[str, tuple[Callable[[], Target], float]] = {
    "rpc": (RpcTarget, 0.40),
    "config": (ConfigTarget, 0.10),
    "foreign": (ForeignTarget, 0.05),
    "sim": (SimTarget, 0.15),
    "sysfs": (SysfsTarget, 0.005),
    "podresources": (PodResourcesTarget, 0.15),
    "control": (ControlTarget, 0.10),
    "http": (HttpTarget, 0.05),
    "extender": (ExtenderTarget, 0.05),
}


def say(line: str) -> None:
    print(line, flush=True)


class Fuzz:
    def __init__(self, seed: int, *, loud: bool) -> None:
        self._seed = seed
        self._loud = loud
        self._complaints: list[str] = []

    async def run(self, name: str, numbers: range) -> None:
        """Plays the cases of one target, block by block."""
        asyncio.get_running_loop().set_exception_handler(self._on_complaint)
        make, _ = TARGETS[name]
        target = make()
        began_s = said_s = time.monotonic()
        tasks = len(asyncio.all_tasks())
        for number in numbers:
            if number % 10 == 0 or number == numbers.start:
                faulthandler.dump_traceback_later(HANG_S, exit=True)
            if number == numbers.start or number % target.block == 0:
                if number != numbers.start:
                    await self._end(target, name, number - 1, tasks)
                await target.start()
            try:
                await target.case(random.Random(f"{self._seed}:{name}:{number}"))
                self._check_complaints()
            except BaseException:
                self._point_at(name, number)
                raise
            if self._loud and time.monotonic() - said_s > SAY_EVERY_S:
                said_s = time.monotonic()
                done = number - numbers.start + 1
                say(f"  {name}: {done} cases, {done / (said_s - began_s):.0f}/s")
        await self._end(target, name, numbers[-1], tasks)
        faulthandler.cancel_dump_traceback_later()
        if self._loud:
            spent_s = time.monotonic() - began_s
            say(f"  {name}: {len(numbers)} cases in {spent_s:.1f} s")

    async def _end(self, target: Target, name: str, number: int, tasks: int) -> None:
        try:
            await target.stop()
            await asyncio.sleep(0)
            gc.collect()
            self._check_complaints()
            left = [task.get_name() for task in asyncio.all_tasks()]
            promise(len(left) <= tasks, f"tasks are left: {left}")
        except BaseException:
            self._point_at(name, number)
            raise

    def _on_complaint(self, _loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        self._complaints.append(f"{context.get('message')}: {context.get('exception')!r}")

    def _check_complaints(self) -> None:
        found, self._complaints = self._complaints, []
        promise(not found, f"nobody handled: {found[:1]}")

    def _point_at(self, name: str, number: int) -> None:
        say(f"{name} {number} failed; replay: python -m tests.fuzz.surface --seed {self._seed} --only {name}:{number}")


async def fuzz(seed: int, cases: int, names: list[str], *, loud: bool) -> None:
    whole = sum(TARGETS[name][1] for name in names)
    for name in names:
        count = max(1, round(cases * TARGETS[name][1] / whole))
        await Fuzz(seed, loud=loud).run(name, range(count))


async def replay(seed: int, only: str) -> None:
    name, _, number = only.partition(":")
    block = TARGETS[name][0]().block
    await Fuzz(seed, loud=True).run(name, range(int(number) // block * block, int(number) + 1))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.surface", description="Fuzz what others write to.")
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", choices=[*TARGETS], action="append")
    parser.add_argument("--only", help="one case again, such as rpc:123")
    args = parser.parse_args()
    began_s = time.monotonic()
    if args.only:
        asyncio.run(replay(args.seed, args.only))
    else:
        asyncio.run(fuzz(args.seed, args.cases, args.target or [*TARGETS], loud=True))
    say(f"ok in {time.monotonic() - began_s:.1f} s")


if __name__ == "__main__":
    main()
