"""Scenarios: health. They need the commands of `--break` and `--mend`, which break a device and mend it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from fairlead.standin._gen import deviceplugin_v1beta1_pb2 as dp
from fairlead.standin.clock import running
from fairlead.standin.conformance.rig import Rig
from fairlead.standin.conformance.scenario import Chapter, Failed, Skipped
from fairlead.standin.devices import HEALTHY

CHAPTER = Chapter("Health")


@CHAPTER.required(
    "C87", "reports that a device broke", "A device that broke is unhealthy on every stream.", foreign=True
)
async def breaks(rig: Rig) -> None:
    """The kubelet gives out what the last list calls healthy. A pod on a broken device fails, and so does the next."""
    before = _well(rig)
    async with _followed(rig) as second, _broken(rig, before):
        await rig.until_soon(lambda: second[-1] < before, "a device broke: a second stream gets no list")


@CHAPTER.foreign("C88", "reports that a device is mended", "A device that was mended is healthy on every stream.")
async def mends(rig: Rig) -> None:
    """A device that stays unhealthy is lost to the node. How soon a plugin trusts it again is its own choice."""
    before = _well(rig)
    async with _followed(rig) as second:
        async with _broken(rig, before):
            pass
        await _until_well(rig, before)
        await rig.until_soon(lambda: second[-1] >= before, "a device was mended: a second stream gets no list")


@CHAPTER.required("C89", "reports it after a restart, too", "After a kubelet restart the new stream reports health.")
async def after_restart(rig: Rig) -> None:
    """What watches health must feed the stream that is open now, not the one that was open when it started."""
    before = _well(rig)
    await rig.restart_kubelet()
    try:
        await _until_well(rig, before)
    except Failed:
        raise Skipped("the device that was broken before is not healthy yet") from None
    async with _broken(rig, before):
        pass


def _well(rig: Rig) -> set[str]:
    """The devices that were healthy before anything was broken in this run."""
    if not (rig.hooks.breaks and rig.hooks.mends):
        raise Skipped("no commands were given with --break and --mend")
    rig.well = rig.well or set(rig.need(1))
    return rig.well


@asynccontextmanager
async def _broken(rig: Rig, before: set[str]) -> AsyncIterator[None]:
    """While a device is broken, and the kubelet knows. It is mended however this ends."""
    await rig.hook(rig.hooks.breaks, "--break")
    try:
        await rig.until(lambda: set(rig.healthy) < before, "a device broke: the kubelet was not told")
        gone = before - set(rig.ids)
        if gone:
            raise Failed(f"a device broke, and is no longer listed: {min(gone)!r}")
        yield
    finally:
        await rig.hook(rig.hooks.mends, "--mend")


async def _until_well(rig: Rig, before: set[str]) -> None:
    await rig.until(lambda: set(rig.healthy) >= before, "a device was mended: the kubelet was not told")


@asynccontextmanager
async def _followed(rig: Rig) -> AsyncIterator[list[set[str]]]:
    """A stream beside the kubelet's: the healthy ids of each list on it, as they come."""
    seen: list[set[str]] = []
    wrong: list[str] = []

    async def follow(stream: Any) -> None:
        try:
            while isinstance(message := await stream.read(), dp.ListAndWatchResponse):
                seen.append({device.ID for device in message.devices if device.health == HEALTHY})
            wrong.append("it ended")
        except grpc.aio.AioRpcError as error:
            wrong.append(f"{error.code().name}: {error.details()}")

    async with rig.client() as client, client.lists() as stream, running(follow(stream)):
        await rig.until_soon(lambda: seen or wrong, "a second stream gets no list")
        if not seen:
            raise Failed(f"a second stream gets no list: {wrong[0]}")
        yield seen
