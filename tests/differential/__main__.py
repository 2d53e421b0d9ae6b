"""`python -m tests.differential [--record] [SCENARIO...]`: both worlds side by side, on a node that is up.

With `--record` what the true kubelet does is written down.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from tests.differential.compare import differences, judge, known, record
from tests.differential.scenarios import SCENARIOS
from tests.differential.stage import Scenario, play
from tests.differential.standin import standin
from tests.differential.trace import Trace
from tests.differential.truth import Truth
from tests.node.cluster import Cluster
from tests.node.rig import node, process

AT_ONCE = 6


async def play_true(scenarios: Iterable[Scenario]) -> dict[str, Trace | BaseException]:
    """On the true kubelet: the calm ones together, then those that want it for themselves."""
    gate = asyncio.Semaphore(AT_ONCE)
    chosen = list(scenarios)

    async def one(scenario: Scenario) -> Trace | BaseException:
        async with gate:
            began = time.monotonic()
            try:
                return await play(scenario, Truth(Cluster()))
            except Exception as error:  # noqa: BLE001 - one that breaks must not take the others along
                return error
            finally:
                print(f"· {scenario.name}: {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)

    calm = [scenario for scenario in chosen if not scenario.alone]
    traces = dict(zip((one.name for one in calm), await asyncio.gather(*map(one, calm)), strict=True))
    for scenario in chosen:
        if scenario.alone:
            traces[scenario.name] = await one(scenario)
    return traces


async def play_standin(scenario: Scenario) -> Trace:
    with tempfile.TemporaryDirectory(prefix="diff", dir="/tmp") as root:
        async with standin(Path(root), long=scenario.long) as world:
            return await play(scenario, world)


async def main(words: list[str]) -> int:
    names = [word for word in words if word != "--record"]
    chosen = [SCENARIOS[name] for name in names] or [one for one in SCENARIOS.values() if not one.long]
    wrong = 0
    for name, trace in (await play_true(chosen)).items():
        if isinstance(trace, BaseException):
            print(f"== {name}\nthe true kubelet did not play it: {trace!r}")
            wrong += 1
            continue
        if "--record" in words:
            record(SCENARIOS[name], trace, SCENARIOS)
        listed = [one for one in known() if one.scenario == name]
        try:
            found = judge(differences(name, trace, await play_standin(SCENARIOS[name])), listed)
        except Exception as error:  # noqa: BLE001 - as above
            found = [f"the stand-in did not play it: {error!r}"]
        wrong += len(found)
        if found:
            print(f"== {name}", *found, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    with process.alone():
        assert node.is_up(), "make node-up first"
        sys.exit(asyncio.run(main(sys.argv[1:])))
