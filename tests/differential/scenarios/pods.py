"""The life of pods: what they keep, and when they give it back."""

from __future__ import annotations

from tests.differential.plugin import device
from tests.differential.stage import Stage, scenario


@scenario()
async def a_deleted_pod_gives_its_device_back(s: Stage) -> None:
    await s.ready("a")
    pod = await s.run("first", 1)
    await s.saw_pod(await s.run("too-early", 1))
    await s.world.delete(pod)
    await s.saw_listed("deleted")
    next_one = await s.run("next", 1)
    await s.saw_pod(next_one)
    await s.saw_listed("the next one runs")


@scenario()
async def a_finished_pod_gives_its_device_back(s: Stage) -> None:
    await s.ready("a")
    pod = await s.run("first", 1, once=True)
    await s.world.finish(pod)
    await s.saw_pod(pod)
    await s.saw_listed("finished")
    await s.saw_get("finished", pod)
    await s.saw_pod(await s.run("next", 1))


@scenario(alike=("d1", "d2"))
async def a_container_that_starts_again_has_the_same_device(s: Stage) -> None:
    await s.ready("d1", "d2")
    pod = await s.run("pod", 1)
    s.saw("received", await s.world.received(pod, "main"))
    await s.world.crash(pod, "main")
    await s.saw_pod(pod)
    s.saw("received again", await s.world.received(pod, "main"))
    await s.saw_listed("running")


@scenario()
async def an_unhealthy_device_in_use_stays_with_its_pod(s: Stage) -> None:
    plugin = await s.ready("a")
    pod = await s.run("pod", 1)
    plugin.publish(device("a", "Unhealthy"))
    await s.saw_numbers("bad", 0, 1)
    await s.saw_pod(pod, "bad")
    await s.world.crash(pod, "main")
    await s.saw_pod(pod, "after a crash")
    await s.saw_listed("bad")
    await s.saw_pod(await s.run("next", 1))


@scenario()
async def a_device_in_use_leaves_the_list(s: Stage) -> None:
    plugin = await s.ready("a", "b", preferred=True)
    plugin.prefer = lambda _: [["a"]]
    pod = await s.run("pod", 1)
    plugin.publish(device("b"))
    await s.saw_numbers("a has left", 1, 1)
    await s.saw_listed("a has left")
    await s.world.settle()
    s.saw("health", await s.world.health(pod))
    await s.world.crash(pod, "main")
    await s.saw_pod(pod, "after a crash")
    plugin.prefer = lambda _: [["b"]]
    await s.saw_pod(await s.run("next", 1))
    await s.saw_listed("the next one runs")


@scenario()
async def init_containers_and_the_app_share(s: Stage) -> None:
    plugin = await s.ready("a", "b", "c", preferred=True)
    plugin.prefer = lambda asked: [sorted(asked.available_deviceIDs)[: asked.allocation_size]]
    pod = await s.run("pod", 3, init={"first": {s.resource: 1}, "second": {s.resource: 2}})
    await s.saw_pod(pod)
    for name in ("first", "second", "main"):
        s.saw(f"{name}: received", await s.world.received(pod, name))
    await s.saw_listed("running")


@scenario()
async def sidecars_and_the_app_do_not_share(s: Stage) -> None:
    await s.ready("a")
    await s.saw_pod(await s.run("pod", 1, sidecars={"beside": {s.resource: 1}}))


@scenario()
async def an_init_container_asks_for_more_than_the_app(s: Stage) -> None:
    plugin = await s.ready("a", "b", preferred=True)
    plugin.prefer = lambda asked: [sorted(asked.available_deviceIDs)[: asked.allocation_size]]
    pod = await s.run("pod", 2, init={"first": {s.resource: 2}})
    await s.saw_pod(pod)
    await s.saw_listed("running")
    await s.saw_pod(await s.run("next", 1))
