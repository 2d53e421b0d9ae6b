"""The simulated backend: the ports of the engine on a world of made-up hardware. It drives the real engine."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

from fairlead.backends.sim import spec
from fairlead.backends.sim.hardware import Hardware, Outcome
from fairlead.backends.sim.timerqueue import TimerQueue
from fairlead.kit.decoding import convert
from fairlead.model.device import Device
from fairlead.model.edits import Edits, Grant
from fairlead.model.errors import BackendError, ConfigError
from fairlead.model.health import Cause
from fairlead.model.inventory import Findings
from fairlead.model.names import DeviceId
from fairlead.model.ports import Clock, Sink


def devices_env(resource: str) -> str:
    """The variable with a container's devices. One per resource: of two with one name the kubelet keeps the first."""
    return "FAIRLEAD_SIM_DEVICES_" + "".join(char if char.isalnum() else "_" for char in resource.upper())


class _Due(NamedTuple):
    order: spec.AnyOrder
    flapping: DeviceId | None = None  # one turn of a flapping device: a recovery ends it


class SimBackend:
    name = "sim"

    def __init__(
        self, hardware: Hardware, timeline: tuple[spec.AnyOrder, ...], clock: Clock, *, speed: float = 1.0
    ) -> None:
        self._hardware = hardware
        self._clock = clock
        self._speed = speed
        self._timers: TimerQueue[_Due] = TimerQueue(clock)
        self._timeline = timeline
        self._sink: Sink | None = None
        self._eased = asyncio.Event()  # set and replaced when something that hung may answer again
        self._closed = False

    async def discover(self) -> Findings:
        if self._hardware.scan_takes_s:
            await self._clock.sleep(self._hardware.scan_takes_s)
        if self._hardware.scan_error:
            raise BackendError(f"sim: scan failed: {self._hardware.scan_error}")
        return self._hardware.findings()

    async def probe(self, device: Device) -> Cause | None:
        card = self._hardware.card(device.id)
        if card is None or not card.plugged:
            return None  # no data is not unhealthy; the next scan says that it is gone
        while card.hung and not self._closed:
            await self._eased.wait()
        if card.probe_takes_s:
            await self._clock.sleep(card.probe_takes_s)
        return next(reversed(card.faults.values()), None)

    async def watch(self, sink: Sink) -> None:
        """Runs the timeline. Its time starts with the first watch; a watch that is started again goes on."""
        self._sink = sink
        for device, cause in self._hardware.faults():
            sink.fault(device, cause)
        timeline, self._timeline = self._timeline, ()
        for order in timeline:
            self._timers.put(order.at / self._speed, _Due(order))
        try:
            await self._timers.run(self._act)
        finally:
            self._sink = None

    def edits(self, grant: Grant) -> Edits:
        return Edits(
            env={devices_env(grant.resource): ",".join(device.id for device in grant.devices)},
            nodes=tuple(dict.fromkeys(node for device in grant.devices for node in device.nodes)),
        )

    def steer(self, order: Mapping[str, Any]) -> str:
        """Carries one order out now, and says in one line what happened."""
        if "at" in order:
            raise ConfigError("order", ["at: an order given by hand is carried out now; leave 'at' out"])
        # Lax: an order from a command line has only text.
        return self._carry_out(convert(dict(order), spec.AnyOrder, "order", lax=True))  # type: ignore[arg-type]

    async def close(self) -> None:
        """Lets go of every probe that hangs."""
        self._closed = True
        self._ease()

    def _act(self, due: _Due) -> None:
        self._carry_out(due.order)

    def _carry_out(self, order: spec.AnyOrder) -> str:
        outcome = self._hardware.carry_out(order)
        self._ease()
        self._tell(outcome)
        if outcome.healed:
            self._timers.drop(lambda due: due.flapping in outcome.healed)
        for delay_s, device, turn in outcome.later:
            self._timers.put(delay_s / self._speed, _Due(turn, device))
        return outcome.line

    def _tell(self, outcome: Outcome) -> None:
        if self._sink is None:
            return
        for device, cause in outcome.faults:
            self._sink.fault(device, cause)
        for cleared, code in outcome.clears:
            self._sink.clear(cleared, code)
        if outcome.rescan:
            self._sink.rescan()

    def _ease(self) -> None:
        self._eased.set()
        self._eased = asyncio.Event()
