"""Backends that each break one rule of the contract, and what is said of it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fairlead.model.device import Device
from fairlead.model.edits import Edits, Grant
from fairlead.model.health import Cause, CauseKind
from fairlead.model.inventory import Findings
from fairlead.model.names import DeviceId
from fairlead.model.ports import Sink


class Plain:
    """The least that a backend can be; each below breaks one rule."""

    name: Any = "plain"
    ids: Any = "ab"

    async def discover(self) -> Findings:
        return Findings(tuple(Device(DeviceId(one)) for one in self.ids))


class Nameless(Plain):
    name = None


class NotAsync(Plain):
    def probe(self, device: Device) -> None: ...


class AsyncEdits(Plain):
    async def edits(self, grant: Grant) -> Edits:
        return Edits()


class WrongTurn(Plain):
    one_at_a_time = "yes"

    async def probe(self, device: Device) -> None: ...


class Failing(Plain):
    async def discover(self) -> Findings:
        raise OSError("no bus")


class Slow(Plain):
    async def discover(self) -> Findings:
        await asyncio.Event().wait()
        raise AssertionError


class Odd(Plain):
    async def discover(self) -> Findings:
        return None  # type: ignore[return-value]  # the point


class Empty(Plain):
    ids = ""


class Twins(Plain):
    ids = "aa"


class Spaced(Plain):
    ids = ("a b",)


class Endless(Plain):
    ids = ("x" * 64,)


class Counting(Plain):
    scans = 0

    async def discover(self) -> Findings:
        self.scans += 1
        return Findings((Device(DeviceId(f"a{self.scans}")),))


class Born(Plain):
    """Whose ids are made when it is opened."""

    born = 0

    def __init__(self) -> None:
        Born.born += 1
        self.ids = (f"a{Born.born}",)


class Shuffled(Plain):
    async def discover(self) -> Findings:
        self.ids = self.ids[::-1]
        return await super().discover()


class Warm(Plain):
    scans = 0

    async def discover(self) -> Findings:
        self.scans += 1
        return Findings((Device(DeviceId("a"), attributes={"temperature": str(self.scans)}),))


class Unsayable(Plain):
    async def discover(self) -> Findings:
        return Findings((Device(DeviceId("a")), Device(DeviceId("b"), model="\ud800")))


class Verbose(Plain):
    async def discover(self) -> Findings:
        return Findings((Device(DeviceId("a"), model="x" * 5000),))


class Forgetful(Plain):
    async def probe_all(self, devices: Sequence[Device]) -> Mapping[DeviceId, Cause | None]:
        return {devices[0].id: None}


class Ill(Plain):
    async def probe(self, device: Device) -> Cause | None:
        return Cause("smoke", CauseKind.NEEDS_RESET) if device.id == "b" else None


class Stubborn(Plain):
    """Well, until it is asked a second time."""

    rounds = 0

    async def probe_all(self, devices: Sequence[Device]) -> Mapping[DeviceId, Cause | None]:
        self.rounds += 1
        cause = Cause("smoke", CauseKind.NEEDS_RESET) if self.rounds > 1 else None
        return {device.id: cause for device in devices}


class ShortWatch(Plain):
    async def watch(self, sink: Sink) -> None: ...


async def stay() -> None:
    """For half a second, whoever cancels it."""
    done = asyncio.Event()
    asyncio.get_running_loop().call_later(0.5, done.set)
    while not done.is_set():
        try:
            await done.wait()
        except asyncio.CancelledError:
            continue


class DeafWatch(Plain):
    async def watch(self, sink: Sink) -> None:
        await stay()


class DeafScan(Plain):
    scans = 0

    async def discover(self) -> Findings:
        self.scans += 1
        if self.scans > 2:
            await stay()
        return await super().discover()


class Blocking(Plain):
    async def discover(self) -> Findings:
        time.sleep(0.2)  # noqa: ASYNC251 - the point
        return await super().discover()


class Mute(Plain):
    async def wait_for(self) -> None: ...


class Blind(Plain):
    async def signs(self, devices: Sequence[Device]) -> dict[DeviceId, dict[str, Any]]:
        return {}


class Raising(Plain):
    async def signs(self, devices: Sequence[Device]) -> dict[DeviceId, dict[str, Any]]:
        raise OSError("the driver is gone")


class Waiting(Plain):
    async def wait_for(self) -> str:
        await asyncio.Event().wait()
        return ""


class Lost(Plain):
    def reopen(self) -> None:
        self.ids = "a"


class Changing(Plain):
    edited = 0

    def edits(self, grant: Grant) -> Edits:
        self.edited += 1
        return Edits(env={"N": str(self.edited)})


class Reading(Plain):
    def edits(self, grant: Grant) -> Edits:
        return Edits(env={"HOST": Path("/proc/self/comm").read_text()})


class Lazy(Plain):
    def edits(self, grant: Grant) -> Edits:
        time.sleep(0.1)
        return Edits()


class Wrong(Plain):
    def edits(self, grant: Grant) -> Edits:
        return {}  # type: ignore[return-value]  # the point


class Unclosed(Plain):
    """Leaves a thread, a task and a descriptor."""

    left: list[Callable[[], object]] = []

    async def discover(self) -> Findings:
        over = threading.Event()
        threading.Thread(target=over.wait, name="unclosed", daemon=True).start()
        task = asyncio.create_task(asyncio.Event().wait(), name="unended")
        file = Path("/dev/zero").open("rb")  # noqa: ASYNC230, SIM115 - the point
        self.left += over.set, task.cancel, file.close
        return await super().discover()


class Breaking(Plain):
    async def close(self) -> None:
        raise OSError("stuck")


BREACHES: list[tuple[type[Any], str]] = [
    (Nameless, "ports: name is None"),
    (NotAsync, "ports: probe is no coroutine"),
    (AsyncEdits, "ports: edits is a coroutine"),
    (WrongTurn, "ports: one_at_a_time is 'yes', not a bool"),
    (Failing, "scan: discover: OSError: no bus"),
    (Slow, "scan: discover: the scan has not answered in 0.1 s"),
    (Odd, "scan: discover: discover gave None, not findings"),
    (Empty, "devices: discover found none"),
    (Twins, "ids: a is given twice"),
    (Spaced, "ids: slot id 'a b': it holds a space"),
    (Endless, "ids: slot id 'xxx"),
    (Counting, "stable-ids: a second scan found a2, not a1"),
    (Born, "stable-ids: a second backend of the same options found a2, not a1"),
    (Shuffled, "order: a second scan found a, b, in another order than b, a"),
    (Warm, "stable-facts: a second scan found a with another attributes"),
    (Unsayable, "bounds: b: left out, because an id, a path or another text of them is not valid UTF-8"),
    (Verbose, "bounds: a: left out, because an id, a path or another text of them has over 4,096 characters"),
    (Forgetful, "health: probe of b: the backend gave no answer"),
    (Ill, "health: b should be well, and is unhealthy: smoke"),
    (Stubborn, "health: a does not come back after a fault"),
    (ShortWatch, "watch: watch ended: it returned"),
    (DeafWatch, "watch: watch does not end within"),
    (DeafScan, "deadline: discover does not end within"),
    (Blocking, "blocking: the event loop stood still for 0.1 s at "),
    (Mute, "wait-for: wait_for gave None, not a text"),
    (Blind, "signs: a is left out"),
    (Raising, "signs: signs: OSError: the driver is gone"),
    (Waiting, "wait-for: wait_for has not answered in 0.1 s"),
    (Lost, "reopen: the scan after it found a, not a, b"),
    (Changing, "edits: two answers for one grant differ"),
    (Reading, "edits: edits has used the host: open /proc/self/comm"),
    (Lazy, "edits: edits took 0."),
    (Wrong, "edits: edits: edits gave {}, not Edits"),
    (Unclosed, "closing: left behind: thread unclosed, task unended, descriptor /dev/zero"),
    (Breaking, "closing: close: OSError: stuck"),
]
