"""`python -m tests.campaign.kills --kills 200 --seed 1`: the daemon as a process of its own, killed again and again.

The campaign plays with injected time, inside one process, and leaves behind what a kill would leave. Here SIGKILL is
real, and so is time: the daemon dies at a moment that the seed chooses, pods come and go, the kubelet restarts, and
each time the next daemon has to find its way from what is left.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from fairlead.standin import Kubelet, Pod

RESOURCE, COUNT = "example.com/card", 8
CONFIG = f"""
backends: [{{kind: sim, fleet: {{devices: [{{count: {COUNT}, id: "card-{{n}}"}}]}}}}]
rules: [{{resource: {RESOURCE}}}]
"""
SOCKET = "fairlead-example.com_card.sock"
PATIENCE_S = 60.0  # ends with its condition; a busy machine may need it
LOOK_S = 0.005
PODS_MAX = 4
Say = Callable[[str], None]


class Lost(AssertionError):
    """Something did not come back after a kill."""


class Victim:
    """A kubelet, a daemon to be killed, and pods that must not notice."""

    def __init__(self, root: Path, seed: int) -> None:
        self.kubelet = Kubelet(root / "k", seed=seed, rate_limit=False)
        self._config = root / "fairlead.yaml"
        self._config.write_text(CONFIG)
        self.rng = random.Random(seed)
        self._process: asyncio.subprocess.Process | None = None
        self._held: dict[str, tuple[Pod, dict[str, tuple[str, ...]]]] = {}
        self._pods = 0

    @property
    def pods(self) -> int:
        return len(self._held)

    async def start(self) -> None:
        places = {
            "FAIRLEAD_PLUGIN_DIR": str(self.kubelet.plugin_dir),
            "FAIRLEAD_POD_RESOURCES": str(self.kubelet.podresources_socket),
            "FAIRLEAD_STATUS_SOCKET": str(self._config.with_name("fl.sock")),
        }
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "fairlead", "run", "--config", str(self._config)),
            env={**os.environ, **places},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )

    async def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        # The kubelet notices on its own time; until then it would give the dead one's devices away.
        self._process = None
        await self._until(lambda: not self._streams(), "the kubelet never saw the end of the stream")

    async def end(self) -> None:
        """As a node ends it: then nothing is left of it."""
        assert self._process is not None
        self._process.terminate()
        async with asyncio.timeout(PATIENCE_S):
            code = await self._process.wait()
        if code != 0:
            raise Lost(f"it ended with {code}")
        if (self.kubelet.plugin_dir / SOCKET).exists():
            raise Lost("it ended, and its socket is still there")
        await self.kill()

    # Moments to be killed at.

    async def reach(self, moment: str) -> None:
        registered, born = self._registrations(), self._birth()
        conditions: dict[str, Callable[[], bool]] = {
            "at once": lambda: True,
            "serving": lambda: self._birth() != born,
            "registering": lambda: self._registrations() > registered,
            "streaming": lambda: bool(self._streams()) and self.kubelet.node().allocatable.get(RESOURCE) == COUNT,
        }
        await self._until(conditions[moment], f"{moment} was never reached")

    def _registrations(self) -> int:
        return sum(call.method == "Register" for call in self.kubelet.calls)

    def _streams(self) -> int:
        return sum(call.method == "ListAndWatch" and call.seconds is None for call in self.kubelet.calls)

    def _birth(self) -> int:
        with contextlib.suppress(OSError):
            return (self.kubelet.plugin_dir / SOCKET).stat().st_ctime_ns
        return 0

    async def _until(self, condition: Callable[[], bool], what: str) -> None:
        """Files tell nobody that they are there, so it is looked at again and again."""
        end_s = time.monotonic() + PATIENCE_S
        while not condition():
            if self.kubelet.panic is not None:
                raise Lost(f"the kubelet panicked: {self.kubelet.panic}")
            if self._process is not None and self._process.returncode is not None:
                raise Lost(f"the daemon ended by itself, with {self._process.returncode}")
            if time.monotonic() > end_s:
                raise Lost(what)
            await asyncio.sleep(LOOK_S)

    # What goes on meanwhile.

    async def churn(self) -> None:
        """A pod comes or goes, while everything is well."""
        if len(self._held) >= PODS_MAX or (self._held and self.rng.random() < 0.4):
            _, (pod, _) = self._held.popitem()
            await self.kubelet.delete_pod(pod)
            return
        self._pods += 1
        pod = await self.kubelet.run_pod(f"pod-{self._pods}", {"main": {RESOURCE: 1}})
        if pod.phase != "Running":
            raise Lost(f"{pod.name}: {pod.message}")
        self._held[pod.uid] = pod, dict(pod.containers["main"].devices)

    async def check(self) -> None:
        """After a kill and a new start: all is as it was."""
        await self.reach("streaming")
        for pod, devices in self._held.values():
            if pod.phase != "Running" or dict(pod.containers["main"].devices) != devices:
                raise Lost(f"{pod.name} had {devices}, has {pod.containers['main'].devices}, {pod.phase} {pod.message}")
        known = self.kubelet.devices(RESOURCE)
        if known != {f"card-{n}": "Healthy" for n in range(COUNT)}:
            raise Lost(f"the kubelet knows {known}")
        sockets = sorted(path.name for path in self.kubelet.plugin_dir.iterdir() if path.is_socket())
        if sockets != [SOCKET, "kubelet.sock"]:
            raise Lost(f"sockets are {sockets}")

    async def play(self) -> str:
        """One kill, at some moment, and perhaps a kubelet that restarts while nobody serves."""
        moment = self.rng.choice(("at once", "serving", "registering", "streaming"))
        await self.start()
        await self.reach(moment)
        await self.kill()
        restart = self.rng.random() < 0.3
        if restart:
            await self.kubelet.restart()
        return f"killed {moment}{', and the kubelet restarted' if restart else ''}"


async def run(root: Path, kills: int, seed: int, say: Say = lambda _: None) -> None:
    """Raises Lost."""
    victim = Victim(root, seed)
    done: list[str] = []
    async with victim.kubelet:
        try:
            await _kill_on(victim, kills, done, say)
        except Lost as lost:
            raise Lost(f"{lost}; seed {seed}, after: {'; '.join(done[-4:])}") from None
        finally:
            with contextlib.suppress(Lost):  # how it went has been said
                await victim.kill()


async def _kill_on(victim: Victim, kills: int, done: list[str], say: Say) -> None:
    rng = victim.rng
    while len(done) < kills:
        done += [await victim.play() for _ in range(min(rng.randint(1, 4), kills - len(done)))]
        await victim.start()
        await victim.check()
        await victim.churn()
        say(f"{len(done)} kills: every device is back, and {victim.pods} pods have theirs")
        if rng.random() < 0.5:
            await victim.kill()
            done.append("killed while a pod had just come or gone")
        else:
            await victim.end()
    await victim.start()
    await victim.check()
    await victim.end()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaign.kills", description="Kill the daemon, many times.")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    root, began_s = Path(tempfile.mkdtemp(prefix="fl", dir="/tmp")), time.monotonic()
    try:
        asyncio.run(run(root, args.kills, args.seed, lambda line: print(f"  {line}", flush=True)))
    except Lost as lost:
        print(f"FAILED: {lost}")
        return 1
    finally:
        shutil.rmtree(root, ignore_errors=True)
    print(f"ok: {args.kills} kills in {time.monotonic() - began_s:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
