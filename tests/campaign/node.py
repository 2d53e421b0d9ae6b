"""The node under fire: the real daemon, the stand-in kubelet, and every way in which things go wrong with them.

Owns the doing. What must hold is in `checks`; which events come is in `events`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import socket
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from fairlead.app.daemon import Daemon
from fairlead.app.source import Source
from fairlead.backends.sim import SimBackend
from fairlead.config.load import Loaded, load
from fairlead.kubelet.lifecycle import Phase
from fairlead.model.device import Device
from fairlead.model.errors import UsageError
from fairlead.observe.journal import Journal
from fairlead.standin import Kubelet, Pod
from tests.campaign.events import QUIET, Event
from tests.campaign.variants import BAD, NVIDIA, VARIANTS, Variant
from tests.campaign.warp import SteadyClock, WarpClock

PODS_MAX = 6
CARDS_MAX = 9
KINDS = ("transient", "needs-reset", "permanent", "application")
DAY_S = 86_400.0
ANSWERED = frozenset({Phase.REGISTER, Phase.AWAIT_STREAM})


class Node:
    def __init__(self, root: Path, seed: int) -> None:
        self.clock = WarpClock()
        self.kubelet = Kubelet(root / "k", seed=seed, clock=SteadyClock(), rate_limit=False)
        self.config = root / "fairlead.yaml"
        self.variant = VARIANTS[0]
        self.grants: dict[str, tuple[Pod, dict[str, Any]]] = {}  # what each running pod got, by uid
        self._foreign: list[socket.socket] = []
        self._kubelet_broken = False
        self._pod_number = 0
        self._aside: set[asyncio.Task[None]] = set()
        self._task: asyncio.Task[None] | None = None

    # --- Life -----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
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

    def start_daemon(self) -> None:
        self.daemon = Daemon(self.load(), reload=self.load, clock=self.clock, journal=Journal(self.clock))
        self._task = asyncio.create_task(self.daemon.run(), name="daemon")

    async def stop_daemon(self) -> None:
        if self._task is not None:
            self.daemon.stop()
            task, self._task = self._task, None
            await task

    def expects_answer(self) -> bool:
        """Whether the kubelet owes an answer or a stream: it works on threads, in real time."""
        return any(unit.life.phase in ANSWERED for unit in self.daemon.supervisor.units.values())

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
            f"\nkubelet: {{directory: {kubelet.plugin_dir}, podResources: {kubelet.podresources_socket}}}"
            f"\nstatus: {{socket: {self.config.parent}/fl.sock}}\n"
        )
        beside = self.config.with_suffix(".new")
        beside.write_text(text + places)
        beside.replace(self.config)

    # --- What there is --------------------------------------------------------------------------------------------

    def sources(self) -> dict[str, Source]:
        return self.daemon.sources.live

    def backends(self) -> list[SimBackend]:
        return [source.backend for source in self.sources().values() if isinstance(source.backend, SimBackend)]

    def plugged(self) -> list[Device]:
        """The devices that are there, asked of the hardware itself."""
        return [device for backend in self.backends() for device in backend._world.findings().devices]

    def expected(self) -> dict[str, set[str]]:
        return self.variant.expected(self.plugged())

    def running(self) -> list[tuple[Pod, dict[str, Any]]]:
        """Pods that run and have been seen running, with what they got when they started."""
        return [(pod, got) for pod, got in self.grants.values() if pod.phase == "Running"]

    def held(self, resource: str) -> set[str]:
        return {slot for _, got in self.running() for slot in got["devices"].get(resource, ())}

    # --- Playing --------------------------------------------------------------------------------------------------

    async def play(self, event: Event) -> None:
        rng = random.Random(event.n)
        if event.kind != QUIET:
            await getattr(self, "_on_" + event.kind.replace("-", "_"))(rng)
        if event.gap_s:
            await asyncio.sleep(event.gap_s)
        self._see_pods()

    async def calm(self) -> None:
        """Every fault is over. What follows from it takes its time."""
        await self._on_register_heals(random.Random(0))
        self.close_foreign()
        if not self.kubelet.is_running:
            await self.kubelet.stop()
            await self.kubelet.start()
        elif self._kubelet_broken:
            await self.kubelet.restart()
        self._kubelet_broken = False
        self.write(self.variant)
        self.daemon.reload()
        # A source that was replaced remembers its faults, and hears that they are over once it listens.
        await asyncio.sleep(3.0)
        for backend in self.backends():
            backend.steer({"do": "recover"})
        # Somebody sets the clock while devices are on probation: back, and the next time forward again.
        self.clock.shift_s = -DAY_S if self.clock.shift_s >= 0 else DAY_S
        while self._aside:
            await asyncio.wait(self._aside)
        self._see_pods()

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

    # --- The kubelet ----------------------------------------------------------------------------------------------

    async def _on_kubelet_restart(self, _rng: random.Random) -> None:
        await self._stop_kubelet()
        await self.kubelet.start()

    async def _on_kubelet_reboot(self, _rng: random.Random) -> None:
        # No container lives through it: nobody is owed the device he had.
        self.grants.clear()
        await self._stop_kubelet()
        await self.kubelet.start(reboot=True)

    async def _on_kubelet_stop(self, _rng: random.Random) -> None:
        await self._stop_kubelet()

    async def _on_kubelet_start(self, _rng: random.Random) -> None:
        if not self.kubelet.is_running:
            await self._stop_kubelet()
            await self.kubelet.start()

    async def _stop_kubelet(self) -> None:
        self.kubelet.faults.restart_on_register = False
        await self.kubelet.stop()
        self._kubelet_broken = False

    async def _on_stream_eof(self, rng: random.Random) -> None:
        if self.kubelet.is_running and (units := sorted(self.daemon.supervisor.units)):
            self.kubelet.close_stream(rng.choice(units))

    # --- Sockets --------------------------------------------------------------------------------------------------

    async def _on_wipe_sockets(self, _rng: random.Random) -> None:
        self.kubelet.delete_sockets()

    async def _on_remove_socket(self, rng: random.Random) -> None:
        if (path := self._own_socket(rng)) is not None:
            path.unlink(missing_ok=True)

    async def _on_replace_socket(self, rng: random.Random) -> None:
        if (path := self._own_socket(rng)) is not None:
            self._squat(path)

    async def _on_remove_kubelet_socket(self, _rng: random.Random) -> None:
        self._kubelet_broken = True
        (self.kubelet.plugin_dir / "kubelet.sock").unlink(missing_ok=True)

    async def _on_replace_kubelet_socket(self, _rng: random.Random) -> None:
        """A socket that takes connections and never says a word."""
        self._kubelet_broken = True
        self._squat(self.kubelet.plugin_dir / "kubelet.sock")

    def _own_socket(self, rng: random.Random) -> Path | None:
        units = sorted(self.daemon.supervisor.units.items())
        return rng.choice(units)[1].socket if units else None

    def _squat(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen()
        self._foreign.append(listener)

    # --- Registration ---------------------------------------------------------------------------------------------

    async def _on_refuse_register(self, _rng: random.Random) -> None:
        self.kubelet.faults.refuse_register = "not today"

    async def _on_never_dial(self, _rng: random.Random) -> None:
        self.kubelet.faults.never_dial = True

    async def _on_never_stream(self, _rng: random.Random) -> None:
        self.kubelet.faults.never_stream = True

    async def _on_other_version(self, _rng: random.Random) -> None:
        self.kubelet.faults.version = "v2"

    async def _on_restart_on_register(self, _rng: random.Random) -> None:
        self.kubelet.faults.restart_on_register = self.kubelet.is_running

    async def _on_slow_reader(self, rng: random.Random) -> None:
        self.kubelet.faults.read_delay_s = rng.uniform(0.1, 5.0)

    async def _on_register_heals(self, _rng: random.Random) -> None:
        faults = self.kubelet.faults
        faults.refuse_register, faults.version, faults.read_delay_s = "", "v1beta1", 0.0
        faults.never_dial = faults.never_stream = faults.restart_on_register = False

    # --- Time -----------------------------------------------------------------------------------------------------

    async def _on_wall_forward(self, rng: random.Random) -> None:
        self.clock.shift_s += rng.choice((1.0, 100.0, 7200.0, 86_400.0))

    async def _on_wall_back(self, rng: random.Random) -> None:
        self.clock.shift_s -= rng.choice((1.0, 100.0, 7200.0, 86_400.0))

    async def _on_time_passes(self, rng: random.Random) -> None:
        await asyncio.sleep(rng.choice((0.5, 5.0, 30.0, 120.0)))

    # --- Devices and backends -------------------------------------------------------------------------------------

    def _steer(self, rng: random.Random, do: str, *, device: bool = True, **more: Any) -> None:
        backends = self.backends()
        if not backends:
            return
        backend = rng.choice(backends)
        order = {"do": do, **more}
        if device:
            order["device"] = rng.choice(sorted(backend._world._cards))
        with contextlib.suppress(UsageError):
            backend.steer(order)

    async def _on_fail(self, rng: random.Random) -> None:
        self._steer(rng, "fail", code=rng.choice(("ecc", "bus", "heat")), kind=rng.choice(KINDS))

    async def _on_clear(self, rng: random.Random) -> None:
        self._steer(rng, "clear", code=rng.choice(("ecc", "bus", "heat", "")))

    async def _on_flap(self, rng: random.Random) -> None:
        self._steer(rng, "flap", code="flip", kind=rng.choice(KINDS), times=rng.randint(2, 6), every="2s")

    async def _on_recover(self, rng: random.Random) -> None:
        self._steer(rng, "recover")

    async def _on_recover_silently(self, rng: random.Random) -> None:
        self._steer(rng, "recover", silent=True)

    async def _on_unplug(self, rng: random.Random) -> None:
        self._steer(rng, "unplug")

    async def _on_plug(self, rng: random.Random) -> None:
        self._steer(rng, "plug")

    async def _on_plug_new(self, rng: random.Random) -> None:
        backend = rng.choice(self.backends() or [None])
        if backend is not None and len(backend._world._cards) < CARDS_MAX:
            cards = list(backend._world._cards.values())
            new = {"id": f"NEW-{backend._world.fleet}-{len(cards)}", "vendor": cards[0].device.vendor}
            with contextlib.suppress(UsageError):
                backend.steer({"do": "plug", "new": new})

    async def _on_probe_hangs(self, rng: random.Random) -> None:
        self._steer(rng, "hang")

    async def _on_probe_slow(self, rng: random.Random) -> None:
        self._steer(rng, "slow", takes=rng.choice(("1s", "4s", "60s")))

    async def _on_scan_fails(self, rng: random.Random) -> None:
        self._steer(rng, "scan-error", device=False)

    async def _on_scan_hangs(self, rng: random.Random) -> None:
        self._steer(rng, "scan-slow", device=False, takes=rng.choice(("5s", "1h")))

    async def _on_backend_heals(self, rng: random.Random) -> None:
        self._steer(rng, "recover", device=False)

    # --- Configuration and signals --------------------------------------------------------------------------------

    async def _on_config_good(self, rng: random.Random) -> None:
        self.write(rng.choice(VARIANTS))

    async def _on_config_bad(self, rng: random.Random) -> None:
        self._put(rng.choice(BAD))

    async def _on_config_gone(self, _rng: random.Random) -> None:
        self.config.unlink(missing_ok=True)

    async def _on_hangup(self, _rng: random.Random) -> None:
        # Before the daemon listens to it the signal would end this process.
        if self.daemon.journal.counts["started"] and threading.current_thread() is threading.main_thread():
            os.kill(os.getpid(), signal.SIGHUP)
        else:
            self.daemon.reload()

    async def _on_daemon_restart(self, _rng: random.Random) -> None:
        await self.stop_daemon()
        self.write(self.variant)
        self.start_daemon()

    async def _on_status(self, rng: random.Random) -> None:
        await self.daemon._tell_status({})
        await self.daemon._tell_journal({"count": rng.randint(0, 2000)})

    # --- Pods -----------------------------------------------------------------------------------------------------

    async def _on_pod_comes(self, rng: random.Random) -> None:
        names = [str(name) for name in sorted(self.daemon.supervisor.units)] or [NVIDIA]
        await self._make_room()
        if not self.kubelet.is_running:
            return
        self._pod_number += 1
        limits = {rng.choice(names): rng.choice((1, 1, 2, 3))}
        self._beside(self._run_pod(f"pod-{self._pod_number}", limits), "pod")

    async def _run_pod(self, name: str, limits: dict[str, int]) -> None:
        # A kubelet that stops in the middle of it admits the pod in its next life.
        with contextlib.suppress(RuntimeError):
            await self.kubelet.run_pod(name, {"main": limits})
        self._see_pods()

    async def _make_room(self) -> None:
        for pod in self.kubelet.pods:
            if not pod.is_active or len(self.kubelet.pods) >= PODS_MAX:
                await self.kubelet.delete_pod(pod)

    def _some_pod(self, rng: random.Random) -> Pod | None:
        pods = self.kubelet.pods
        return rng.choice(pods) if pods else None

    async def _on_pod_goes(self, rng: random.Random) -> None:
        if (pod := self._some_pod(rng)) is not None:
            await self.kubelet.delete_pod(pod)

    async def _on_pod_ends(self, rng: random.Random) -> None:
        if (pod := self._some_pod(rng)) is not None:
            self.kubelet.finish_pod(pod, rng.choice(("Succeeded", "Failed")))

    async def _on_container_restarts(self, rng: random.Random) -> None:
        pods = [pod for pod, _ in self.running()]
        if pods and self.kubelet.is_running:
            with contextlib.suppress(RuntimeError):
                await self.kubelet.restart_container(rng.choice(pods), "main")
