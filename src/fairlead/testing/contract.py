"""The contract of a backend, checked: what the engine relies on, asked of a backend the way the engine asks it.

For tests of any backend: `fairlead.testing.check_backend`. A breach names the rule, what was seen, and the cure.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

from msgspec.structs import replace

from fairlead.engine.closing import close_backend
from fairlead.engine.source import Source, Tempo
from fairlead.engine.validate import check_edits
from fairlead.kit.calls import Calls, explain
from fairlead.kit.clock import SystemClock
from fairlead.model.device import Device
from fairlead.model.edits import Grant
from fairlead.model.errors import FairleadError, some
from fairlead.model.health import Cause, CauseKind, Health
from fairlead.model.names import ResourceName, SlotId, parse_slot_id
from fairlead.model.ports import Backend, EditsGrants, ProbesInTurn, Reopens, ShowsResets, Waits, Watches
from fairlead.policy.health import Tuning
from fairlead.testing.measure import Heartbeat, touched, traces

# Each rule with its cure; docs/guide/testing-your-plugin.md has them all.
RULES = {
    "ports": "Write `async def` for what may wait, and `def` for edits, reopen and steer",
    "scan": "discover returns Findings in time; it raises when it does not know, and never hides a device",
    "devices": "Check a backend that has at least one device",
    "ids": "An id is unique, printable, without spaces, and has at most 63 characters",
    "stable-ids": "Make ids of what stays: a serial number, a PCI address, a UUID; never a counter or the time",
    "order": "Sort the devices, by id or by address: the order in which files or a driver list them may change",
    "stable-facts": "Tell facts that stay; what changes by itself, such as a temperature, is no fact of a device",
    "bounds": "Texts are valid UTF-8 and of a sensible length; leave out what is not, and say so in problems",
    "health": "A probe answers for every device: None when it is well, a Cause when it is not; raise when not known",
    "watch": "watch runs until it is cancelled, and ends then",
    "deadline": "Let a cancellation through: do not catch CancelledError or BaseException without raising it again",
    "blocking": "Put what blocks on a thread: fairlead.kit.owner.Owner, or asyncio.to_thread",
    "signs": "signs answers for every device that it is asked about, with an empty mapping if need be",
    "wait-for": "wait_for returns a text; an empty one means that there is nothing to wait for",
    "reopen": "After reopen the same devices are found, by a new session",
    "edits": "edits is pure and quick: it makes Edits of the grant alone, without files, sockets or libraries",
    "hot-plug": "A device that is gone is not found; one that comes back is found under the same id",
    "garbage": "Name what cannot be read in problems, or raise; do not lose a device in silence",
    "closing": "close ends what the backend started: threads, tasks, sockets and files, also before the first scan",
}
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
_BLOCKED_S = 0.5
_EDITS_S = 0.05

Hook = Callable[[], object] | None  # run on a thread
Step = Callable[[], Awaitable[list[str]]]


async def check_backend(
    backend: Backend | Callable[[], Backend],
    *,
    unplug: Hook = None,
    plug: Hook = None,
    garbage: Hook = None,
    deadline_s: float = 30.0,
) -> list[str]:
    """What of the contract is broken, one sentence each; empty when all holds. What was opened is closed at the end.

    `backend`: one, or better a function that opens one: then a second one must find the same. All devices must be well,
    and none may come or go meanwhile. `unplug` takes a device away and `plug` brings it back, in what the backend looks
    at; `garbage` damages what it looks at, and comes last. `deadline_s` is for each scan and each probe.
    """
    tempo = replace(_AT_ONCE, scan_deadline_s=deadline_s, probe_deadline_s=deadline_s)
    before = traces()
    with Heartbeat(_BLOCKED_S) as heartbeat:
        # A class has the methods of a backend, too.
        given = backend if isinstance(backend, Backend) and not isinstance(backend, type) else None
        make: Any = None if given is not None else backend
        first = _Checked(given or make(), tempo)
        broken = await first.run()
        if make is not None and not broken:  # the rest would repeat it
            broken += await _again(first, _Checked(make(), tempo))
            broken += await _close(make())
        if unplug is not None and plug is not None and not broken:
            broken += await first.hot_plug(unplug, plug)
        if garbage is not None and not broken:
            broken += await first.in_garbage(garbage)
        broken += await _close(first.backend)
    broken += [
        _breach("blocking", f"the event loop stood still for {_BLOCKED_S:g} s at {at}") for at in heartbeat.blocked
    ]
    return broken + await _left_open(before)


def _breach(rule: str, seen: str) -> str:
    return f"{rule}: {seen}. {RULES[rule]}"


async def _again(first: _Checked, second: _Checked) -> list[str]:
    """A daemon that starts again, or a reload, must find the same."""
    broken = await second.scan()
    broken += _differences(first.devices, second.devices, "a second backend of the same options")
    return broken + await _close(second.backend)


async def _close(backend: Backend) -> list[str]:
    failed: list[str] = []
    await close_backend(backend.name, backend, lambda _kind, **keys: failed.append(str(keys["reason"])))
    return [_breach("closing", f"close: {reason}") for reason in failed]


async def _left_open(before: dict[tuple[str, int], str]) -> list[str]:
    left: dict[tuple[str, int], str] = {}
    for _ in range(1 + round(_PATIENCE_S / _MOMENT_S)):
        now = traces()
        left = {key: name for key, name in now.items() if before.get(key) != name}
        if not left:
            return []
        await asyncio.sleep(_MOMENT_S)
    names = dict.fromkeys(f"{kind} {name}" for (kind, _), name in left.items())
    return [_breach("closing", f"left behind: {some(names)}")]


def _differences(before: Iterable[Device], after: Iterable[Device], what: str, rule: str = "") -> list[str]:
    """`rule`: which is broken, where it is a special one."""
    one, other = list(before), list(after)
    ids, more = [device.id for device in one], [device.id for device in other]
    if sorted(ids) != sorted(more):
        return [_breach(rule or "stable-ids", f"{what} found {some(more)}, not {some(ids)}")]
    if ids != more:
        return [_breach(rule or "order", f"{what} found {some(more)}, in another order than {some(ids)}")]
    for device, same in zip(one, other, strict=True):
        if changed := [name for name in Device.__struct_fields__ if getattr(device, name) != getattr(same, name)]:
            return [_breach(rule or "stable-facts", f"{what} found {device.id} with another {' and '.join(changed)}")]
    return []


class _Checked:
    def __init__(self, backend: Backend, tempo: Tempo) -> None:
        self.backend = backend
        self._facts: list[tuple[str, dict[str, Any]]] = []
        self._source = Source("contract", backend, tempo, SystemClock(), self._record, lambda: None)
        self._calls = Calls()

    def _record(self, kind: str, **keys: Any) -> None:
        self._facts.append((kind, keys))

    @property
    def devices(self) -> tuple[Device, ...]:
        return self._source.findings.devices

    async def run(self) -> list[str]:
        if broken := list(self._ports()):
            return broken  # the rest would repeat it
        if broken := await self._scans():
            return broken
        steps: list[Step] = [self._ends, self._recovers, self._watches, self._shows_resets, self._waits, self._reopens]
        for step in steps:
            broken += await step()
        return broken + self._edits()

    def _ports(self) -> Iterator[str]:
        called: Any = self.backend.name
        if not isinstance(called, str) or not called:
            yield _breach("ports", f"name is {called!r:.80}, not a text")
        for name, coroutine in _METHODS.items():
            method = getattr(self.backend, name, None)
            if method is not None and inspect.iscoroutinefunction(method) is not coroutine:
                yield _breach("ports", f"{name} is {'no coroutine' if coroutine else 'a coroutine'}")
        if hasattr(self.backend, "one_at_a_time") and hasattr(self.backend, "probe"):
            turn = self.backend.one_at_a_time if isinstance(self.backend, ProbesInTurn) else None
            if not isinstance(turn, bool):
                yield _breach("ports", f"one_at_a_time is {turn!r:.80}, not a bool")

    async def scan(self, rule: str = "scan") -> list[str]:
        await self._source.scan()
        return [_breach(rule, f"discover: {self._source.problem}")] if self._source.problem else []

    async def _scans(self) -> list[str]:
        if broken := await self.scan():
            return broken
        first = self.devices
        if broken := await self.scan():
            return broken
        told = [problem for problem in self._source.findings.problems if ": left out, because " in problem]
        broken = [_breach("bounds", problem) for problem in told]
        if not first and not broken:
            broken.append(_breach("devices", "discover found none"))
        ids = [device.id for device in first]
        if twice := sorted({name for name in ids if ids.count(name) > 1}):
            broken.append(_breach("ids", f"{some(twice)} is given twice"))
        for name in ids:
            try:
                parse_slot_id(name)
            except FairleadError as error:
                broken.append(_breach("ids", str(error)))
        return broken + _differences(first, self.devices, "a second scan")

    async def _ends(self) -> list[str]:
        """A scan that takes too long is cancelled, and the next one must be possible."""
        return await self._cancelled("deadline", "discover", self.backend.discover())

    async def _cancelled(self, rule: str, what: str, work: Any) -> list[str]:
        task = asyncio.ensure_future(work)
        await asyncio.wait({task}, timeout=0)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task}, timeout=_PATIENCE_S)
        if not task.done():
            return [_breach(rule, f"{what} does not end within {_PATIENCE_S:g} s when it is cancelled")]
        _end_of(task)  # its error has had a reader
        return []

    async def _recovers(self) -> list[str]:
        """A device that is well is asked in each round, and comes back after a fault that clean probes end."""
        await self._source.pulse()
        failed = (keys for kind, keys in self._facts if kind == "probe-failed")
        broken = [_breach("health", f"probe of {keys['device']}: {keys['reason']}") for keys in failed]
        broken += [
            _breach("health", f"{name} should be well, and is {found.health}: {found.cause}")
            for name, found in self._source.conditions.items()
            if found.health is not Health.HEALTHY
        ]
        if broken or not self._source.probed:
            return broken
        for device in self.devices:
            self._source.fault(device.id, _FAULT)
        for _ in range(3):
            await self._source.pulse()
        stuck = [name for name, found in self._source.conditions.items() if found.health is not Health.HEALTHY]
        return [_breach("health", f"{name} does not come back after a fault") for name in stuck]

    async def _watches(self) -> list[str]:
        if not isinstance(self.backend, Watches):
            return []
        task = asyncio.ensure_future(self.backend.watch(self._source))
        await asyncio.wait({task}, timeout=_MOMENT_S)
        if task.done():
            return [_breach("watch", f"watch ended: {_end_of(task)}")]
        return await self._cancelled("watch", "watch", task)

    async def _shows_resets(self) -> list[str]:
        if not isinstance(self.backend, ShowsResets):
            return []
        signs, broken = await self._ask("signs", "signs", self.backend.signs, self.devices)
        return broken or [_breach("signs", f"{each.id} is left out") for each in self.devices if each.id not in signs]

    async def _waits(self) -> list[str]:
        if not isinstance(self.backend, Waits):
            return []
        reason, broken = await self._ask("wait-for", "wait_for", self.backend.wait_for)
        fits = broken or isinstance(reason, str)
        return broken if fits else [_breach("wait-for", f"wait_for gave {reason!r:.80}, not a text")]

    async def _ask(self, rule: str, what: str, method: Callable[..., Any], *arguments: object) -> tuple[Any, list[str]]:
        """The answer, or why there is none."""
        deadline_s = self._source.tempo.probe_deadline_s
        try:
            async with asyncio.timeout(deadline_s):
                return await self._calls.call(what, method, *arguments), []
        except TimeoutError:
            return None, [_breach(rule, f"{what} has not answered in {deadline_s:g} s")]
        except Exception as error:  # noqa: BLE001 - a backend may be foreign code
            return None, [_breach(rule, f"{what}: {explain(error)}")]

    async def _reopens(self) -> list[str]:
        if not isinstance(self.backend, Reopens):
            return []
        before = self.devices
        self._source.rescan(fresh=True)
        return await self.scan("reopen") or _differences(before, self.devices, "the scan after it", "reopen")

    def _edits(self) -> list[str]:
        if not isinstance(self.backend, EditsGrants):
            return []
        return self._edits_of(self.backend, self.devices[:1]) or self._edits_of(self.backend, self.devices)

    def _edits_of(self, backend: EditsGrants, devices: tuple[Device, ...]) -> list[str]:
        slots = tuple(SlotId(str(device.id)) for device in devices)
        grant = Grant(ResourceName("contract.example/device"), slots, devices)
        clock = SystemClock()
        took_s: list[float] = []
        try:
            answers = [check_edits(backend.edits(grant))]  # what it imports, it imports now
            with touched() as seen:
                for _ in range(3):
                    began_s = clock.monotonic()
                    answers.append(backend.edits(grant))
                    took_s.append(clock.monotonic() - began_s)
        except Exception as error:  # noqa: BLE001 - a backend may be foreign code
            return [_breach("edits", f"edits: {explain(error)}")]
        same = all(answer == answers[0] for answer in answers)
        broken = [] if same else [_breach("edits", "two answers for one grant differ")]
        if seen:
            broken.append(_breach("edits", f"edits has used the host: {some(seen)}"))
        if min(took_s) > _EDITS_S:
            broken.append(_breach("edits", f"edits took {min(took_s):.3g} s for {len(devices)} devices"))
        return broken

    async def hot_plug(self, unplug: Callable[[], object], plug: Callable[[], object]) -> list[str]:
        before = self.devices
        await asyncio.to_thread(unplug)
        if broken := await self.scan("hot-plug"):
            return broken
        ids, left = {device.id for device in before}, {device.id for device in self.devices}
        if not left < ids:
            return [_breach("hot-plug", f"without one of {some(sorted(ids))}, {some(sorted(left))} were found")]
        await asyncio.to_thread(plug)
        again = "the scan after the device came back"
        return await self.scan("hot-plug") or _differences(before, self.devices, again, "hot-plug")

    async def in_garbage(self, garbage: Callable[[], object]) -> list[str]:
        before = {device.id for device in self.devices}
        await asyncio.to_thread(garbage)
        await self._source.scan()
        lost = before - {device.id for device in self.devices}
        if "has not answered in" in self._source.problem:
            return [_breach("garbage", self._source.problem)]
        if lost and not self._source.problem and not self._source.findings.problems:
            return [_breach("garbage", f"{some(sorted(lost))} are not found any more, and no problem says why")]
        return []


def _end_of(task: asyncio.Future[Any]) -> str:
    if task.cancelled():
        return "cancelled"
    error = task.exception()
    return explain(error) if error is not None else "it returned"
