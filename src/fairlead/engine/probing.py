"""Probing: the one way in which the engine asks devices how they are, whatever probes a backend has.

A round has an answer for every device: a cause, None for a device that is well, or an exception where there is no data.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

from fairlead.engine.validate import check_verdict
from fairlead.kit.calls import Calls
from fairlead.model.device import Device
from fairlead.model.errors import BackendError
from fairlead.model.health import Cause, CauseKind
from fairlead.model.names import DeviceId
from fairlead.model.ports import Backend, Probes, ProbesAll, ProbesInTurn

Verdict: TypeAlias = Cause | Exception | None
Heed: TypeAlias = Callable[[Device, Verdict], None]


class Prober(Protocol):
    async def ask(self, devices: Sequence[Device], deadline_s: float, heed: Heed) -> None:
        """Gives each verdict to `heed` when it comes: one that waits for other devices may be out of date."""
        ...


def prober_of(backend: Backend, calls: Calls) -> Prober | None:
    """None for a backend whose devices cannot be asked."""
    if isinstance(backend, ProbesAll):
        return AllAtOnce(backend, calls)
    if isinstance(backend, Probes):
        return OneByOne(backend, calls)
    return None


class AllAtOnce:
    """For a backend that asks all of its devices itself: one call and one deadline for the round."""

    def __init__(self, backend: ProbesAll, calls: Calls) -> None:
        self._backend, self._calls = backend, calls

    async def ask(self, devices: Sequence[Device], deadline_s: float, heed: Heed) -> None:
        verdicts = await self._ask(devices, deadline_s)
        for device in devices:
            heed(device, verdicts[device.id])

    async def _ask(self, devices: Sequence[Device], deadline_s: float) -> Mapping[DeviceId, Verdict]:
        try:
            async with asyncio.timeout(deadline_s):
                said = await self._calls.call("the probe of all devices", self._backend.probe_all, devices)
            found = {name: word if isinstance(word, Exception) else check_verdict(word) for name, word in said.items()}
        except TimeoutError:
            return dict.fromkeys((device.id for device in devices), _late(deadline_s))
        except Exception as error:  # noqa: BLE001 - a backend may be foreign code
            return dict.fromkeys((device.id for device in devices), error)
        untold = BackendError("the backend gave no answer for it")
        return {device.id: found.get(device.id, untold) for device in devices}


class OneByOne:
    """For a backend that asks a single device: a call and a deadline for each, in turn where they share a thread."""

    def __init__(self, backend: Probes, calls: Calls) -> None:
        self._backend, self._calls = backend, calls
        self._in_turn = isinstance(backend, ProbesInTurn) and backend.one_at_a_time

    async def ask(self, devices: Sequence[Device], deadline_s: float, heed: Heed) -> None:
        async def one(device: Device) -> None:
            heed(device, await self._ask_one(device, deadline_s))

        if self._in_turn:
            for device in devices:
                await one(device)
        else:
            await asyncio.gather(*map(one, devices))

    async def _ask_one(self, device: Device, deadline_s: float) -> Verdict:
        try:
            async with asyncio.timeout(deadline_s):
                return check_verdict(await self._calls.call(f"the probe of {device.id}", self._backend.probe, device))
        except TimeoutError:
            return _late(deadline_s)
        except Exception as error:  # noqa: BLE001 - as above
            return error


def _late(deadline_s: float) -> Cause:
    return Cause("probe-timeout", CauseKind.TRANSIENT, f"the device has not answered in {deadline_s:g} s")
