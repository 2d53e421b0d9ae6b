"""The contract of a backend: every backend here keeps it, and a breach is named."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.nvml import Driver, gpus
from tests.unit.backends.nvidia.drivers import installed, options

import fairlead
from fairlead.backends import registry
from fairlead.library import backend_of
from fairlead.model.clock import SystemClock
from fairlead.model.device import Device
from fairlead.model.edits import Edits, Grant
from fairlead.model.health import Cause, CauseKind
from fairlead.model.inventory import Findings
from fairlead.model.names import DeviceId
from fairlead.model.ports import Backend, Sink
from fairlead.testing import check_backend


class Leds(fairlead.Plugin):
    resource = "example.com/led"

    def discover(self) -> Iterator[fairlead.Device]:
        yield fairlead.Device("led0")
        yield fairlead.Device("led1")

    def check(self, device: fairlead.Device) -> None: ...

    def wait_for(self) -> None: ...


@pytest.fixture(params=["sim", "paths", "nvidia", "library"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    clock = SystemClock()
    if request.param == "nvidia":
        with installed(Driver(gpus=gpus("A100", 3)), tmp_path) as node:
            yield registry.open("nvidia", options(node), clock)
    elif request.param == "paths":
        (tmp_path / "tty0").touch()
        (tmp_path / "tty1").touch()
        yield registry.open("paths", {"devices": [{"paths": [f"{tmp_path}/tty*"], "allow": ["file"]}]}, clock)
    elif request.param == "sim":
        yield registry.open("sim", {"fleet": "h100x8"}, clock)
    else:
        yield backend_of(Leds(), "leds", clock)


async def test_every_backend_keeps_the_contract(backend: Backend) -> None:
    assert await check_backend(backend) == []


def test_every_kind_of_backend_is_under_the_contract() -> None:
    assert set(registry._OWN) == {"sim", "paths", "nvidia"}


class Plain:
    """The least that a backend can be; each below breaks one thing."""

    name: Any = "plain"

    async def discover(self) -> Findings:
        return Findings((Device(DeviceId("a")), Device(DeviceId("b"))))


class Nameless(Plain):
    name = None


class NotAsync(Plain):
    def probe(self, device: Device) -> None: ...


class AsyncEdits(Plain):
    async def edits(self, grant: Grant) -> Edits:
        return Edits()


class Unstable(Plain):
    scans = 0

    async def discover(self) -> Findings:
        self.scans += 1
        return Findings((Device(DeviceId(f"a{self.scans}")),))


class Twins(Plain):
    async def discover(self) -> Findings:
        return Findings((Device(DeviceId("a")), Device(DeviceId("a"))))


class Empty(Plain):
    async def discover(self) -> Findings:
        return Findings()


class Failing(Plain):
    async def discover(self) -> Findings:
        raise OSError("no bus")


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


class WrongTurn(Plain):
    one_at_a_time = "yes"

    async def probe(self, device: Device) -> None: ...


class ShortWatch(Plain):
    async def watch(self, sink: Sink) -> None: ...


class Deaf(Plain):
    async def watch(self, sink: Sink) -> None:
        done = asyncio.Event()
        asyncio.get_running_loop().call_later(0.5, done.set)
        while not done.is_set():
            try:
                await done.wait()
            except asyncio.CancelledError:
                continue


class Mute(Plain):
    async def wait_for(self) -> None: ...


class Changing(Plain):
    edited = 0

    def edits(self, grant: Grant) -> Edits:
        self.edited += 1
        return Edits(env={"N": str(self.edited)})


class Blind(Plain):
    async def signs(self, devices: Sequence[Device]) -> dict[DeviceId, dict[str, Any]]:
        return {}


class Lost(Plain):
    ids = "ab"

    async def discover(self) -> Findings:
        return Findings(tuple(Device(DeviceId(one)) for one in self.ids))

    def reopen(self) -> None:
        self.ids = "a"


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Nameless, "name is None"),
        (NotAsync, "probe is no coroutine"),
        (AsyncEdits, "edits is a coroutine"),
        (Unstable, "two scans of the same devices differ"),
        (Twins, "ids are given twice"),
        (Empty, "found no device"),
        (Failing, "discover: OSError: no bus"),
        (Forgetful, "probe of b: the backend gave no answer"),
        (Ill, "b should be well, and is unhealthy: smoke"),
        (Stubborn, "a does not come back after a fault"),
        (WrongTurn, "one_at_a_time is 'yes', not a bool"),
        (ShortWatch, "watch ended: it returned"),
        (Deaf, "watch does not end within"),
        (Mute, "wait_for gave None, not a text"),
        (Changing, "two answers for one grant differ"),
        (Blind, "signs: a is left out"),
        (Lost, "reopen: the scan after it found ['a']"),
    ],
)
async def test_a_breach_is_named(kind: type[Any], words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead.app.contract._PATIENCE_S", 0.01)
    broken = await check_backend(kind())
    assert any(words in sentence for sentence in broken), broken


async def test_the_least_that_a_backend_can_be_keeps_the_contract() -> None:
    assert await check_backend(Plain()) == []
