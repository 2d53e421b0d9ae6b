"""Scenarios: the kubelet restarts, at any moment, and goes wrong in other ways."""

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator
from functools import partial

from fairlead.standin.conformance.client import Client
from fairlead.standin.conformance.rig import Rig
from fairlead.standin.conformance.scenario import Chapter, Failed, some
from fairlead.standin.pods import Pod

CHAPTER = Chapter("The kubelet restarts, or goes wrong")
MOST_PER_S = 10  # registrations in a second of refusals
MOST_PER_RESTART = 2
SIGNS = 4  # of a restart: the file, the directory, the stream, the own socket
MOST_RESOURCES = 5
TRIES = 3  # of what depends on the moment
UNSUPPORTED = "v0"


@CHAPTER.required("C41", "outlives a kubelet restart", "After a restart it serves a fresh socket and registers again.")
async def restart(rig: Rig) -> None:
    """A kubelet that starts removes every socket from the directory and knows no plugin. It happens on each upgrade."""
    ids = sorted(rig.ids)
    await rig.restart_kubelet()
    if sorted(rig.ids) != ids:
        raise Failed(f"the kubelet restarted, and the devices are others: {some(sorted(set(ids) ^ set(rig.ids)))}")


@CHAPTER.required("C42", "outlives restarts in a row", "The second and third restart are dealt with like the first.")
async def restarts_in_a_row(rig: Rig) -> None:
    """Kubelets crash in loops. A plugin that is put together again after the first restart must watch as before."""
    for which in ("first", "second", "third"):
        await rig.restart_kubelet(f"the {which} restart in a row")


@CHAPTER.required("C43", "bears a restart before it registers", "A restart while the plugin starts is not missed.")
async def restart_while_starting(rig: Rig) -> None:
    """On a booting node both start at the same time, in either order."""
    async for _ in _tries(rig):
        await rig.stop_plugin(signal.SIGTERM)
        await rig.kubelet.restart()  # it removes what is left of the last life: that is another scenario's
        since, old = len(rig.registrations), rig.sockets()
        await rig.start_plugin()
        await rig.until_soon(partial(rig.sockets, old), "it was started: it made no socket")
        await rig.kubelet.restart()
        await rig.registered_again("the kubelet restarted while it started: it did not register", since)


@CHAPTER.required("C44", "bears a restart during Register", "A Register that breaks is tried again.")
async def restart_during_register(rig: Rig) -> None:
    """The call fails, or never ends; the socket it served is gone."""
    async for resource in _tries(rig):
        rig.kubelet.faults.only = resource
        rig.kubelet.faults.restart_on_register = True
        await rig.kubelet.restart()
        await rig.until(
            lambda: not rig.kubelet.faults.restart_on_register, "the kubelet restarted: it did not register again"
        )
        await rig.until(
            partial(_is_back, rig, resource, len(rig.kubelet.calls)),
            "the kubelet restarted during Register: it did not register again",
            2 * rig.timeouts.wait_s,  # it may have two pauses before it: after the call, and after the restart
        )


@CHAPTER.required("C45", "bears a restart before the stream", "Being registered without a stream is not the end of it.")
async def restart_before_stream(rig: Rig) -> None:
    """The kubelet opens ListAndWatch after Register has returned. A restart in between breaks no stream."""
    async for _ in _tries(rig):
        rig.kubelet.faults.never_stream = True
        made = len(rig.kubelet.calls)
        await rig.kubelet.restart()
        await rig.until(partial(_was_registered, rig, made), "the kubelet restarted: it did not register again")
        rig.kubelet.faults.never_stream = False
        await rig.restart_kubelet("the kubelet restarted before the stream")


@CHAPTER.required("C46", "bears a restart during Allocate", "A call that breaks off harms nothing.")
async def restart_during_allocate(rig: Rig) -> None:
    """The kubelet that asked is gone. The next one asks again, for the same ids or for others."""
    ids = rig.need(1)
    since, asked = len(rig.registrations), rig.called("Allocate")
    async with rig.client() as client:
        # So that a call is under way at any moment.
        asking = asyncio.create_task(_ask_on(client, ids[0]))
        pod = asyncio.create_task(rig.kubelet.run_pod("broken-off", {"main": {rig.resource: 1}}))
        await rig.until(lambda: rig.called("Allocate") > asked, "a pod came: Allocate was not called")
        await rig.kubelet.restart()
        asking.cancel()
        await asyncio.wait({asking})
    with contextlib.suppress(Exception):  # how the pod fared is not the question
        await rig.kubelet.delete_pod(await pod)
    await rig.registered_again("the kubelet restarted during Allocate: it did not register again", since)
    await rig.run_pod(1)


@CHAPTER.required("C47", "registers again when the stream ends", "The end of ListAndWatch means: register again.")
async def end_of_stream(rig: Rig) -> None:
    """The kubelet never opens a stream twice. Until the plugin registers, all its devices are unhealthy."""
    since = len(rig.registrations)
    rig.kubelet.close_stream(rig.resource)
    await rig.registered_again("the kubelet closed the stream: it did not register again", since)


@CHAPTER.advised("C48", "notices that its socket is gone", "If its own socket file vanishes it makes a new one.")
async def socket_gone(rig: Rig) -> None:
    """A user cleaned the directory, or a kubelet started and died again. The kubelet cannot reach the plugin."""
    since = len(rig.registrations)
    rig.kubelet.delete_sockets()
    await rig.registered_again("its socket was removed: it did not register again", since)
    if not rig.path.is_socket():
        raise Failed("its socket was removed, and it registered without a new one")


@CHAPTER.required(
    "C49", "notices a kubelet.sock that was replaced", "Another file of the same name is another kubelet."
)
async def replaced_while_asleep(rig: Rig) -> None:
    """The plugin sleeps while it happens, as between two looks at the directory: it never sees the file missing."""
    since = len(rig.registrations)
    rig.plugin.send(signal.SIGSTOP)
    try:
        await rig.kubelet.restart()
    finally:
        rig.plugin.send(signal.SIGCONT)
    await rig.registered_again("kubelet.sock was replaced while it slept: it did not register again", since)


@CHAPTER.required("C50", "waits for a kubelet", "Started without a kubelet, it registers when one comes.")
async def no_kubelet(rig: Rig) -> None:
    """On a booting node the plugin's container may run first. Ending is allowed; it is started again."""
    await rig.stop_plugin(signal.SIGKILL)
    await rig.kubelet.stop()
    (rig.kubelet.plugin_dir / "kubelet.sock").unlink(missing_ok=True)
    since, old = len(rig.registrations), rig.sockets()
    await rig.start_plugin()
    # It has started once it serves. Some serve only when there is a kubelet; they get a good while.
    with contextlib.suppress(Failed):
        await rig.until_soon(lambda: rig.sockets(old) or not rig.plugin.alive, "", rig.timeouts.wait_s / 3)
    await rig.rest(rig.timeouts.quiet_s)
    await rig.kubelet.start()
    await rig.registered_again("the kubelet came later: it did not register", since)


@CHAPTER.required("C51", "outlasts a kubelet that is away", "A kubelet that is down for a while finds it again.")
async def kubelet_away(rig: Rig) -> None:
    """An upgrade takes minutes. In that time kubelet.sock exists and no process listens on it."""
    since = len(rig.registrations)
    await rig.kubelet.stop()
    await rig.rest(rig.timeouts.quiet_s)
    await rig.kubelet.start()
    await rig.registered_again("the kubelet was away: it did not register again", since)


@CHAPTER.required("C52", "tries again when refused", "A Register that was refused is tried again until it is accepted.")
async def refused(rig: Rig) -> None:
    """A kubelet that is not ready yet refuses. A plugin that gives up then is up and useless."""
    rig.kubelet.faults.refuse_register = "not now"
    await _be_refused(rig)
    rig.kubelet.faults.refuse_register = ""
    await rig.registered_again("refused at first, then welcome: it did not register", len(rig.registrations))


@CHAPTER.required(
    "C53", "bears a kubelet of another version", "Refused for its version, it neither hangs nor gives up."
)
async def other_version(rig: Rig) -> None:
    """The kubelet is upgraded, and upgraded again. The plugin has to be there when its version is known."""
    known, rig.kubelet.faults.version = rig.kubelet.faults.version, UNSUPPORTED
    await _be_refused(rig)
    rig.kubelet.faults.version = known
    await rig.registered_again("its version is known again: it did not register", len(rig.registrations))


@CHAPTER.required("C54", "pauses between attempts", f"While refused it calls at most {MOST_PER_S} times a second.")
async def pauses(rig: Rig) -> None:
    """A loop without a pause takes a core from the node at the very moment when the kubelet is in trouble."""
    rig.kubelet.faults.refuse_register = "not now"
    since = len(rig.registrations)
    took_s = await _be_refused(rig)
    calls = len(rig.registrations) - since
    if calls > MOST_PER_S * took_s:
        raise Failed(f"refused for {took_s:.1f} s, it called Register {calls} times")


@CHAPTER.required("C55", "registers once", f"A restart causes at most {MOST_PER_RESTART} registrations.")
async def once(rig: Rig) -> None:
    """Up to 1.36 the end of an older stream takes down the newer registration. Each needless one is a risk."""
    since = len(rig.registrations)
    await rig.restart_kubelet()
    await rig.rest(rig.timeouts.quiet_s)
    if (calls := len(rig.registrations) - since) > MOST_PER_RESTART:
        raise Failed(f"one restart, {calls} registrations")


@CHAPTER.advised(
    "C56",
    "tries again when no stream comes",
    "Accepted and asked for its options, but without a stream, it registers again.",
)
async def no_stream(rig: Rig) -> None:
    """A kubelet may fail between Register and ListAndWatch, and stay. Only the missing stream shows it."""
    rig.kubelet.faults.never_stream = True
    since = len(rig.registrations)
    await rig.kubelet.restart()
    await rig.until(lambda: len(rig.registrations) > since, "the kubelet restarted: it did not register again")
    settled = since
    for _ in range(SIGNS):  # one restart has several signs, and each may make it register
        before, settled = settled, len(rig.registrations)
        if before == settled:
            break
        await rig.rest(rig.timeouts.quiet_s)
    await rig.until(
        lambda: len(rig.registrations) > settled,
        "registered, and no stream came: it did not try again",
        rig.timeouts.silence_s,
    )
    rig.kubelet.faults.never_stream = False
    await rig.until(lambda: rig.streaming, "the next stream comes: it sends no list", rig.timeouts.silence_s)


@CHAPTER.required("C57", "lets pods keep their devices", "A pod that ran before a kubelet restart runs after it.")
async def pods_stay(rig: Rig) -> None:
    """A restarted kubelet admits its pods again. One whose device is not in the list, and healthy, is killed."""
    rig.need(1)
    pod = await rig.run_pod(1)
    await _admit_again(rig, pod, "the kubelet restarted")


@CHAPTER.required("C58", "has the same ids after its own restart", "A plugin that starts again lists the same ids.")
async def same_ids(rig: Rig) -> None:
    """Ids are all that ties a pod to its devices. With new ones every pod that holds a device fails."""
    rig.need(1)
    pod = await rig.run_pod(1)
    ids = sorted(rig.ids)
    await rig.restart_plugin(signal.SIGTERM)
    if sorted(rig.ids) != ids:
        raise Failed(f"it was started again, and lists other ids: {some(sorted(set(ids) ^ set(rig.ids)))}")
    await _admit_again(rig, pod, "plugin and kubelet restarted")


async def _tries(rig: Rig) -> AsyncIterator[str]:
    """A few times: what happens depends on the moment, and on the resource. Fewer where each takes long."""
    span = rig.timer.begin(rig.timeouts.wait_s)
    for number in range(max(TRIES, len(rig.resources[:MOST_RESOURCES]))):
        if number and not span.left_s():
            return
        await rig.ready()
        yield rig.resources[number % len(rig.resources)]


async def _be_refused(rig: Rig) -> float:
    """A kubelet that refuses starts; it is asked, and for a while it may be asked again. How long that was."""
    since = len(rig.registrations)
    await rig.kubelet.restart()
    await rig.until(lambda: len(rig.registrations) > since, "the kubelet restarted: it did not register again")
    began_s = time.monotonic()
    await rig.rest(rig.timeouts.refuse_s)
    return time.monotonic() - began_s


async def _ask_on(client: Client, device_id: str) -> None:
    while (await client.allocate([device_id])).ok:
        pass


async def _admit_again(rig: Rig, pod: Pod, what: str) -> None:
    held = pod.containers["main"].devices
    await rig.restart_kubelet(what, sources_ready=True, readmit=False)
    await rig.kubelet.readmit()
    if pod.phase != "Running":
        raise Failed(f"{what}: the pod was refused: {pod.message}")
    if pod.containers["main"].devices != held:
        raise Failed(f"{what}: the pod has other devices")


def _is_back(rig: Rig, resource: str, made: int) -> bool:
    """It registered anew, and its lists come; those of the resource that is looked at, too."""
    return _was_registered(rig, made, resource) and rig.streams(resource) and rig.streaming


def _was_registered(rig: Rig, made: int, resource: str = "") -> bool:
    """A Register went well since the first `made` calls."""
    calls = [call for call in rig.kubelet.calls[made:] if call.resource == (resource or rig.resource)]
    return any(call.method == "Register" and call.seconds is not None and not call.error for call in calls)
