"""Ports: what the engine asks of the world. Small Protocols; a backend has those it can serve."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from fairlead.model.device import Device, Usage
from fairlead.model.edits import Edits, Grant
from fairlead.model.health import Cause, Sign
from fairlead.model.inventory import Findings
from fairlead.model.names import DeviceId

Record = Callable[..., None]  # the journal: (event, **keys)


@runtime_checkable
class Backend(Protocol):
    """Where devices come from. The only thing a backend must be able to do is to say what exists."""

    @property
    def name(self) -> str: ...

    async def discover(self) -> Findings:
        """All devices there are now. An error keeps the last findings; it never withdraws a device."""
        ...


class Sink(Protocol):
    """Where a backend that watches reports to."""

    def fault(self, device: DeviceId, cause: Cause) -> None: ...

    def clear(self, device: DeviceId, code: str | None = None) -> None:
        """The cause is over (or, without a code, every cause): a reset was seen, or an operator said so."""
        ...

    def rescan(self) -> None:
        """Devices may have come or gone: discover again."""
        ...


@runtime_checkable
class Watches(Protocol):
    """A backend with events of its own. Runs until cancelled."""

    async def watch(self, sink: Sink) -> None: ...


@runtime_checkable
class Probes(Protocol):
    """A backend whose devices can be asked how they are. The engine sets the pace and the deadline."""

    async def probe(self, device: Device) -> Cause | None:
        """What is wrong with it, or None. An exception means that there is no data, and changes nothing."""
        ...


@runtime_checkable
class ProbesInTurn(Probes, Protocol):
    """Probes that share a thread or a bus: while `one_at_a_time` is true, the next begins when the last has ended.

    So no deadline runs while a probe waits for its turn.
    """

    one_at_a_time: bool


@runtime_checkable
class ProbesAll(Protocol):
    """A backend that can ask all of its devices in one go, for the price of one. The deadline is for all of them.

    It needs no `probe` beside it; where it has both, only this one is called.
    """

    async def probe_all(self, devices: Sequence[Device]) -> Mapping[DeviceId, Cause | Exception | None]:
        """What is wrong with each; an exception where there is no data."""
        ...


@runtime_checkable
class ShowsResets(Protocol):
    """A backend that can show that a device was reset. Asked only while a cause waits for that: `Cause.cured_by`."""

    async def signs(self, devices: Sequence[Device]) -> Mapping[DeviceId, Mapping[str, Sign]]:
        """By the names in `cured_by`, what can be read of each device now. What cannot be read is left out."""
        ...


@runtime_checkable
class MeasuresUse(Protocol):
    """A backend that can say how busy its devices are. Asked for metrics only."""

    async def usage(self, devices: Sequence[Device]) -> Mapping[DeviceId, Usage]:
        """Devices of which nothing is known are left out."""
        ...


@runtime_checkable
class Reopens(Protocol):
    """A backend that keeps a session with a driver. Called when an operator asks for a fresh look (SIGHUP)."""

    def reopen(self) -> None:
        """The next `discover` relies on nothing that an earlier one remembered. Returns at once."""
        ...


@runtime_checkable
class EditsGrants(Protocol):
    """A backend that decides what a container gets. Pure: no hardware, no files, no network."""

    def edits(self, grant: Grant) -> Edits: ...


@runtime_checkable
class Prepares(Protocol):
    """A backend that must act before each container start. Has 30 seconds."""

    async def prepare(self, grant: Grant) -> None: ...


@runtime_checkable
class Waits(Protocol):
    """A backend that must be ready before the kubelet may know of its devices.

    Asked before each registration, and again every second until there is nothing to wait for.
    """

    async def wait_for(self) -> str:
        """What the registration has to wait for. Empty: nothing."""
        ...


@runtime_checkable
class Steers(Protocol):
    """A backend that takes orders from an operator over the daemon's own socket, such as the simulated one."""

    def steer(self, order: Mapping[str, Any]) -> str: ...


@runtime_checkable
class Closes(Protocol):
    async def close(self) -> None: ...


class Clock(Protocol):
    """Time, injected: `now` is wall time for people, `monotonic` for intervals."""

    def now(self) -> float: ...

    def monotonic(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...

    def alarm(self, seconds: float, ring: Callable[[], None]) -> Callable[[], object]:
        """Calls `ring` on the loop after that time; returns the way to stop it. Cheaper than a task that sleeps."""
        ...
