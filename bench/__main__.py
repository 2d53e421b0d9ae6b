"""`python -m bench`: our daemon beside an empty grpc.aio plugin, an empty grpc-go plugin and NVIDIA's, in one run.

Owns the order of the rounds, the progress lines and the command line. How to read the table: bench/README.md.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import (
    amd,
    assign,
    contestants,
    measure,
    memory,
    nvidia,
    paths,
    placement,
    recording,
    remember,
    report,
    scheduler,
    scheduler_perf,
    stall,
    web,
)
from bench.process import PluginFailedError
from bench.rows import BUSY_LOAD, OURS, TRANSPORT, Results
from tests import toolchain
from tests.interop.go_kubelet import GoError, GoKubelet
from tests.nvml.library import missing_driver

from fairlead._version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.contestants import Contestant
    from bench.measure import Effort, OpenKubelet

GROUPS = (
    "start",
    "calls",
    "restart",
    "memory",
    "idle",
    "slots",
    "placement",
    "units",
    "assign",
    "nvidia",
    "amd",
    "paths",
    "web",
    "recording",
    "scheduler",
    "scheduler-perf",
    "remember",
    "kubelet",
)
SLOTS = 60_000


class Bench:
    def __init__(self, effort: Effort, groups: frozenset[str]) -> None:
        self.effort, self.groups = effort, groups
        self.results = Results(TRANSPORT)
        self.sheets = [self.results]
        self.notes: list[str] = []
        self.began = time.monotonic()
        self.field: list[Contestant] = [contestants.ours(), contestants.aio()]
        self.open_kubelet = self.enlist_go() or enlist_python()

    def say(self, text: str) -> None:
        print(f"· {time.monotonic() - self.began:4.0f} s  {text}", file=sys.stderr, flush=True)

    def enlist_go(self) -> OpenKubelet | None:
        """With Go, its kubelet drives and its plugin runs too."""
        try:
            client, plugin = toolchain.build("kubeletclient"), toolchain.build("emptyplugin")
        except toolchain.ToolchainMissingError as missing:
            self.notes.append(f"{missing}. A grpcio client drove instead: its own cost flattens the ratios.")
            return None
        self.field.append(contestants.go(plugin))
        return functools.partial(GoKubelet, client)

    async def run(self) -> None:
        if self.groups & {"start", "calls", "restart", "memory"}:
            await self.run_rounds()
        if "idle" in self.groups:
            await self.run_idle()
        if "slots" in self.groups:
            await self.run_slots()
        if "placement" in self.groups:
            self.say("placement, in process")
            for numbers in placement.measure(self.effort.rounds):
                self.results.add(OURS, numbers)
        if "units" in self.groups:
            self.sheets.append(await memory.run(self.effort, self.open_kubelet, self.say))
        if "assign" in self.groups:
            await self.run_assign()
        if "nvidia" in self.groups:
            await self.run_nvidia()
        if "amd" in self.groups:
            self.sheets.append(await amd.run(self.effort, self.open_kubelet, self.say))
        if "paths" in self.groups:
            await self.run_paths()
        if "web" in self.groups:
            self.sheets.append(await web.run(self.effort, self.open_kubelet, self.say))
        if "recording" in self.groups:
            self.sheets.append(await recording.run(self.effort, self.open_kubelet, self.say))
        if "scheduler" in self.groups:
            await self.run_scheduler()
        if "scheduler-perf" in self.groups:
            await self.run_scheduler_perf()
        if "remember" in self.groups:
            await self.run_remember()
        if "kubelet" in self.groups:
            self.run_kubelet()

    def run_kubelet(self) -> None:
        if reason := stall.missing():
            self.notes.append(f"the true kubelet was not measured: {reason}")
            return
        self.sheets.append(stall.run(self.effort, self.say))

    async def run_scheduler(self) -> None:
        if reason := scheduler.missing():
            self.notes.append(f"the scheduler extender was not measured: {reason}")
            return
        self.sheets.append(await scheduler.run(self.effort, self.say))

    async def run_scheduler_perf(self) -> None:
        if reason := scheduler_perf.missing():
            self.notes.append(f"scheduler_perf was not run: {reason}")
            return
        self.sheets.append(await scheduler_perf.run(self.effort, self.say))

    async def run_remember(self) -> None:
        if reason := missing_driver():
            self.notes.append(f"a slow driver was not measured: {reason}")
            return
        self.sheets.append(await remember.run(self.effort, self.open_kubelet, self.say))

    async def run_assign(self) -> None:
        if reason := missing_driver():
            self.notes.append(f"assignment was not measured: {reason}")
            return
        self.sheets.append(await assign.run(self.effort, self.open_kubelet, self.say))

    async def run_paths(self) -> None:
        if reason := paths.missing():
            self.notes.append(f"path devices were not measured: {reason}")
            return
        self.sheets.append(await paths.run(self.effort, self.open_kubelet, self.say))

    async def run_nvidia(self) -> None:
        if reason := nvidia.missing():
            self.notes.append(f"NVIDIA's plugin was not measured: {reason}")
            return
        match = nvidia.Match(self.effort, self.open_kubelet, self.say)
        self.sheets.append(match.results)
        await match.run()

    async def run_rounds(self) -> None:
        for contestant in self.field:
            self.say(f"warming up {contestant.name}")  # byte code, page cache; nothing is kept
            async with measure.staged(contestant, self.open_kubelet):
                pass
        for number in range(self.effort.rounds):
            # Everyone is first, middle and last in turn.
            shift = number % len(self.field)
            for contestant in self.field[shift:] + self.field[:shift]:
                self.say(f"round {number + 1} of {self.effort.rounds}: {contestant.name}")
                self.results.add(contestant.name, await self.run_one(contestant))

    async def run_one(self, contestant: Contestant) -> dict[str, float]:
        numbers: dict[str, float] = {}
        if "start" in self.groups:
            numbers |= await measure.start_times(contestant, self.open_kubelet, self.effort)
        if not self.groups & {"calls", "restart", "memory"}:
            return numbers
        async with measure.staged(contestant, self.open_kubelet) as stage:
            if "calls" in self.groups:
                numbers |= await measure.call_times(stage, self.effort)
            if "restart" in self.groups:
                numbers |= await measure.restart_times(stage, self.effort)
            if "memory" in self.groups:
                numbers |= measure.footprint(stage)
        return numbers

    async def run_idle(self) -> None:
        async with contextlib.AsyncExitStack() as stack:
            stages = [await stack.enter_async_context(measure.staged(each, self.open_kubelet)) for each in self.field]
            await asyncio.sleep(measure.SETTLE_S)
            for number in range(self.effort.idle_windows):
                self.say(f"idling for {self.effort.idle_s:.0f} s, {number + 1} of {self.effort.idle_windows}")
                for name, percent in (await measure.idle_cpu(stages, self.effort.idle_s)).items():
                    self.results.add(name, {"idle_cpu": percent})

    async def run_slots(self) -> None:
        few, many = contestants.ours(), contestants.ours(slots_per_device=SLOTS // contestants.DEVICES)
        for number in range(self.effort.rounds):
            self.say(f"{SLOTS:,} slots: {number + 1} of {self.effort.rounds}")
            async with measure.staged(few, self.open_kubelet) as stage:
                base = measure.footprint(stage)
            async with measure.staged(many, self.open_kubelet) as stage:
                if stage.listed["devices"] != SLOTS:
                    raise PluginFailedError(f"{stage.listed['devices']:,} slots were listed, not {SLOTS:,}")
                grown = measure.footprint(stage)
                numbers = measure.frame_times(stage)
            self.results.add(OURS, numbers | {"slots_pss": grown["pss"] - base["pss"]})


def enlist_python() -> OpenKubelet:
    # Imported only where it is needed: while this process holds grpcio's pages too, they count half for the plugin.
    from bench.pykubelet import PyKubelet  # noqa: PLC0415  see above

    return PyKubelet


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds and calls: a look, not a measurement")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample and verdict there")
    parser.add_argument(
        "--only", action="append", choices=GROUPS, metavar="GROUP", help=f"one of {', '.join(GROUPS)}; may be repeated"
    )
    parser.add_argument("--rounds", type=int, metavar="N", help="how many rounds")
    parser.add_argument("--strict", action="store_true", help="exit with status 1 when a target is missed")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    given = parse(arguments)
    effort = measure.QUICK if given.quick else measure.Effort()
    if given.rounds:
        effort = measure.with_rounds(effort, given.rounds)
    known = facts(effort, quick=given.quick)  # before: how busy the machine is without us
    try:
        bench = Bench(effort, frozenset(given.only or GROUPS))
        if given.quick:
            bench.notes.append("a quick look: too few rounds to judge by")
        if known["load"] > BUSY_LOAD:
            bench.notes.append(f"the machine was busy (load {known['load']}) when this began: do it again in quiet")
        asyncio.run(bench.run())
    except (PluginFailedError, GoError, OSError, TimeoutError, toolchain.BuildFailedError) as error:
        print(f"bench: {str(error) or type(error).__name__}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("bench: interrupted; every process it started is stopped", file=sys.stderr)
        return 130
    print(report.render(bench.sheets, bench.notes))
    if given.json:
        content = report.as_json(bench.sheets, known, bench.notes)
        given.json.write_text(json.dumps(content, indent=2) + "\n")
    missed = [target for results in bench.sheets for target in results.missed()]
    return 1 if given.strict and missed else 0


def facts(effort: Effort, *, quick: bool) -> dict[str, Any]:
    """What the numbers depend on."""
    found: dict[str, Any] = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "fairlead": __version__,
        "python": platform.python_version(),
        "nvidia": nvidia.version(),
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "rounds": effort.rounds,
        "quick": quick,
    }
    with contextlib.suppress(toolchain.ToolchainMissingError):
        found["go"] = toolchain.find_go()[1]
    return found


if __name__ == "__main__":
    sys.exit(main())
