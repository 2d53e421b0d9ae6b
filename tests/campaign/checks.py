"""What must hold: at every moment, and after quiet. Reads; changes nothing."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

from fairlead.fronts.deviceplugin.lifecycle import Phase
from fairlead.observe.journal import CAPACITY
from tests.campaign.node import Node

# The longest way back: a refused registration's back-off, a retired slot's hold and the look at who holds what.
QUIET_MAX_S = 400.0
STAYS_S = 20.0
# Facts that only a defect of ours can cause.
NEVER = ("endpoint-crashed", "task-crashed", "call-failed", "watch-failed", "probe-failed", "list-refused")


class Violation(AssertionError):
    """Something that must hold did not."""


class Checks:
    def __init__(self, node: Node) -> None:
        self._node = node
        # Per unit: the slots it has listed while a pod held them.
        self._listed: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()
        # Per source: the devices it had at the last look.
        self._found: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()
        # Per resource: every id that the present daemon listed since it serves the resource.
        self._served: dict[str, set[str]] = {}
        self._lives = 0
        self.faults: list[str] = []  # what the loop was told of and nobody handled

    def on_loop_fault(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.faults.append(f"{context.get('message')}: {context.get('exception')!r} {context.get('task', '')}")

    def now(self) -> None:
        """After every event."""
        node = self._node
        if self.faults:
            raise Violation(f"nobody handled: {self.faults[0]}")
        if node.kubelet.panic is not None:
            raise Violation(f"the kubelet panicked: {node.kubelet.panic}")
        if node.unprepared:
            raise Violation(f"not prepared: {node.unprepared[0]}")
        if end := node.daemon_end():
            raise Violation(f"the daemon ended by itself: {end}")
        journal = node.journal
        for kind in NEVER:
            if journal.counts[kind]:
                fact = next((fact for fact in reversed(journal.tail()) if fact.kind == kind), None)
                raise Violation(f"{kind}: {fact.keys if fact else 'no longer in the journal'}")
        if len(journal.tail(1 << 30)) > CAPACITY:
            raise Violation("the journal grows")
        self._check_scans()
        self._check_units()
        self._check_pods()

    def _check_scans(self) -> None:
        for source in self._node.sources().values():
            known = {device.id for device in source.findings.devices}
            if source.problem and (gone := self._found.get(source, set()) - known):
                raise Violation(f"{source.name}: a scan that failed withdrew {sorted(gone)}")
            self._found[source] = known

    def _check_units(self) -> None:
        units = self._node.daemon.supervisor.endpoints
        before = self._served if self._lives == self._node.lives else {}
        self._lives = self._node.lives
        self._served = {
            name: before.get(name, set()) | {str(slot.id) for slot in unit.resource.slots}
            for name, unit in units.items()
        }
        for name, unit in units.items():
            if unit.life.streams > 1:
                raise Violation(f"{name}: {unit.life.streams} streams on one server")
            held = self._node.held(name)
            offered = {str(slot.id) for slot in unit.resource.slots}
            listed = {slot for slot in self._listed.get(unit, set()) if slot in held}
            if gone := listed - offered:
                raise Violation(f"{name}: held, and gone from the list: {sorted(gone)}")
            self._listed[unit] = listed | (held & offered)

    def _check_pods(self) -> None:
        for pod, got in self._node.running():
            main = pod.containers["main"]
            if main.state == "running" and (dict(main.devices), dict(main.env)) != (got["devices"], got["env"]):
                raise Violation(f"{pod.name}: had {got}, has {main.devices} {main.env}")

    async def quiet(self) -> None:
        """Faults are over: everything must come right by itself, and stay so."""
        loop = asyncio.get_running_loop()
        until_s, right_since_s = loop.time() + QUIET_MAX_S, loop.time()
        while loop.time() - right_since_s < STAYS_S:
            if wrong := self._wrong():
                right_since_s = loop.time() + 1.0
                if loop.time() > until_s:
                    raise Violation(f"not right {QUIET_MAX_S:g} s after the last fault: {'; '.join(wrong[:6])}")
            await asyncio.sleep(1.0)
            self.now()

    def _wrong(self) -> list[str]:
        node = self._node
        wrong = []
        if set(sources := node.sources()) != node.variant.backends:
            wrong.append(f"sources are {sorted(sources)}, not {sorted(node.variant.backends)}")
        expected = node.expected()
        units = node.daemon.supervisor.endpoints
        wrong += [f"{name}: not served" for name in expected.keys() - units.keys()]
        # A device that is held as it was offered before is kept back as it is offered now.
        busy = {slot.partition("::")[0] for name in units for slot in self._booked(name) - expected.get(name, set())}
        for name, unit in units.items():
            wrong += [f"{name}: {text}" for text in self._wrong_unit(name, unit, expected.get(name, set()), busy)]
        return wrong

    def _wrong_unit(self, name: str, unit: Any, offered: set[str], busy: set[str]) -> list[str]:
        node = self._node
        wrong = []
        if unit.life.phase is not Phase.STREAMING or unit.life.streams != 1:
            wrong.append(f"{unit.life.phase}, {unit.life.streams} streams, {unit.life.reason}")
        process = node.kubelet._process
        endpoint = process.node_devices.endpoints.get(name) if process else None
        if endpoint is None or endpoint.stopped_at_s is not None:
            wrong.append("the kubelet has no live endpoint")
        known = node.kubelet.devices(name)
        wrong += _differences(known, offered, self._booked(name), self._served.get(name, set()), busy)
        return wrong

    def _booked(self, name: str) -> set[str]:
        """What any active pod holds by the kubelet's own books."""
        process = self._node.kubelet._process
        if process is None:
            return set()
        process.admission.free_inactive()
        return {str(slot) for (_, _, resource), grant in process.pod_devices if resource == name for slot in grant.ids}


def _differences(
    known: Mapping[str, str], offered: set[str], booked: set[str], served: set[str], busy: set[str]
) -> Iterator[str]:
    """Where the kubelet's list is not, to the slot, what it must be.

    What is there is listed, and healthy but for what is kept back. What is gone stays listed, unhealthy, as long as a
    pod holds it, and no longer.
    """
    kept_back = {slot for slot in offered if slot.partition("::")[0] in busy}
    healthy = {slot for slot, health in known.items() if health == "Healthy"}
    retired = known.keys() - offered
    found = {
        "missing": offered - known.keys(),
        "there, but not healthy": (offered - kept_back) & (known.keys() - healthy),
        "kept back, but healthy": kept_back & healthy,
        "gone, but healthy": retired & healthy,
        "gone and free, but listed": retired - booked,
        "gone and held, but not listed": (booked & served) - offered - retired,
    }
    return (f"{what}: {sorted(slots)}" for what, slots in found.items() if slots)
