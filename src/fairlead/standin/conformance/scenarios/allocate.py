"""Scenarios: Allocate, and PreStartContainer after it."""

import asyncio
import re
from statistics import median
from time import perf_counter

from google.protobuf.message import Message

from fairlead.standin._gen import deviceplugin_v1beta1_pb2 as dp
from fairlead.standin.conformance.client import Answer, Client, prefer_request
from fairlead.standin.conformance.rig import Rig
from fairlead.standin.conformance.scenario import Chapter, Failed, Skipped

CHAPTER = Chapter("Allocate and PreStartContainer")
MANY, PAIRS = 200, 5
ENOUGH_S = 60.0  # calls that take so long together are enough
SLOW_S = 1.0
# What plugins are known to write where a device should be, and is not.
NOTHING = re.compile(r"|none|void|-1|no-?dev(ice)?s?(files)?|no-gpu.*", re.IGNORECASE)
SHOWS = re.compile(r"(.*_)?VISIBLE_DEVICES")
_CDI = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*=[A-Za-z0-9][\w.:-]*")


@CHAPTER.required("C18", "gives a pod one device", "A pod that asks for one device of a free node runs.")
async def one_device(rig: Rig) -> None:
    """This is what the plugin is for."""
    rig.need(1)
    await rig.run_pod(1)


@CHAPTER.required("C19", "gives a pod all devices", "A pod that asks for every healthy device runs.")
async def all_devices(rig: Rig) -> None:
    """Every device in the list can be requested; large pods request all of them."""
    await rig.run_pod(len(rig.need(1)))


@CHAPTER.required("C20", "answers for a container", "Allocate has one response to one container request.")
async def one_container(rig: Rig) -> None:
    """The kubelet takes the first response. With none it refuses the pod and, in 1.36, forgets to free the devices."""
    ids = rig.need(1)
    async with rig.client() as client:
        if (count := len(await client.must_allocate(ids[:1]))) != 1:
            raise Failed(f"{count} responses to one container request")


@CHAPTER.foreign("C84", "answers for each container", "Allocate has one response per container request, in order.")
async def each_container(rig: Rig) -> None:
    """The interface allows several requests in a call. Every kubelet so far sends one."""
    one, other, *_ = rig.need(2)
    async with rig.client() as client:
        if (count := len(await client.must_allocate([one], [other]))) != 2:
            raise Failed(f"{count} responses to 2 container requests")


@CHAPTER.required(
    "C21", "answers soundly", "Paths are absolute, permissions are of r, w and m, CDI names are complete."
)
async def sound_answer(rig: Rig) -> None:
    """The kubelet passes the answer on unread. What is wrong in it shows when the container does not start."""
    ids = rig.need(1)
    async with rig.client() as client:
        for answer in await client.must_allocate(ids[:1]) + await client.must_allocate(ids):
            if faults := _unsound(answer):
                raise Failed("; ".join(faults[:3]))


@CHAPTER.required("C22", "refuses an unknown id", "Allocate fails if it names a device that is not in the list.")
async def unknown_refused(rig: Rig) -> None:
    """A good answer would start a container without the device that it asked for."""
    async with rig.client() as client:
        await _control(rig, client)
        _must_refuse(await client.allocate(["no-such-device"]), "an unknown id")
    await rig.unharmed("an unknown id")


@CHAPTER.required("C23", "refuses a request that is half unknown", "One unknown id among good ones fails the request.")
async def half_unknown_refused(rig: Rig) -> None:
    """The pod asked for so many devices. To leave one out silently is worse than to refuse."""
    ids = rig.need(1)
    async with rig.client() as client:
        await _control(rig, client)
        _must_refuse(await client.allocate([ids[0], "no-such-device"]), "a good id and an unknown one")
    await rig.unharmed("a good id and an unknown one")


@CHAPTER.required("C24", "refuses an unhealthy device", "Allocate fails if a device is listed as unhealthy.")
async def unhealthy_refused(rig: Rig) -> None:
    """The list may change between the kubelet's choice and its call. The plugin knows better, and has to say so."""
    sick = [i for i in rig.ids if i not in rig.healthy]
    if not sick:
        raise Skipped("no device is unhealthy")
    async with rig.client() as client:
        await _control(rig, client)
        _must_refuse(await client.allocate(sick[:1]), f"the unhealthy {sick[0]!r}")


@CHAPTER.foreign("C25", "stands an id named twice", "A request that names a device twice is answered or refused.")
async def twice_in_one(rig: Rig) -> None:
    """No kubelet sends it, and no plugin may fall over it."""
    ids = rig.need(1)
    async with rig.client() as client:
        _must_answer(await client.allocate([ids[0], ids[0]]), "the same id twice")
    await rig.unharmed("the same id twice")


@CHAPTER.foreign("C26", "stands an empty request", "Allocate for no container, or no device, is answered or refused.")
async def empty_request(rig: Rig) -> None:
    """No kubelet sends it. An index into an empty list is the commonest crash of small plugins."""
    async with rig.client() as client:
        _must_answer(await client.allocate(), "a request for no container")
        await rig.unharmed("a request for no container")
        _must_answer(await client.allocate([]), "a request for no device")
    await rig.unharmed("a request for no device")


@CHAPTER.required("C27", "allocates the same device again", "Allocate works for ids that were allocated before.")
async def again(rig: Rig) -> None:
    """There is no call that frees a device. The kubelet gives it to the next pod, and to one that comes back."""
    ids = rig.need(1)
    async with rig.client() as client:
        first, second = await client.must_allocate(ids), await client.must_allocate(ids)
    if len(first) != len(second):
        raise Failed("the second answer has another shape than the first")


@CHAPTER.advised("C28", "gives the same answer to the same ids", "What a container gets follows from its ids alone.")
async def same_answer(rig: Rig) -> None:
    """A plugin that counts its calls, or guesses which pod is asking, gives the wrong pod the wrong device."""
    ids = rig.need(1)
    async with rig.client() as client:
        answers = [_devices(each) for _ in range(3) for each in await client.must_allocate(ids[:1])]
    if any(answer != answers[0] for answer in answers):
        raise Failed(f"three calls for {ids[0]!r} got different answers")


@CHAPTER.advised("C29", "does not mind the order of ids", "The same ids in another order get the same devices.")
async def any_order(rig: Rig) -> None:
    """The kubelet sends ids in random order."""
    ids = rig.need(2)
    async with rig.client() as client:
        one, other = await client.must_allocate(ids), await client.must_allocate(ids[::-1])
    if [_devices(each) for each in one] != [_devices(each) for each in other]:
        raise Failed("the ids in reverse order got other devices")


@CHAPTER.required(
    "C30",
    f"allocates {MANY} times in a row",
    f"{MANY} calls, one after the other, all go well; or as many as {ENOUGH_S:g} s allow.",
)
async def many(rig: Rig) -> str | None:
    """Short pods come by the thousand. Files, threads and counters that are not given back run out."""
    ids = rig.need(1)
    began_s = perf_counter()
    async with rig.client() as client:
        for number in range(MANY):
            if perf_counter() - began_s > ENOUGH_S:
                return f"{number} calls in {ENOUGH_S:g} s"
            answer = await client.allocate([ids[number % len(ids)]])
            if not answer.ok:
                raise Failed(f"call {number + 1} failed: {answer}")
    return None


@CHAPTER.foreign("C31", "keeps two calls apart", "Two calls in flight together do not mix up their answers.")
async def two_at_once(rig: Rig) -> None:
    """A kubelet admits one pod at a time. A call of a kubelet that ended may still be in the plugin's hands."""
    one, other, *_ = rig.need(2)
    async with rig.client() as client:
        alone = [_devices((await client.must_allocate([i]))[0]) for i in (one, other)]
        for _ in range(PAIRS):
            answers = await asyncio.gather(*(client.must_allocate([i], in_flight=2) for i in (one, other)))
            if [_devices(answer[0]) for answer in answers] != alone:
                raise Failed(f"asked together, {one!r} and {other!r} got what they do not get alone")


@CHAPTER.advised("C32", "allocates quickly", f"Allocate and GetPreferredAllocation take less than {SLOW_S:g} s.")
async def quickly(rig: Rig) -> None:
    """The kubelet's main loop waits for both, without any limit. While it waits no pod starts or ends on the node."""
    ids = rig.need(1)
    async with rig.client() as client:
        taken = []
        for _ in range(5):
            began_s = perf_counter()
            prefers = (await client.options()).get_preferred_allocation_available
            # What this call takes, which has nothing to do, any other takes too: on a busy machine it may be much.
            idle_s = perf_counter() - began_s
            await client.must_allocate(ids)
            if prefers:
                await client.prefer(prefer_request(ids, (len(ids) + 1) // 2))
            taken.append(perf_counter() - began_s - 2 * idle_s)
    if median(taken) >= SLOW_S:
        raise Failed(f"half of the calls took {median(taken):.1f} s or more")


@CHAPTER.required("C33", "prepares a container, and again", "PreStartContainer works at each start of a container.")
async def prepares(rig: Rig) -> None:
    """It is called whenever a container of the pod starts, not only the first time. If it fails the container waits."""
    async with rig.client() as client:
        if not (await client.options()).pre_start_required:
            raise Skipped("it does not ask for PreStartContainer")
    rig.need(1)
    pod = await rig.run_pod(1)
    for start in ("the first restart", "the second restart"):
        container = await rig.kubelet.restart_container(pod, "main")
        if container.state != "running":
            raise Failed(f"{start}: {container.message}")


@CHAPTER.required("C82", "does not succeed without a device", "A good answer does not say that there is no device.")
async def says_nothing(rig: Rig) -> None:
    """The container starts, and finds out. An error would have kept the pod from a node that cannot serve it."""
    ids = rig.need(1)
    async with rig.client() as client:
        for wanted in (ids[:1], ids):
            for answer in await client.must_allocate(wanted):
                for name, value in answer.envs.items():
                    if SHOWS.fullmatch(name) and NOTHING.fullmatch(value) and not _touches(answer):
                        raise Failed(f"{len(wanted)} allocated, with {name}={value!r} and no device")


@CHAPTER.advised("C83", "gives something", "A good answer has a variable, a mount, a device, an annotation or a name.")
async def gives_something(rig: Rig) -> None:
    """A resource that only counts may give nothing. For any other, the container runs without its device."""
    ids = rig.need(1)
    async with rig.client() as client:
        for answer in await client.must_allocate(ids[:1]):
            if not answer.ByteSize():
                raise Failed(f"Allocate for {ids[0]!r} went well, and gives the container nothing at all")


async def _control(rig: Rig, client: Client) -> None:
    """A good request goes well. Otherwise a refusal says nothing."""
    if not (answer := await client.allocate(rig.need(1)[:1])).ok:
        raise Failed(f"it refuses a good request too: {answer}")


def _touches(answer: dp.ContainerAllocateResponse) -> bool:
    return bool(answer.devices or answer.mounts or answer.cdi_devices or answer.annotations)


def _must_refuse(answer: Answer, what: str) -> None:
    _must_answer(answer, what)
    if answer.ok:
        raise Failed(f"{what} was allocated")


def _must_answer(answer: Answer, what: str) -> None:
    if answer.silent:
        raise Failed(f"{what} got no answer: {answer}")


def _plain(answer: Message) -> bytes:
    return answer.SerializeToString(deterministic=True)


def _devices(answer: dp.ContainerAllocateResponse) -> tuple[object, ...]:
    """What the container gets, without regard to order. Words with commas between them are a set, too."""
    envs = {name: sorted(value.split(",")) for name, value in answer.envs.items()}
    parts = (answer.mounts, answer.devices, answer.cdi_devices)
    return (envs, dict(answer.annotations), *(sorted(map(_plain, part)) for part in parts))


def _unsound(answer: dp.ContainerAllocateResponse) -> list[str]:
    faults = [f"variable {name!r} has no legal name" for name in answer.envs if not name or "=" in name]
    places: list[dp.Mount | dp.DeviceSpec] = [*answer.mounts, *answer.devices]
    paths = [path for each in places for path in (each.container_path, each.host_path)]
    faults += [f"path {path!r} is not absolute" for path in paths if not path.startswith("/")]
    faults += [f"path {path!r} has dots in it" for path in paths if ".." in path.split("/")]
    faults += [
        f"permissions of {each.container_path!r} are {each.permissions!r}"
        for each in answer.devices
        if not each.permissions or set(each.permissions) - set("rwm")
    ]
    return faults + [f"CDI name {each.name!r}" for each in answer.cdi_devices if not _CDI.fullmatch(each.name)]
