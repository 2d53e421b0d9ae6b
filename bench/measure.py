"""How each number is taken, with a kubelet's part on the other end of the socket.

Owns the order of operations in a round. Must not know about ratios, targets or printing.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from bench.process import PluginFailedError, running
from tests.interop.go_kubelet import GoError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from bench.contestants import Contestant
    from bench.process import Running

START_TIMEOUT_S = 30.0
SETTLE_S = 3.0  # after the start, before idling is measured
DOWN_S = 1.0  # how long the kubelet is away in a restart; a true one takes a second or more
IN_FLIGHT = 8
ADMIT_SIZE = 2


class Kubelet(Protocol):
    async def ask(self, op: str, *, timeout_s: float = 10.0, **fields: Any) -> Any: ...


class OpenKubelet(Protocol):
    def __call__(self, directory: Path) -> contextlib.AbstractAsyncContextManager[Kubelet]: ...


@dataclass(frozen=True, slots=True)
class Effort:
    """How much of everything is done."""

    rounds: int = 5
    starts: int = 5
    calls: int = 1500
    warmup_calls: int = 200
    flight_s: float = 2.0
    restarts: int = 3
    idle_s: float = 20.0
    idle_windows: int = 3


QUICK = Effort(rounds=2, starts=3, calls=400, warmup_calls=100, flight_s=0.7, restarts=2, idle_s=10.0, idle_windows=1)


@dataclass(slots=True)
class Stage:
    """One plugin process, registered with one kubelet, its first list seen."""

    contestant: Contestant
    kubelet: Kubelet
    plugin: Running
    registered_ns: int
    listed: dict[str, Any]

    @property
    def generation(self) -> int:
        return int(self.listed["generation"])

    async def ask(self, op: str, *, timeout_s: float = 10.0, **fields: Any) -> Any:
        return await self.kubelet.ask(op, timeout_s=timeout_s, resource=self.contestant.resource, **fields)

    async def ids(self) -> list[str]:
        return [device["ID"] for device in (await self.ask("devices"))["devices"]]


@contextlib.asynccontextmanager
async def staged(contestant: Contestant, open_kubelet: OpenKubelet, home: str = "") -> AsyncIterator[Stage]:
    """`home`: of a plugin directory that outlasts the start. Else each has a new one."""
    # In /tmp itself: a unix socket's path has room for 107 bytes, and a private temporary directory may use them up.
    with tempfile.TemporaryDirectory(prefix="fl-", dir="/tmp") as fresh:
        home = home or fresh
        directory = _plugins(home)
        command = contestant.launch(directory)
        async with open_kubelet(directory) as kubelet:
            await kubelet.ask("listen")
            async with running(command, Path(home, "log"), gated=contestant.gated) as plugin:
                try:
                    registered, listed = await _first_list(kubelet, contestant, plugin)
                    yield Stage(contestant, kubelet, plugin, registered["registered_ns"], listed)
                except (GoError, TimeoutError) as error:
                    # What the plugin itself wrote says more than a missed call; the file goes with the directory.
                    raise PluginFailedError(f"{contestant.name}: {error}\n{plugin.tail()}") from error


def _plugins(home: str) -> Path:
    directory = Path(home, "plugins")
    directory.mkdir(exist_ok=True)
    return directory


async def _first_list(kubelet: Kubelet, contestant: Contestant, plugin: Running) -> tuple[Any, Any]:
    """Waits for both, but no longer than the plugin lives."""
    asked = asyncio.gather(
        kubelet.ask("registered", resource=contestant.resource, timeout_s=START_TIMEOUT_S),
        kubelet.ask("listed", resource=contestant.resource, timeout_s=START_TIMEOUT_S),
    )
    ended = asyncio.ensure_future(plugin.process.wait())
    try:
        await asyncio.wait((asked, ended), return_when=asyncio.FIRST_COMPLETED)
        plugin.check()
        return await asked
    finally:
        ended.cancel()
        asked.cancel()
        await asyncio.gather(ended, asked, return_exceptions=True)


async def start_times(contestant: Contestant, open_kubelet: OpenKubelet, effort: Effort) -> dict[str, float]:
    """The median of a few starts: one alone says too much about what else the machine did at that moment."""
    registered_ms, listed_ms = [], []
    for _ in range(effort.starts):
        async with staged(contestant, open_kubelet) as stage:
            start_ns = stage.plugin.started_ns
            registered_ms.append((stage.registered_ns - start_ns) / 1e6)
            listed_ms.append((stage.listed["frame_ns"] - start_ns) / 1e6)
    return {"start_registered": statistics.median(registered_ms), "start_listed": statistics.median(listed_ms)}


async def call_times(stage: Stage, effort: Effort) -> dict[str, float]:
    ids = await stage.ids()
    bound_s = 120.0
    alone = await stage.ask("allocate", ids=ids[:1], count=effort.calls, warmup=effort.warmup_calls, timeout_s=bound_s)
    admit = await stage.ask(
        "admit", available=ids, size=ADMIT_SIZE, count=effort.calls, warmup=effort.warmup_calls, timeout_s=bound_s
    )
    flight = await stage.ask("flight", ids=ids[:1], in_flight=IN_FLIGHT, duration_s=effort.flight_s, timeout_s=bound_s)
    return {
        "allocate_p50": alone["spread"]["p50_us"] / 1e3,
        "allocate_p99": alone["spread"]["p99_us"] / 1e3,
        "admit_p50": admit["spread"]["p50_us"] / 1e3,
        "admit_p99": admit["spread"]["p99_us"] / 1e3,
        "in_flight": flight["calls_per_s"],
    }


async def restart_times(stage: Stage, effort: Effort) -> dict[str, float]:
    """From the instant the new kubelet.sock accepts; the median of a few restarts."""
    registered_ms, listed_ms = [], []
    generation = stage.generation
    for _ in range(effort.restarts):
        back = (await stage.kubelet.ask("restart", down_s=DOWN_S))["listening_ns"]
        registered = await stage.ask("registered", after=generation, timeout_s=START_TIMEOUT_S)
        listed = await stage.ask("listed", after=generation, timeout_s=START_TIMEOUT_S)
        generation = listed["generation"]
        registered_ms.append((registered["registered_ns"] - back) / 1e6)
        listed_ms.append((listed["frame_ns"] - back) / 1e6)
    return {
        "restart_registered": statistics.median(registered_ms),
        "restart_listed": statistics.median(listed_ms),
    }


def footprint(stage: Stage) -> dict[str, float]:
    stage.plugin.check()
    print_ = stage.plugin.footprint()
    return {"pss": print_.pss_mb, "rss": print_.rss_mb, "threads": print_.threads, "fds": print_.fds}


async def idle_cpu(stages: Sequence[Stage], idle_s: float) -> dict[str, float]:
    """All at the same time, so that nobody idles on a quieter machine than the others. In percent of one core."""
    before = [stage.plugin.cpu_ns() for stage in stages]
    await asyncio.sleep(idle_s)
    after = [stage.plugin.cpu_ns() for stage in stages]
    return {
        stage.contestant.name: (end - begin) / (idle_s * 1e9) * 100
        for stage, begin, end in zip(stages, before, after, strict=True)
    }


def frame_times(stage: Stage) -> dict[str, float]:
    """From the kubelet's ListAndWatch call to its first message, on the kubelet's side."""
    return {"slots_first_frame": (stage.listed["frame_ns"] - stage.listed["watch_ns"]) / 1e9}


def with_rounds(effort: Effort, rounds: int) -> Effort:
    return dataclasses.replace(effort, rounds=rounds)
