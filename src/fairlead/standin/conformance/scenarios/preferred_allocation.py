"""Scenarios: GetPreferredAllocation. Left out if the plugin says that it has no preference."""

import random
from collections.abc import Sequence

from fairlead.standin._gen import deviceplugin_v1beta1_pb2 as dp
from fairlead.standin.conformance.client import Client, prefer_request
from fairlead.standin.conformance.rig import Rig
from fairlead.standin.conformance.scenario import Chapter, Failed, Skipped, some

CHAPTER = Chapter("GetPreferredAllocation")
MOST = 16  # devices of a large list that are played with


@CHAPTER.advised("C34", "prefers what is available", "An answer names only ids that the question offers, each once.")
async def subset(rig: Rig) -> None:
    """The kubelet drops every other id and fills up at random: the preference is lost silently."""
    ids = await _ids(rig, 2)
    async with rig.client() as client:
        for size in range(1, len(ids)):
            offered = ids[: size + 1]
            chosen = await _prefer(client, offered, size)
            if stray := sorted(set(chosen) - set(offered)):
                raise Failed(f"{size} of {len(offered)}: {some(stray)} was not offered")
            if len(set(chosen)) < len(chosen):
                raise Failed(f"{size} of {len(offered)}: an id is named twice")


@CHAPTER.advised(
    "C35", "prefers as many as asked for", "An answer has exactly as many ids as asked for, for every size."
)
async def size(rig: Rig) -> None:
    """Too few are filled up at random, of too many a random part is taken."""
    ids = await _ids(rig, 1)
    async with rig.client() as client:
        for wanted in range(1, len(ids) + 1):
            if len(chosen := await _prefer(client, ids, wanted)) != wanted:
                raise Failed(f"asked for {wanted} of {len(ids)}, it prefers {len(chosen)}")


@CHAPTER.advised("C36", "prefers what must be included", "An answer contains every id that must be included.")
async def must_include(rig: Rig) -> None:
    """These are devices the pod has already, such as those of an init container. The kubelet adds them by itself."""
    ids = await _ids(rig, 2)
    async with rig.client() as client:
        for must in ids:
            chosen = await _prefer(client, ids, 2, [must])
            if must not in chosen:
                raise Failed(f"{must!r} must be included, and is not")


@CHAPTER.required("C37", "always has a preference", "A question that can be answered is never answered with an error.")
async def no_error(rig: Rig) -> None:
    """An error refuses the pod. One device in trouble must not keep every pod from the node."""
    ids = await _ids(rig, 1)
    choose = random.Random(0)  # noqa: S311 - the same questions each time
    async with rig.client() as client:
        for _ in range(30):
            offered = choose.sample(ids, choose.randint(1, len(ids)))
            wanted = choose.randint(1, len(offered))
            must = choose.sample(offered, choose.randint(0, wanted))
            await _prefer(client, offered, wanted, must)


@CHAPTER.advised("C38", "prefers the same each time", "The same question, in any order of ids, has the same answer.")
async def deterministic(rig: Rig) -> None:
    """The kubelet offers ids in random order. A choice that follows that order is no choice."""
    ids = await _ids(rig, 2)
    half = (len(ids) + 1) // 2
    async with rig.client() as client:
        answers = {frozenset(await _prefer(client, order, half)) for order in (ids, ids[::-1], ids, sorted(ids))}
    if len(answers) > 1:
        raise Failed(f"{half} of {len(ids)}, asked in another order, is another choice")


@CHAPTER.foreign("C39", "stands a question without an answer", "An impossible question is answered or refused.")
async def impossible(rig: Rig) -> None:
    """More than offered, an unknown id, a size below one: no kubelet asks that, and no plugin may fall over it."""
    ids = await _ids(rig, 1)
    asks = (
        prefer_request(ids, len(ids) + 1),
        prefer_request(ids, 0),
        prefer_request(ids, -1),
        prefer_request([], 1),
        prefer_request(["no-such-device", *ids], 1),
        prefer_request(ids, 1, ["no-such-device"]),
        prefer_request(ids[:1], 2**31 - 1),
    )
    async with rig.client() as client:
        for ask in (*asks, None):
            request = dp.PreferredAllocationRequest(container_requests=[ask] if ask else [])
            answer = await client.ask("GetPreferredAllocation", request)
            what = f"{ask.allocation_size} of {len(ask.available_deviceIDs)}" if ask else "no container"
            if answer.silent:
                raise Failed(f"asked for {what}: {answer}")
            await rig.unharmed(f"asked for {what}")


@CHAPTER.foreign("C40", "prefers for each container", "An answer has one response per container request, in order.")
async def each_container(rig: Rig) -> None:
    """An answer in another order is an answer to another question. Every kubelet so far asks for one container."""
    ids = await _ids(rig, 2)
    async with rig.client() as client:
        answers = await client.prefer(prefer_request(ids[:1], 1), prefer_request(ids[1:2], 1))
    if answers != [ids[:1], ids[1:2]]:
        raise Failed(f"two questions with one choice each got {answers}")


async def _ids(rig: Rig, count: int) -> list[str]:
    async with rig.client() as client:
        options = await client.options()
    if not options.get_preferred_allocation_available:
        raise Skipped("it has no preferences")
    return rig.need(count)[:MOST]


async def _prefer(client: Client, ids: Sequence[str], size: int, must: Sequence[str] = ()) -> list[str]:
    answers = await client.prefer(prefer_request(ids, size, must))
    if len(answers) != 1:
        raise Failed(f"{len(answers)} responses to one container request")
    return answers[0]
