"""The node under fire: the real daemon and the stand-in kubelet, and what is known of them.

Owns their lives. What goes wrong with them is in `trouble`, what must hold in `checks`.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import Counter
from collections.abc import Coroutine
from functools import partial
from pathlib import Path
from typing import Any

from fairlead.app.daemon import Daemon
from fairlead.app.signals import Signals
from fairlead.backends.sim import SimBackend
from fairlead.config.load import Loaded, load
from fairlead.engine.source import Source
from fairlead.fronts.deviceplugin.lifecycle import Phase
from fairlead.model.device import Device
from fairlead.observe.journal import Journal
from fairlead.standin import Kubelet, Pod
from tests.campaign import drill
from tests.campaign.variants import AMD, VARIANTS, Variant
from tests.campaign.warp import SteadyClock, WarpClock

ANSWERED = frozenset({Phase.REGISTER, Phase.AWAIT_STREAM})


class CountingJournal(Journal):
    """Counts what it was given, which is more than it keeps."""

    def __init__(self, clock: WarpClock) -> None:
        super().__init__(clock)
        self.counts: Counter[str] = Counter()

    def record(self, kind: str, **keys: Any) -> None:
        self.counts[kind] += 1
        super().record(kind, **keys)


class Node:
    def __init__(self, root: Path, seed: int) -> None:
        self.clock = WarpClock()
        self.kubelet = Kubelet(root / "k", seed=seed, clock=SteadyClock(), rate_limit=False)
        self.config = root / "fairlead.yaml"
        self.variant = VARIANTS[0]
        self.watched = False  # the kubelet's plugin watcher finds us, instead of our calling it
        self.more = ""  # what every configuration of this node has beside the variant
        self.lives = 0  # of the daemon
        self.turns = 0  # events that may change which devices are known, or who is asked about them
        self.unprepared: list[str] = []  # containers that started on devices which nobody had prepared
        self.grants: dict[str, tuple[Pod, dict[str, Any]]] = {}  # what each running pod got, by uid
        self._foreign: list[socket.socket] = []
        self._dead: dict[Path, tuple[int, int]] = {}  # sockets of daemons that were killed
        self._kubelet_broken = False
        self._pod_number = 0
        self._aside: set[asyncio.Task[None]] = set()
        self._task: asyncio.Task[None] | None = None

    # --- Life -----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        drill.install()
        await self.kubelet.start()
        self.write(self.variant)
        self.start_daemon()

    async def stop(self) -> None:
        for task in self._aside:
            task.cancel()
        await asyncio.gather(*self._aside, return_exceptions=True)
        await self.stop_daemon()
        await self.kubelet.stop()
        self.close_foreign()
        for path, known in self._dead.items():
            if born(path) == known:
                path.unlink()  # of a resource that no later daemon had; nobody else can know that it is dead

    def start_daemon(self) -> None:
        self.journal = CountingJournal(self.clock)
        self.daemon = Daemon(self.load(), reload=self.load, clock=self.clock, journal=self.journal)
        self._task = asyncio.create_task(_run(self.daemon), name="daemon")
        self.lives += 1

    async def stop_daemon(self) -> None:
        if self._task is not None:
            self.daemon.stop()
            task, self._task = self._task, None
            await task

    def expects_answer(self) -> bool:
        """Whether the kubelet owes an answer or a stream: it works on threads, in real time."""
        return any(unit.life.phase in ANSWERED for unit in self.daemon.supervisor.endpoints.values())

    def daemon_end(self) -> str:
        """How the daemon ended, if it has though nobody told it to."""
        if self._task is None or not self._task.done():
            return ""
        error = None if self._task.cancelled() else self._task.exception()
        return repr(error) if error else "without a word"

    def load(self) -> Loaded:
        return load(str(self.config))

    def write(self, variant: Variant) -> None:
        self.variant = variant
        self._put(variant.text)

    def _put(self, text: str) -> None:
        kubelet = self.kubelet
        places = (
            f"\nkubelet: {{directory: {kubelet.plugin_dir}, podResources: {kubelet.podresources_socket}, "
            f"registration: {'watcher' if self.watched else 'socket'}, watcherDirectory: {kubelet.registry_dir}}}"
            f"\nstatus: {{socket: {self.config.parent}/fl.sock}}\n{self.more}"
        )
        beside = self.config.with_suffix(".new")
        beside.write_text(text + places)
        beside.replace(self.config)

    # --- What there is --------------------------------------------------------------------------------------------

    def sources(self) -> dict[str, Source]:
        return self.daemon.engine.sources.live

    def backends(self) -> list[SimBackend]:
        return [source.backend for source in self.sources().values() if isinstance(source.backend, SimBackend)]

    def plugged(self) -> list[Device]:
        """The devices that are there, asked of the hardware itself."""
        return [device for backend in self.backends() for device in backend._hardware.findings().devices]

    def expected(self) -> dict[str, set[str]]:
        return self.variant.expected(self.plugged())

    def running(self) -> list[tuple[Pod, dict[str, Any]]]:
        """Pods that run and have been seen running, with what they got when they started."""
        return [(pod, got) for pod, got in self.grants.values() if pod.phase == "Running"]

    def held(self, resource: str) -> set[str]:
        return {slot for _, got in self.running() for slot in got["devices"].get(resource, ())}

    # --- Pods, and sockets of strangers ------------------------------------------------------------------------------

    def close_foreign(self) -> None:
        for listener in self._foreign:
            listener.close()
        self._foreign.clear()

    def _see_pods(self) -> None:
        alive = {pod.uid: pod for pod in self.kubelet.pods if pod.phase == "Running"}
        self.grants = {uid: grant for uid, grant in self.grants.items() if uid in alive}
        for uid, pod in alive.items():
            main = pod.containers["main"]
            if uid not in self.grants and main.state == "running":
                self.grants[uid] = (pod, {"devices": dict(main.devices), "env": dict(main.env)})

    def _beside(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._aside.add(task)
        task.add_done_callback(self._aside.discard)

    async def _run_pod(self, name: str, limits: dict[str, int]) -> None:
        # A kubelet that stops in the middle of it admits the pod in its next life.
        before = self._preparing()
        with contextlib.suppress(RuntimeError):
            self._check_prepared(await self.kubelet.run_pod(name, {"main": limits}), before)
        self._see_pods()

    def _preparing(self) -> tuple[tuple[object, int], set[str], dict[str, int]]:
        """Who would be asked to prepare a container now, which devices he knows, and what is prepared so far."""
        process = self.kubelet._process
        endpoint = process.node_devices.endpoints.get(AMD) if process else None
        known = {str(device.id) for device in self.daemon.engine.inventory.devices}
        return (endpoint, self.turns), known, dict(drill.MOOD.prepared)

    def _check_prepared(self, pod: Pod, before: tuple[tuple[object, int], set[str], dict[str, int]]) -> None:
        main, (whom, known, counts), now = pod.containers["main"], before, self._preparing()
        # A kubelet that has lost the plugin, or just found it, starts containers without asking it.
        if main.state != "running" or now[0] != whom or getattr(whom[0], "plugin", None) is None:
            return
        for slot in main.devices.get(AMD, ()):
            device = slot.partition("::")[0]
            if device in known & now[1] and now[2].get(device, 0) == counts.get(device, 0):
                self.unprepared.append(f"{pod.name} started on {device}")


async def _run(daemon: Daemon) -> None:
    with Signals(daemon.stop, partial(daemon.reload, fresh=True)):
        await daemon.run()


def born(path: Path) -> tuple[int, int]:
    """Tells a file from a later one of the same name."""
    with contextlib.suppress(OSError):
        found = path.stat()
        return found.st_ino, found.st_ctime_ns
    return 0, 0
