"""Backends that do what third-party code may do: hang, raise, flood, block, and answer with anything."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from typing import Any

from fairlead.model.device import Device, DeviceNode
from fairlead.model.edits import Edits, Grant
from fairlead.model.health import Cause, CauseKind
from fairlead.model.inventory import Findings
from fairlead.model.names import DeviceId
from fairlead.model.ports import Sink

ONE = DeviceId("bad-0")


class CustomExit(BaseException):
    pass


class Unshowable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text either")


class Quiet:
    """Finds one device and does nothing wrong; each below does one thing wrong."""

    name = "bad"

    async def discover(self) -> Findings:
        return Findings((Device(ONE),))


class Answers(Quiet):
    """Whose scans answer with anything."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    async def discover(self) -> Findings:
        answer: Findings = self._answer() if callable(self._answer) else self._answer
        return answer


class Raises(Quiet):
    def __init__(self, error: BaseException | type[BaseException]) -> None:
        self._error = error

    async def discover(self) -> Findings:
        raise self._error


class Hangs(Quiet):
    async def discover(self) -> Findings:
        await asyncio.Event().wait()
        raise AssertionError


class Deaf(Quiet):
    """Hangs, and does not end when it is cancelled."""

    def __init__(self) -> None:
        self.let_go = asyncio.Event()

    async def discover(self) -> Findings:
        while not self.let_go.is_set():
            try:
                await self.let_go.wait()
            except asyncio.CancelledError:
                continue
        return Findings()


class Blocks(Quiet):
    """Blocks the event loop for a moment, with each scan."""

    async def discover(self) -> Findings:
        time.sleep(0.2)  # noqa: ASYNC251 - the point
        return await super().discover()

    async def watch(self, sink: Sink) -> None:
        while True:
            sink.rescan()
            await asyncio.sleep(0.1)


class Probed(Quiet):
    def __init__(self, do: Callable[[], Any]) -> None:
        self._do = do

    async def probe(self, device: Device) -> Any:
        answer = self._do()
        return await answer if asyncio.iscoroutine(answer) else answer


class Watched(Quiet):
    """`do` is called in each turn of the loop."""

    def __init__(self, do: Callable[[Sink], Any]) -> None:
        self._do = do

    async def watch(self, sink: Sink) -> None:
        while True:
            for _ in range(10):
                self._do(sink)
            await asyncio.sleep(0)


class Edited(Quiet):
    def __init__(self, do: Callable[[], Any]) -> None:
        self._do = do

    def edits(self, grant: Grant) -> Edits:
        answer: Edits = self._do()
        return answer


class Waiting(Quiet):
    def __init__(self, do: Callable[[], Any]) -> None:
        self._do = do

    async def wait_for(self) -> Any:
        answer = self._do()
        return await answer if asyncio.iscoroutine(answer) else answer


class Closing(Quiet):
    def __init__(self, do: Callable[[], Any]) -> None:
        self._do = do

    async def close(self) -> None:
        answer = self._do()
        if asyncio.iscoroutine(answer):
            await answer


async def hang() -> None:
    await asyncio.Event().wait()


def throw(error: BaseException) -> Callable[..., Any]:
    def do(*_: object) -> None:
        raise error

    return do


def flap(sink: Sink) -> None:
    sink.fault(ONE, Cause("smoke", CauseKind.PERMANENT))
    sink.clear(ONE)


class Inventive:
    """Reports with a new code, and on a new device, each time."""

    def __init__(self) -> None:
        self._count = 0

    def __call__(self, sink: Sink) -> None:
        self._count += 1
        sink.fault(ONE, Cause(f"smoke-{self._count}", CauseKind.NEEDS_RESET, "x" * 10_000))
        sink.fault(DeviceId(f"none-{self._count}"), Cause("smoke", CauseKind.PERMANENT))


def many(count: int) -> Callable[[], Findings]:
    return lambda: Findings(tuple(Device(DeviceId(f"bad-{number}")) for number in range(count)))


class Crowd(Watched):
    """Thousands of devices, found anew in each turn of the loop, and never the same."""

    def __init__(self) -> None:
        super().__init__(lambda sink: sink.rescan())
        self._scans = 0

    async def discover(self) -> Findings:
        self._scans += 1
        return Findings(tuple(Device(DeviceId(f"bad-{number}"), index=str(self._scans)) for number in range(2_000)))


HUGE = "x" * 5_000_000
JUNK: Any = None
# Name -> how to make it, and what the status says of it; empty where nothing has to be said.
SCANS: dict[str, tuple[Callable[[], Any], str]] = {
    "hangs": (Hangs, "it has not answered yet"),
    "raises": (lambda: Raises(OSError("no bus")), "OSError: no bus"),
    "exits": (lambda: Raises(SystemExit(3)), "SystemExit: 3"),
    "interrupts": (lambda: Raises(KeyboardInterrupt), "KeyboardInterrupt"),
    "cancels": (lambda: Raises(asyncio.CancelledError), "a cancellation that was not the daemon's"),
    "closes a generator": (lambda: Raises(GeneratorExit), "GeneratorExit"),
    "raises its own kind": (lambda: Raises(CustomExit("bye")), "CustomExit: bye"),
    "raises without a text": (lambda: Raises(Unshowable()), "its text cannot be shown"),
    "raises a huge text": (lambda: Raises(OSError(HUGE)), "OSError: xxx"),
    "blocks": (Blocks, ""),
    "gives None": (lambda: Answers(None), "discover gave None"),
    "gives no devices": (lambda: Answers(Findings(devices=JUNK)), "discover gave devices as None"),
    "gives a generator": (lambda: Answers(Findings(devices=(one for one in "a"))), "not a tuple"),  # type: ignore[arg-type]  # the point
    "gives numbers": (lambda: Answers(Findings((5,))), "5 among its devices"),  # type: ignore[arg-type]  # the point
    "gives no links": (lambda: Answers(Findings(links=JUNK)), "links are None"),
    "gives no problems": (lambda: Answers(Findings(problems=JUNK)), "problems as None"),
    "gives odd attributes": (lambda: Answers(Findings((Device(ONE, attributes={"a": 1}),))), "attributes is"),  # type: ignore[dict-item]  # the point
    "gives an odd parent": (lambda: Answers(Findings((Device(ONE, parent=1),))), "parent is 1"),  # type: ignore[arg-type]  # the point
    "gives odd nodes": (lambda: Answers(Findings((Device(ONE, nodes=(DeviceNode(1),)),))), "nodes is"),  # type: ignore[arg-type]  # the point
    "gives 100,000 devices": (lambda: Answers(many(100_000)), "100,000 devices, over 16,384"),
    "gives 10,000 devices": (lambda: Answers(many(10_000)), ""),
    "gives a huge id": (lambda: Answers(Findings((Device(DeviceId(HUGE)),))), "over 4,096 characters"),
    "gives a huge model": (lambda: Answers(Findings((Device(ONE, model=HUGE),))), "over 4,096 characters"),
    "gives unencodable text": (lambda: Answers(Findings((Device(ONE, model="\ud800"),))), "not valid UTF-8"),
    "gives huge problems": (lambda: Answers(Findings(problems=(HUGE,) * 1000)), "xxx"),
}
REPORTS: dict[str, tuple[Callable[[], Any], str]] = {
    "probe hangs": (lambda: Probed(hang), ""),
    "probe exits": (lambda: Probed(throw(SystemExit(3))), ""),
    "probe gives junk": (lambda: Probed(lambda: 5), ""),
    "probe gives a huge cause": (lambda: Probed(lambda: Cause("c", CauseKind.PERMANENT, HUGE)), ""),
    "watch exits": (lambda: Watched(throw(SystemExit(3))), "watch raised SystemExit"),
    "watch gives junk": (lambda: Watched(lambda sink: sink.fault(ONE, "smoke")), "'smoke' is no Cause"),  # type: ignore[arg-type]  # the point
    "watch floods rescans": (lambda: Watched(lambda sink: sink.rescan()), ""),
    "watch floods rescans of a crowd": (Crowd, ""),
    "watch floods faults": (lambda: Watched(flap), ""),
    "watch floods new faults": (lambda: Watched(Inventive()), ""),
    "wait_for hangs": (lambda: Waiting(hang), ""),
    "wait_for gives junk": (lambda: Waiting(lambda: 5), ""),
    "wait_for exits": (lambda: Waiting(sys.exit), ""),
}
EDITS: dict[str, tuple[Callable[[], Any], str]] = {
    "raises": (
        lambda: Edited(throw(KeyError("x"))),
        "backend bad: what the container gets is not known: KeyError: 'x'",
    ),
    "exits": (lambda: Edited(sys.exit), "backend bad: what the container gets is not known: edits raised SystemExit"),
    "gives None": (lambda: Edited(lambda: None), "edits gave None, not Edits"),
    "gives odd env": (lambda: Edited(lambda: Edits(env={"A": 1})), "1 is in them, not text"),  # type: ignore[dict-item]  # the point
    "gives no env": (lambda: Edited(lambda: Edits(env=JUNK)), "not a mapping of texts"),
    "gives odd nodes": (lambda: Edited(lambda: Edits(nodes=("/dev/a",))), "not a tuple of DeviceNode"),  # type: ignore[arg-type]  # the point
    "gives unencodable text": (lambda: Edited(lambda: Edits(env={"A": "\ud800"})), "not valid UTF-8"),
    "gives a huge text": (lambda: Edited(lambda: Edits(env={"A": HUGE})), "over 1,048,576"),
}
CLOSES: dict[str, Callable[[], Any]] = {
    "hangs": lambda: Closing(hang),
    "raises": lambda: Closing(throw(OSError("stuck"))),
    "exits": lambda: Closing(throw(SystemExit(3))),
}
