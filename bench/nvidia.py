"""`fairlead nvidia` beside NVIDIA's own plugin: each in a private root with the same simulated driver.

Owns the machines, how both are started there, and what a round asks of them. What a ratio must be: rows.PEER.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from bench import measure
from bench.contestants import Contestant
from bench.process import GATE, byte_code
from bench.rows import NVIDIA, OURS, PEER, Results
from tests import toolchain
from tests.nvml import Driver, Gpu, Link, Node, gpus
from tests.nvml.library import CompilerMissingError, compiled
from tests.nvml.values import SWITCH_LINK
from tests.peers.nvidia.place import needs_root, placed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bench.measure import Effort, OpenKubelet, Stage
    from tests.peers.nvidia.place import Place

RESOURCE = "nvidia.com/gpu"
MODULE = "github.com/NVIDIA/k8s-device-plugin"
FEW, MANY = 8, 16
SIZES = (2, 4)
XID = 79  # fallen off the bus: both take it for a fault
NVLINKS, SWITCHES = 18, 4
BYTE_CODE = "/run/fl-pyc"
PATIENCE_S = 120.0  # NVIDIA's search among 16 takes seconds
PAUSE_S = 0.05  # between two faults: each has a list of its own


@dataclass(frozen=True, slots=True)
class Peer:
    """One program on one machine."""

    contestant: Contestant
    node: Node


def missing() -> str | None:
    """Why NVIDIA's plugin cannot join here."""
    if reason := needs_root():
        return reason
    try:
        compiled()
        toolchain.build("nvidia-device-plugin")
    except (CompilerMissingError, toolchain.ToolchainMissingError) as error:
        return str(error)
    return None


def version() -> str:
    return toolchain.required(toolchain.NVIDIA_ROOT, MODULE)


class Match:
    """All rounds. `say` is told what happens."""

    def __init__(self, effort: Effort, open_kubelet: OpenKubelet, say: Callable[[str], None]) -> None:
        self.effort, self.open_kubelet, self.say = effort, open_kubelet, say
        self.results = Results(PEER)

    async def run(self) -> None:
        with _field(FEW) as few, _field(MANY) as many:
            for peer in (*few, *many):
                self.say(f"warming up {peer.contestant.name} on {len(peer.node.driver.gpus)} GPUs")
                async with self._staged(peer):
                    pass
            for number in range(self.effort.rounds):
                turn = number % 2
                for peer in few[turn:] + few[:turn]:
                    self.say(f"round {number + 1} of {self.effort.rounds}: {peer.contestant.name} on {FEW} GPUs")
                    self.results.add(peer.contestant.name, await self._on_few(peer))
                for peer in many[turn:] + many[:turn]:
                    self.say(f"round {number + 1} of {self.effort.rounds}: {peer.contestant.name} on {MANY} GPUs")
                    self.results.add(peer.contestant.name, await self._on_many(peer))
            await self._idle(few)

    def _staged(self, peer: Peer) -> contextlib.AbstractAsyncContextManager[Stage]:
        return measure.staged(peer.contestant, self.open_kubelet)

    async def _on_few(self, peer: Peer) -> dict[str, float]:
        numbers = await measure.start_times(peer.contestant, self.open_kubelet, self.effort)
        async with self._staged(peer) as stage:
            numbers |= await measure.call_times(stage, self.effort)
            numbers |= await measure.restart_times(stage, self.effort)
            numbers |= measure.footprint(stage)
            return numbers | await _fault_times(stage, peer.node)  # at the end: the GPUs stay unhealthy

    async def _on_many(self, peer: Peer) -> dict[str, float]:
        """Each size is asked for once: what was asked before may be remembered."""
        async with self._staged(peer) as stage:
            ids = await stage.ids()
            await stage.ask("prefer", available=ids, size=1, timeout_s=PATIENCE_S)  # the connection's first call
            numbers = {}
            for size in SIZES:
                asked = await stage.ask("prefer", available=ids, size=size, timeout_s=PATIENCE_S)
                numbers[f"prefer_{MANY}_{size}"] = asked["spread"]["p50_us"] / 1e3
            return numbers

    async def _idle(self, peers: Sequence[Peer]) -> None:
        async with contextlib.AsyncExitStack() as stack:
            stages = [await stack.enter_async_context(self._staged(peer)) for peer in peers]
            await asyncio.sleep(measure.SETTLE_S)
            for number in range(self.effort.idle_windows):
                self.say(f"idling for {self.effort.idle_s:.0f} s, {number + 1} of {self.effort.idle_windows}")
                for name, percent in (await measure.idle_cpu(stages, self.effort.idle_s)).items():
                    self.results.add(name, {"idle_cpu": percent})


async def _fault_times(stage: Stage, node: Node) -> dict[str, float]:
    """From just before an XID is written for the driver to the list that tells of it; the median over all GPUs."""
    times_ms = []
    for index in range(len(node.driver.gpus)):
        left = len(node.driver.gpus) - index - 1
        told = asyncio.create_task(stage.ask("sickened", healthy=left, timeout_s=PATIENCE_S))
        await asyncio.sleep(PAUSE_S)
        begin_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        node.xid(index, XID)
        times_ms.append(((await told)["at_ns"] - begin_ns) / 1e6)
    return {"fault_frame": statistics.median(times_ms)}


# --- Machines and programs --------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _field(count: int) -> Iterator[list[Peer]]:
    """Both programs on a machine with so many GPUs: two machines alike, so that a fault of one is not the other's."""
    binary = "/usr/bin/nvidia-device-plugin"
    driver = machine(count)
    with (
        placed(driver, {BYTE_CODE: Path(byte_code())}) as our_place,
        placed(driver, {binary: toolchain.build("nvidia-device-plugin")}) as their_place,
    ):
        # Absolute, because the program is started elsewhere; not resolved, because that is how a venv is known.
        ours = Path(sys.executable).with_name("fairlead").absolute()
        yield [_peer(OURS, our_place, [str(ours), "nvidia"]), _peer(NVIDIA, their_place, [binary])]


def _peer(name: str, place: Place, words: Sequence[str]) -> Peer:
    # Both have the same few variables: of others, some would be settings of theirs or of Python's.
    clean = ("env", "-i", "PATH=/usr/bin:/bin", "HOME=/", f"PYTHONPYCACHEPREFIX={BYTE_CODE}")

    def launch(directory: Path) -> Sequence[str | Path]:
        return place.command((*clean, *GATE, *words), plugins=str(directory))

    return Peer(Contestant(name, RESOURCE, launch, gated=True), place.node)


def machine(count: int) -> Driver:
    """H100s on NVSwitches."""
    return Driver(gpus=tuple(_switched(gpu) for gpu in gpus("H100", count)))


def _switched(gpu: Gpu) -> Gpu:
    switches = [f"00000000:{0xC0 + number:02X}:00.0" for number in range(SWITCHES)]
    links = tuple(Link(number, switches[number % SWITCHES], kind=SWITCH_LINK) for number in range(NVLINKS))
    return msgspec.structs.replace(gpu, links=links)
