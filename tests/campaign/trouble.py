"""Every way in which things go wrong on the node, and how they are over.

Owns the doing. Which events come is in `events`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import socket
import threading
from pathlib import Path
from typing import Any

from fairlead.app.questions import itself
from fairlead.model.errors import UsageError
from fairlead.standin import Pod
from tests.campaign import drill
from tests.campaign.events import QUIET, Event
from tests.campaign.node import Node, born
from tests.campaign.variants import BAD, NVIDIA, VARIANTS

PODS_MAX = 6
CARDS_MAX = 9
KINDS = ("transient", "needs-reset", "permanent", "application")
DAY_S = 86_400.0
# Events that leave the devices that are known, and the daemon, as they are.
STEADY = {"pod-comes", "pod-goes", "pod-ends", "container-restarts", "status", "fail", "clear", "flap", "time-passes"}


class Troubled(Node):
    """A node on which any event can be played."""

    # --- Playing --------------------------------------------------------------------------------------------------

    async def play(self, event: Event) -> None:
        rng = random.Random(event.n)
        self.turns += event.kind not in STEADY
        if event.kind != QUIET:
            await getattr(self, "_on_" + event.kind.replace("-", "_"))(rng)
        if event.gap_s:
            await asyncio.sleep(event.gap_s)
        self._see_pods()

    async def calm(self) -> None:
        """Every fault is over. What follows from it takes its time."""
        await self._on_register_heals(random.Random(0))
        await self._on_prepare_heals(random.Random(0))
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
        if self.kubelet.is_running and (units := sorted(self.daemon.supervisor.endpoints)):
            self.kubelet.close_stream(rng.choice(units))

    # --- Sockets --------------------------------------------------------------------------------------------------

    async def _on_wipe_sockets(self, _rng: random.Random) -> None:
        self.kubelet.delete_sockets()
        for path in self.kubelet.registry_dir.glob("*.sock"):
            path.unlink()

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
        units = sorted(self.daemon.supervisor.endpoints.items())
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
            order["device"] = rng.choice(sorted(backend._hardware._cards))
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
        if backend is not None and len(backend._hardware._cards) < CARDS_MAX:
            cards = list(backend._hardware._cards.values())
            new = {"id": f"NEW-{backend._hardware.fleet}-{len(cards)}", "vendor": cards[0].device.vendor}
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
        if self.journal.counts["started"] and threading.current_thread() is threading.main_thread():
            os.kill(os.getpid(), signal.SIGHUP)
        else:
            self.daemon.reload()

    async def _on_daemon_restart(self, _rng: random.Random) -> None:
        await self.stop_daemon()
        self.write(self.variant)
        self.start_daemon()

    async def _on_daemon_killed(self, _rng: random.Random) -> None:
        """As SIGKILL leaves it: streams break, and every socket is still there, with nobody behind it."""
        sockets = [unit.socket for unit in self.daemon.supervisor.endpoints.values()]
        left = [path for path in (*sockets, self.config.parent / "fl.sock") if path.is_socket()]
        await self.stop_daemon()
        for path in left:
            path.unlink(missing_ok=True)  # a stranger's, if it was replaced
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(str(path))
            self._dead[path] = born(path)
        self.write(self.variant)
        self.start_daemon()

    async def _on_other_registration(self, _rng: random.Random) -> None:
        """Somebody chose the other way, which takes a restart."""
        await self.stop_daemon()
        self.watched = not self.watched
        self.write(self.variant)
        self.start_daemon()

    async def _on_prepare_fails(self, _rng: random.Random) -> None:
        drill.MOOD.fails = True

    async def _on_prepare_hangs(self, _rng: random.Random) -> None:
        drill.MOOD.hangs = True

    async def _on_prepare_heals(self, _rng: random.Random) -> None:
        drill.MOOD.fails = drill.MOOD.hangs = False

    async def _on_status(self, rng: random.Random) -> None:
        (await self.daemon.questions.status({}, itself()))()
        await self.daemon.questions.journal({"count": rng.randint(0, 2000)}, itself())

    # --- Pods -----------------------------------------------------------------------------------------------------

    async def _on_pod_comes(self, rng: random.Random) -> None:
        names = [str(name) for name in sorted(self.daemon.supervisor.endpoints)] or [NVIDIA]
        await self._make_room()
        if not self.kubelet.is_running:
            return
        self._pod_number += 1
        limits = {rng.choice(names): rng.choice((1, 1, 2, 3))}
        self._beside(self._run_pod(f"pod-{self._pod_number}", limits), "pod")

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
            pod, before = rng.choice(pods), self._preparing()
            with contextlib.suppress(RuntimeError):
                await self.kubelet.restart_container(pod, "main")
                self._check_prepared(pod, before)
