"""Verdicts of a round of probes: each counts when it comes."""

from __future__ import annotations

import asyncio

from fairlead.engine.probing import OneByOne, Verdict
from fairlead.kit.calls import Calls
from fairlead.model.device import Device
from fairlead.model.health import Cause
from fairlead.model.inventory import Findings
from fairlead.model.names import DeviceId


class OneHangs:
    name = "box"

    def __init__(self) -> None:
        self.eased = asyncio.Event()

    async def discover(self) -> Findings:
        return Findings(())

    async def probe(self, device: Device) -> Cause | None:
        if device.id == "hangs":
            await self.eased.wait()
        return None


async def test_a_verdict_does_not_wait_for_a_device_that_hangs():
    """It would be out of date by then: the device may have failed or been cleared since."""
    backend, come = OneHangs(), asyncio.Event()
    heard: list[str] = []

    def heed(device: Device, _verdict: Verdict) -> None:
        heard.append(device.id)
        come.set()

    devices = [Device(DeviceId(name), backend="box") for name in ("hangs", "answers")]
    round_ = asyncio.create_task(OneByOne(backend, Calls()).ask(devices, 30.0, heed))
    await come.wait()
    assert heard == ["answers"]
    backend.eased.set()
    await round_
    assert heard == ["answers", "hangs"]
