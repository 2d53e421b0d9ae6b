"""Scenarios: the lists of devices."""

from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import grpc

from fairlead.standin._gen import deviceplugin_v1beta1_pb2 as dp
from fairlead.standin.conformance.rig import Rig
from fairlead.standin.conformance.scenario import Broken, Chapter, some
from fairlead.standin.devices import HEALTHY, UNHEALTHY

CHAPTER = Chapter("Lists")
MAX_ID = 63


@CHAPTER.required(
    "C09",
    "sends the first list at once",
    "A new ListAndWatch stream gets the whole list without waiting.",
    early=True,
)
async def lists_at_once(rig: Rig) -> None:
    """Until the first list the node has none of the devices, and pods that come back after a restart are refused."""
    async with rig.client() as client, client.lists() as stream:
        await _first_list(rig, stream)
    if rig.streaming:
        await rig.settle("a second stream came and went")


@CHAPTER.required("C10", "has ids of at most 63 characters", "Every device id has between 1 and 63 characters.")
async def short_ids(rig: Rig) -> None:
    """The interface says so. The kubelet does not check it; what reads its checkpoint and pod status may."""
    bad = [i for each in rig.lists for i in each.ids if not 1 <= len(i) <= MAX_ID]
    if bad:
        raise Broken(f"{some(bad)}: {len(bad[0])} characters")


@CHAPTER.required("C11", "lists each device once", "No id is in a list twice.")
async def unique_ids(rig: Rig) -> None:
    """An id listed once healthy and once unhealthy is counted twice: the node promises a device it does not have."""
    for each in rig.lists:
        twice = [i for i, count in Counter(each.ids).items() if count > 1]
        if twice:
            raise Broken(f"listed twice: {some(twice)}")


@CHAPTER.required("C12", "knows two words for health", "Health is exactly Healthy or Unhealthy.")
async def health_words(rig: Rig) -> None:
    """Every other word, `healthy` and the empty one too, counts as unhealthy."""
    words = {device.health for each in rig.lists for device in each.message.devices} - {HEALTHY, UNHEALTHY}
    if words:
        raise Broken(f"health is {some(sorted(words))}")


@CHAPTER.required(
    "C13",
    "keeps its lists under 4 MiB",
    "An encoded list stays under the 4 MiB that the kubelet accepts.",
    early=True,
)
async def small_lists(rig: Rig) -> None:
    """A larger one ends the stream. The node shows 0 devices, and only the kubelet's log says why."""
    exhausted = grpc.StatusCode.RESOURCE_EXHAUSTED.name.replace("_", "").lower()
    for call in rig.kubelet.calls:
        if call.method == "ListAndWatch" and exhausted in call.error.lower():
            raise Broken(f"the kubelet refused a list: {call.error}")


@CHAPTER.required("C14", "keeps the stream open", "ListAndWatch does not end while the plugin runs.")
async def keeps_stream(rig: Rig) -> None:
    """The kubelet never opens it again. When it ends all devices are unhealthy until the plugin registers once more."""
    streams = rig.called("ListAndWatch")
    await rig.rest(rig.patience.quiet_s)
    if not rig.subject.alive:
        raise Broken(f"nothing happened, and it ended{rig.quote()}")
    if not rig.streaming or rig.called("ListAndWatch") > streams:
        raise Broken("nothing happened, and the stream ended")


@CHAPTER.required("C15", "serves two streams", "A second stream gets the whole list too, and the first goes on.")
async def two_streams(rig: Rig) -> None:
    """After a kubelet's crash the old stream may linger. If one stream only is fed, the new kubelet gets nothing."""
    expected = sorted(rig.ids)
    async with rig.client() as client, client.lists() as one, client.lists() as other:
        for stream in (one, other):
            ids = sorted(dict.fromkeys(device.ID for device in (await _first_list(rig, stream)).devices))
            if ids != expected:
                raise Broken(f"the second stream lists {len(ids)} devices, the first {len(expected)}")
    await rig.settle("two more streams came and went")


@CHAPTER.advised("C16", "sends a list only when it changed", "Two lists in a row on one stream differ.")
async def only_changes(rig: Rig) -> None:
    """The kubelet writes its checkpoint to disk, with fsync, for every list."""
    await rig.rest(rig.patience.quiet_s)
    for before, after in zip(rig.lists, rig.lists[1:], strict=False):
        if before.stream == after.stream and _sorted(before.message) == _sorted(after.message):
            raise Broken("the same list was sent twice in a row")


@CHAPTER.advised("C17", "keeps the order of its list", "The same devices come in the same order, each time.")
async def same_order(rig: Rig) -> None:
    """Nobody reads the order, but a list in a new order is a changed list to every tool that compares."""
    async with rig.client() as client:
        orders = []
        async with AsyncExitStack() as streams:
            for _ in range(3):
                stream = await streams.enter_async_context(client.lists())
                orders.append([device.ID for device in (await _first_list(rig, stream)).devices])
    await rig.settle("three more streams came and went")
    for order in orders:
        if order != orders[0] and sorted(order) == sorted(orders[0]):
            raise Broken(f"the same devices came as {some(orders[0])} and as {some(order)}")


async def _first_list(rig: Rig, stream: Any) -> dp.ListAndWatchResponse:
    try:
        message = await rig.pace.within(rig.patience.call_s, stream.read())
    except TimeoutError:
        raise Broken(f"no list in {rig.patience.call_s:g} s on a new stream") from None
    except grpc.aio.AioRpcError as error:
        raise Broken(f"no list on a new stream: {error.code().name}: {error.details()}") from None
    if not isinstance(message, dp.ListAndWatchResponse):
        raise Broken("a new stream ended without a list")
    return message


def _sorted(message: dp.ListAndWatchResponse) -> list[bytes]:
    return sorted(device.SerializeToString(deterministic=True) for device in message.devices)
