"""Scenarios: the lists of devices."""

from collections import Counter
from contextlib import AsyncExitStack
from itertools import groupby
from typing import Any

import grpc

from fairlead.standin._gen import deviceplugin_v1beta1_pb2 as dp
from fairlead.standin.conformance.rig import Rig
from fairlead.standin.conformance.scenario import Chapter, Failed, some
from fairlead.standin.devices import HEALTHY, UNHEALTHY

CHAPTER = Chapter("Lists")
MAX_ID = 63
WHOLE_S = 3.0  # a device that comes so soon after the first list was there before it
# Go's maps turn a list of two devices in one case of eight: so many lists show it in all but one run of thousands.
MANY, FEW, AT_ONCE = 64, 8, 4
LARGE = 100_000  # bytes of ids in a list; of such a list a few samples must do


@CHAPTER.required(
    "C09",
    "sends the whole list at once",
    "The first list of a new ListAndWatch stream comes without waiting, and is whole.",
    early=True,
)
async def lists_at_once(rig: Rig) -> None:
    """A pod that is admitted before its device is listed is refused for good; after a reboot, all of them may be."""
    if not rig.lists:
        raise Failed(f"the kubelet opened a stream and got no list{_refused(rig)}")
    await rig.rest(rig.timeouts.quiet_s)
    by_stream = [list(lists) for _, lists in groupby(rig.lists, lambda each: each.stream)]
    for first, *later in by_stream:
        for each in later:
            after_s = each.at_s - first.at_s
            if after_s <= WHOLE_S and (more := sorted(set(each.ids) - set(first.ids))):
                raise Failed(f"the first list had {len(first.ids)} devices; {some(more)} came {after_s:.1f} s later")


@CHAPTER.advised("C10", "has ids of at most 63 characters", "Every device id has between 1 and 63 characters.")
async def short_ids(rig: Rig) -> None:
    """The interface says so. The kubelet does not check it; what reads its checkpoint and pod status may."""
    bad = [i for each in rig.lists for i in each.ids if not 1 <= len(i) <= MAX_ID]
    if bad:
        raise Failed(f"{some(bad)}: {len(bad[0])} characters")


@CHAPTER.required("C11", "lists each device once", "No id is in a list twice.")
async def unique_ids(rig: Rig) -> None:
    """An id listed once healthy and once unhealthy is counted twice: the node reports a device it does not have."""
    for each in rig.lists:
        twice = [i for i, count in Counter(each.ids).items() if count > 1]
        if twice:
            raise Failed(f"listed twice: {some(twice)}")


@CHAPTER.required("C12", "knows two values of health", "Health is exactly Healthy or Unhealthy.")
async def health_words(rig: Rig) -> None:
    """Every other value, `healthy` and the empty one too, counts as unhealthy."""
    words = {device.health for each in rig.lists for device in each.message.devices} - {HEALTHY, UNHEALTHY}
    if words:
        raise Failed(f"health is {some(sorted(words))}")


@CHAPTER.required(
    "C13", "keeps its lists under 4 MiB", "An encoded list stays under the 4 MiB that the kubelet accepts.", early=True
)
async def small_lists(rig: Rig) -> None:
    """A larger one ends the stream. The node shows 0 devices, and only the kubelet's log says why."""
    exhausted = grpc.StatusCode.RESOURCE_EXHAUSTED.name.replace("_", "").lower()
    for call in rig.kubelet.calls:
        if call.method == "ListAndWatch" and exhausted in call.error.lower():
            raise Failed(f"the kubelet refused a list: {call.error}")


@CHAPTER.required("C14", "keeps the stream open", "ListAndWatch does not end while the plugin runs.")
async def keeps_stream(rig: Rig) -> None:
    """The kubelet never opens it again. When it ends all devices are unhealthy until the plugin registers once more."""
    watched = await rig.watch()
    if not watched.streaming and watched.ended_after_s is None:
        raise Failed("nothing happened, and the stream ended")


@CHAPTER.required(
    "C15", "serves two streams", "A second stream gets the whole list too, and the first goes on.", foreign=True
)
async def two_streams(rig: Rig) -> None:
    """After a new registration the old stream lingers. If one stream only is fed, the kubelet gets nothing new."""
    expected = sorted(rig.ids)
    async with rig.client() as client, client.lists() as one, client.lists() as other:
        for stream in (one, other):
            ids = sorted(dict.fromkeys(await _first_list(rig, stream)))
            if ids != expected:
                raise Failed(f"the second stream lists {len(ids)} devices, the first {len(expected)}")
    await rig.settle("two more streams came and went")


@CHAPTER.advised("C16", "sends a list only when it changed", "Two lists in a row on one stream differ.")
async def only_changes(rig: Rig) -> None:
    """The kubelet writes its checkpoint to disk, with fsync, for every list."""
    await rig.watch()
    for before, after in zip(rig.lists, rig.lists[1:], strict=False):
        if before.stream == after.stream and _sorted(before.message) == _sorted(after.message):
            raise Failed(f"the same list was sent again after {after.at_s - before.at_s:.1f} s")


@CHAPTER.foreign("C17", "keeps the order of its list", "The same devices come in the same order, each time.")
async def same_order(rig: Rig) -> str | None:
    """No kubelet reads the order, but a list in a new order is a changed list to every tool that compares."""
    large = sum(map(len, rig.ids)) > LARGE
    while _turned(rig) is None and len(rig.samples) < (FEW if large else MANY) and rig.plugin.alive:
        async with rig.client() as client, AsyncExitStack() as streams:
            try:
                for _ in range(AT_ONCE):
                    await _first_list(rig, await streams.enter_async_context(client.lists()))
            except Failed:
                break  # that is for C15 to say
    await rig.settle(f"{AT_ONCE} more streams came and went")
    if (orders := _turned(rig)) is not None:
        raise Failed(f"the same devices came as {some(orders[0])} and as {some(orders[1])}")
    return f"{len(rig.samples)} lists are few" if len(rig.samples) < FEW else None


@CHAPTER.advised("C92", "has printable ids", "Device ids are printable ASCII, without spaces.")
async def printable_ids(rig: Rig) -> None:
    """Ids end up in logs, in variables, in the checkpoint and in a pod's status. A NUL ends the variable it is in."""
    bad = sorted({i for each in rig.lists for i in each.ids if not (i.isascii() and i.isprintable() and " " not in i)})
    if bad:
        raise Failed(f"ids are {some(bad)}")


async def _first_list(rig: Rig, stream: Any) -> list[str]:
    """The ids of the first list on a stream of our own. They are a sample of the plugin's order."""
    try:
        message = await rig.timer.within(rig.timeouts.call_s, stream.read())
    except TimeoutError:
        raise Failed(f"no list in {rig.timeouts.call_s:g} s on a new stream") from None
    except grpc.aio.AioRpcError as error:
        raise Failed(f"no list on a new stream: {error.code().name}: {error.details()}") from None
    if not isinstance(message, dp.ListAndWatchResponse):
        raise Failed("a new stream ended without a list")
    rig.samples.append(tuple(device.ID for device in message.devices))
    return list(rig.samples[-1])


def _turned(rig: Rig) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Two orders of the same devices, if there are two."""
    seen: dict[tuple[str, ...], tuple[str, ...]] = {}
    for order in [*rig.samples, *(tuple(each.ids) for each in rig.lists)]:
        if (first := seen.setdefault(tuple(sorted(order)), order)) != order:
            return first, order
    return None


def _refused(rig: Rig) -> str:
    errors = [call.error for call in rig.kubelet.calls if call.method == "ListAndWatch" and call.error]
    return f": {errors[-1]}" if errors else ""


def _sorted(message: dp.ListAndWatchResponse) -> list[bytes]:
    return sorted(device.SerializeToString(deterministic=True) for device in message.devices)
