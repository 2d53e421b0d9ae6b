"""What a kubelet tells about devices: pod-resources, and health in a pod's status."""

from __future__ import annotations

from tests.differential.plugin import device
from tests.differential.stage import Stage, scenario

RESYNC_S = 90.0  # without a push a kubelet looks at each pod again so often; a wait ends with what it waits for


@scenario()
async def topology_is_told_per_device_and_node(s: Stage) -> None:
    near, both, far = device("near", "Healthy", 0), device("both", "Healthy", 0, 1), device("far", "Healthy", 7)
    await s.ready("none", near, both, far)
    pod = await s.run("pod", 4)
    await s.saw_pod(pod)
    await s.saw_listed("running")
    await s.saw_listed("running", "v1alpha1")
    await s.saw_get("running", pod)
    await s.saw_offered("running")
    s.saw_checkpoint("running")


@scenario()
async def pods_without_devices_are_listed_too(s: Stage) -> None:
    pod = await s.run("pod", {}, second={})
    await s.saw_listed("running")
    await s.saw_get("running", pod)


@scenario()
async def pods_that_are_not_there(s: Stage) -> None:
    pod = await s.run("pod", {})
    await s.saw_get("another namespace", pod, "elsewhere")
    await s.saw_get("no such pod", "nobody")
    await s.saw_get("no name", "", "")
    await s.world.delete(pod)
    await s.saw_get("deleted", pod)
    await s.saw_listed("deleted")


@scenario()
async def plain_init_containers_are_not_shown(s: Stage) -> None:
    plugin = await s.ready("a", "b", preferred=True)
    plugin.prefer = lambda asked: [sorted(asked.available_deviceIDs)[:1]]
    pod = await s.run("pod", 1, init={"first": {s.resource: 1}}, sidecars={"beside": {s.resource: 1}})
    await s.saw_pod(pod)
    for name in ("first", "beside", "main"):
        s.saw(f"{name}: received", await s.world.received(pod, name))
    await s.saw_listed("running")
    await s.saw_get("running", pod)
    s.saw_checkpoint("running")


@scenario()
async def health_in_the_status_follows_the_list(s: Stage) -> None:
    a = s.own("a")
    plugin = await s.ready(a)
    pod = await s.run("pod", 1)

    async def told(word: str) -> bool:
        return word in str(await s.world.health(pod))

    async def saw(what: str, word: str) -> None:
        await s.until(lambda: told(word), must=False, patience_s=RESYNC_S)
        s.saw(what, await s.world.health(pod))

    await saw("well", "'Healthy'")
    plugin.publish(device(a, "Unhealthy"))
    await saw("bad", "'Unhealthy'")
    await s.saw_numbers("bad", 0, 1)
    await s.saw_pod(pod, "bad")
    await s.saw_listed("bad")
    plugin.publish(device(a))
    await saw("well again", "'Healthy'")
    await s.saw_numbers("well again", 1, 1)
    await plugin.stop()
    await s.saw_numbers("the plugin is gone", 0, 1)
    s.saw("the plugin is gone", await s.world.health(pod))


@scenario(alike=("d1", "d2"))
async def init_containers_have_no_health(s: Stage) -> None:
    await s.ready("d1", "d2")
    pod = await s.run("pod", {}, init={"first": {s.resource: 1}}, sidecars={"beside": {s.resource: 1}})
    await s.world.settle()
    s.saw("health", await s.world.health(pod))


@scenario()
async def a_pod_that_waits_for_its_image_has_its_device(s: Stage) -> None:
    a = s.own("a")
    plugin = await s.ready(a, pre_start=True)
    pod = await s.run("pod", 1, image=False)
    await s.saw_listed("waiting")
    await s.world.settle()
    s.saw("health", await s.world.health(pod))
    plugin.publish(device(a, "Unhealthy"))

    async def told() -> bool:
        return "'Unhealthy'" in str(await s.world.health(pod))

    await s.until(told, must=False, patience_s=RESYNC_S)
    s.saw("health when it is bad", await s.world.health(pod))
