"""The contract of a backend, checked: what the engine relies on, asked of a backend the way the engine asks it.

For tests of any backend: `fairlead.testing.check_backend`. Asks only what the engine itself would ask.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from fairlead.app.calls import explain
from fairlead.app.source import Source, Tempo
from fairlead.model.clock import SystemClock
from fairlead.model.device import Device
from fairlead.model.edits import Edits, Grant
from fairlead.model.health import Cause, CauseKind, Health
from fairlead.model.names import SLOT_ID_MAX, ResourceName, SlotId
from fairlead.model.ports import Backend, Closes, EditsGrants, ProbesInTurn, Reopens, ShowsResets, Waits, Watches
from fairlead.policy.health import Tuning

# By the method that a port is found by. True: a coroutine.
_METHODS = {
    "discover": True,
    "watch": True,
    "probe": True,
    "probe_all": True,
    "signs": True,
    "prepare": True,
    "wait_for": True,
    "close": True,
    "edits": False,
    "reopen": False,
    "steer": False,
}
_FAULT = Cause("contract", CauseKind.NEEDS_RESET, "a fault of the contract's own")
_AT_ONCE = Tempo(tuning=Tuning(hold_s=0.0, probation_s=0.0, clean_probes=1, flap_count=1000))
_MOMENT_S = 0.05  # in which a watch must not end
_PATIENCE_S = 5.0


async def check_backend(backend: Backend) -> list[str]:
    """What of the contract is broken, one sentence each; empty when all holds. The backend is closed at the end.

    All of its devices must be well, and none may come or go meanwhile.
    """
    checked = _Checked(backend)
    try:
        return await checked.run()
    finally:
        if isinstance(backend, Closes):
            await backend.close()


class _Checked:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._facts: list[tuple[str, dict[str, Any]]] = []
        self._source = Source(backend.name, backend, _AT_ONCE, SystemClock(), self._record, lambda: None)

    def _record(self, kind: str, **keys: Any) -> None:
        self._facts.append((kind, keys))

    @property
    def _devices(self) -> tuple[Device, ...]:
        return self._source.findings.devices

    async def run(self) -> list[str]:
        broken = list(self._ports())
        if broken:
            return broken  # the rest would repeat it
        steps: list[Callable[[], Awaitable[list[str]]]] = [self._scans, self._recovers, self._watches]
        steps += [self._shows_resets, self._waits, self._reopens]
        for step in steps:
            broken += await step()
        return broken + self._edits()

    def _ports(self) -> Iterator[str]:
        called: Any = self._backend.name
        if not isinstance(called, str) or not called:
            yield f"name is {called!r:.80}, not a text"
        for name, coroutine in _METHODS.items():
            method = getattr(self._backend, name, None)
            if method is not None and inspect.iscoroutinefunction(method) is not coroutine:
                what, wanted = ("no coroutine", "async def") if coroutine else ("a coroutine", "def")
                yield f"{name} is {what}: write it with `{wanted}`"
        if hasattr(self._backend, "one_at_a_time") and hasattr(self._backend, "probe"):
            turn = self._backend.one_at_a_time if isinstance(self._backend, ProbesInTurn) else None
            if not isinstance(turn, bool):
                yield f"one_at_a_time is {turn!r:.80}, not a bool"

    async def _scans(self) -> list[str]:
        seen = []
        for _ in range(2):
            await self._source.scan()
            if self._source.problem:
                return [f"discover: {self._source.problem}"]
            seen.append([device.id for device in self._devices])
        broken = []
        if not seen[0]:
            broken.append("discover found no device: the contract needs at least one")
        if len(set(seen[0])) != len(seen[0]):
            broken.append(f"discover: ids are given twice: {sorted(seen[0])}")
        if seen[0] != seen[1]:
            broken.append(f"discover: two scans of the same devices differ: {seen[0]}, then {seen[1]}")
        long = [name for name in seen[0] if len(name) > SLOT_ID_MAX]
        return broken + [f"discover: the id {name!r} has over {SLOT_ID_MAX} characters" for name in long]

    async def _recovers(self) -> list[str]:
        """A device that is well is asked in each round, and comes back after a fault that clean probes end."""
        await self._source.pulse()
        failed = (keys for kind, keys in self._facts if kind == "probe-failed")
        broken = [f"probe of {keys['device']}: {keys['reason']}" for keys in failed]
        broken += [
            f"probe: {name} should be well, and is {found.health}: {found.cause}"
            for name, found in self._source.conditions.items()
            if found.health is not Health.HEALTHY
        ]
        probed = self._source.probed
        for device in () if broken or not probed else self._devices:
            self._source.fault(device.id, _FAULT)
        for _ in range(3):
            await self._source.pulse()
        stuck = [name for name, found in self._source.conditions.items() if found.health is not Health.HEALTHY]
        return broken + [f"probe: {name} does not come back after a fault" for name in stuck if not broken]

    async def _watches(self) -> list[str]:
        if not isinstance(self._backend, Watches):
            return []
        task = asyncio.create_task(self._backend.watch(self._source))
        await asyncio.wait({task}, timeout=_MOMENT_S)
        if task.done():
            return [f"watch ended: {_end_of(task)}. It must run until it is cancelled"]
        task.cancel()
        await asyncio.wait({task}, timeout=_PATIENCE_S)
        return [] if task.done() else [f"watch does not end within {_PATIENCE_S:g} s when it is cancelled"]

    async def _shows_resets(self) -> list[str]:
        if not isinstance(self._backend, ShowsResets):
            return []
        signs = await self._backend.signs(self._devices)
        return [f"signs: {device.id} is left out" for device in self._devices if device.id not in signs]

    async def _waits(self) -> list[str]:
        if not isinstance(self._backend, Waits):
            return []
        reason: Any = await self._backend.wait_for()
        return [] if isinstance(reason, str) else [f"wait_for gave {reason!r:.80}, not a text"]

    async def _reopens(self) -> list[str]:
        if not isinstance(self._backend, Reopens):
            return []
        before = [device.id for device in self._devices]
        self._source.rescan(fresh=True)
        await self._source.scan()
        after = [device.id for device in self._devices]
        if self._source.problem or before != after:
            return [f"reopen: the scan after it found {after}, not {before}. {self._source.problem}"]
        return []

    def _edits(self) -> list[str]:
        if not isinstance(self._backend, EditsGrants) or not self._devices:
            return []
        device = self._devices[0]
        grant = Grant(ResourceName("contract.example/device"), (SlotId(str(device.id)),), (device,))
        try:
            answers: list[Any] = [self._backend.edits(grant) for _ in range(2)]
        except Exception as error:  # noqa: BLE001 - a backend may be foreign code
            return [f"edits: {explain(error)}"]
        if wrong := [answer for answer in answers if not isinstance(answer, Edits)]:
            return [f"edits gave {wrong[0]!r:.80}, not Edits"]
        return [] if answers[0] == answers[1] else ["edits: two answers for one grant differ"]


def _end_of(task: asyncio.Task[None]) -> str:
    if task.cancelled():
        return "cancelled"
    error = task.exception()
    return explain(error) if error is not None else "it returned"
