"""Allocate: what is asked, what reaches the container, and what an odd answer leads to."""

from __future__ import annotations

import asyncio

import grpc

from fairlead.standin._gen import deviceplugin_v1beta1_pb2 as dp
from tests.differential.plugin import device, tell_ids
from tests.differential.stage import Stage, scenario
from tests.differential.world import CDI_KIND

Answer = dp.ContainerAllocateResponse


@scenario(alike=("d1", "d2", "d3"))
async def a_pod_gets_what_it_asks_for(s: Stage) -> None:
    await s.ready("d1", "d2", "d3")
    first = await s.run("first", 1)
    second = await s.run("second", 2)
    for pod in (first, second):
        await s.saw_pod(pod)
        s.saw(f"{pod}: received", await s.world.received(pod, "main"))
    await s.saw_numbers("in use", 3, 3)
    await s.saw_listed("in use")
    s.saw_checkpoint("in use")


@scenario()
async def everything_an_answer_can_hold(s: Stage) -> None:
    plugin = await s.ready("a")
    await s.world.offer_cdi(["one", "two"])
    names = [f"{CDI_KIND}={name}" for name in ("one", "two", "one")]
    plugin.answer = lambda _: [
        Answer(
            envs={"DIFF_PLAIN": "x", "DIFF_EMPTY": "", "DIFF_ODD": "a=b c\n$(HOME)"},
            mounts=[
                dp.Mount(container_path="/diff/etc", host_path="/etc", read_only=True),
                dp.Mount(container_path="/diff/tmp", host_path="/tmp"),
                dp.Mount(container_path="/diff/tmp", host_path="/usr"),
            ],
            devices=[
                dp.DeviceSpec(container_path="/dev/diff0", host_path="/dev/zero", permissions="rw"),
                dp.DeviceSpec(container_path="/dev/diff1", host_path="/dev/null", permissions="mrw"),
                dp.DeviceSpec(container_path="/dev/diff1", host_path="/dev/full", permissions="r"),
            ],
            annotations={"diff.example/note": "hear, hear"},
            cdi_devices=[dp.CDIDevice(name=name) for name in names],
        )
    ]
    pod = await s.run("pod", 1)
    await s.saw_pod(pod)
    s.saw("received", await s.world.received(pod, "main"))
    s.saw_checkpoint("running")


@scenario()
async def an_answer_with_nothing_in_it(s: Stage) -> None:
    plugin = await s.ready("a")
    plugin.answer = lambda _: [Answer()]
    pod = await s.run("pod", 1)
    await s.saw_pod(pod)
    s.saw("received", await s.world.received(pod, "main"))
    await s.saw_listed("running")
    s.saw_checkpoint("running")


@scenario()
async def answers_for_more_containers_than_were_asked_about(s: Stage) -> None:
    plugin = await s.ready("a")
    plugin.answer = lambda _: [Answer(envs={"DIFF_N": str(number)}) for number in range(3)]
    pod = await s.run("pod", 1)
    await s.saw_pod(pod)
    s.saw("received", await s.world.received(pod, "main"))


@scenario(alone=True)
async def an_answer_for_no_container(s: Stage) -> None:
    plugin = await s.ready("a")
    plugin.answer = lambda _: []
    await s.saw_pod(await s.run("first", 1))
    plugin.answer = tell_ids
    # The device stays counted as in use.
    await s.saw_pod(await s.run("second", 1))


@scenario()
async def allocate_fails(s: Stage) -> None:
    plugin = await s.ready("a")
    plugin.fail["Allocate"] = "no way"
    failed = await s.run("failed", 1)
    await s.saw_pod(failed)
    await s.saw_listed("failed")
    await s.saw_get("failed", failed)
    s.saw_checkpoint("failed")
    plugin.fail.clear()
    await s.saw_pod(await s.run("next", 1))


@scenario()
async def a_plugin_without_allocate(s: Stage) -> None:
    plugin = await s.plugin("a")
    plugin.missing.add("Allocate")
    await plugin.serve()
    await plugin.register()
    await s.saw_numbers("registered", 1, 1)
    await s.saw_pod(await s.run("pod", 1))


@scenario()
async def every_code_that_allocate_can_fail_with(s: Stage) -> None:
    plugin = await s.ready("a")
    plugin.fail["Allocate"] = 'wörd, "quoted"\nand more'
    for plugin.code in grpc.StatusCode:
        if plugin.code is not grpc.StatusCode.OK:
            name = plugin.code.name.lower().replace("_", "-")
            await s.saw_pod(await s.run(name, 1))
    plugin.fail["Allocate"] = ""
    await s.saw_pod(await s.run("no-words", 1))


@scenario()
async def an_answer_that_is_no_message(s: Stage) -> None:
    plugin = await s.ready("a")
    plugin.garbage.add("Allocate")
    await s.saw_pod(await s.run("pod", 1))
    plugin.garbage.clear()
    await s.saw_pod(await s.run("next", 1))


@scenario()
async def an_answer_too_large_for_a_message(s: Stage) -> None:
    plugin = await s.ready("a")
    plugin.answer = lambda _: [Answer(envs={"DIFF_LONG": "x" * 5_000_000})]
    await s.saw_pod(await s.run("pod", 1))
    plugin.answer = tell_ids
    await s.saw_pod(await s.run("next", 1))


@scenario(alike=("d1", "d2"))
async def more_is_asked_than_there_is(s: Stage) -> None:
    await s.ready("d1", "d2")
    await s.saw_pod(await s.run("three", 3))
    await s.saw_pod(await s.run("one", 1))
    await s.saw_pod(await s.run("two", 2))
    await s.saw_pod(await s.run("another", 1))
    await s.saw_pod(await s.run("last", 1))


@scenario()
async def nothing_is_asked(s: Stage) -> None:
    await s.ready("a")
    pod = await s.run("zero", 0)
    await s.saw_pod(pod)
    await s.saw_listed("zero")


@scenario()
async def a_resource_that_nobody_offers(s: Stage) -> None:
    pod = await s.run("pod", 1)
    await s.saw_pod(pod)
    await s.saw_listed("running")
    await s.saw_no_numbers("running")


@scenario()
async def unhealthy_devices_are_not_given_away(s: Stage) -> None:
    plugin = await s.ready("a", dp.Device(ID="b", health="Unhealthy"))
    await s.saw_pod(await s.run("two", 2))
    await s.saw_pod(await s.run("one", 1))
    plugin.publish(dp.Device(ID="a", health="Unhealthy"), dp.Device(ID="b", health="Unhealthy"))
    await s.saw_numbers("all bad", 0, 2)
    await s.saw_pod(await s.run("none", 1))


@scenario()
async def two_resources_in_one_container(s: Stage) -> None:
    first = await s.ready("a", name="first")
    second = await s.ready("x", "y", name="second", resource=s.other)
    first.answer = lambda _: [Answer(envs={"DIFF_FIRST": "1", "DIFF_SAME": "same"})]
    second.answer = lambda _: [Answer(envs={"DIFF_SECOND": "2", "DIFF_SAME": "same"})]
    pod = await s.run("pod", {s.resource: 1, s.other: 2})
    await s.saw_pod(pod)
    s.saw("received", await s.world.received(pod, "main"))
    await s.saw_listed("running")
    await s.saw_offered("running")
    s.saw_checkpoint("running")


@scenario(alone=True)
async def the_second_of_two_containers_fails(s: Stage) -> None:
    good = await s.ready("a", name="good")
    bad = await s.ready("x", name="bad", resource=s.other)
    bad.fail["Allocate"] = "no way"
    await s.saw_pod(await s.run("failed", {s.resource: 1}, second={s.other: 1}))
    good.answer = tell_ids
    # What the first container had got is given back.
    await s.saw_pod(await s.run("next", 1))


@scenario(alone=True)
async def a_device_leaves_the_list_during_its_allocate(s: Stage) -> None:
    plugin = await s.ready("a", "b", preferred=True)
    plugin.prefer = lambda _: [["a"]]

    async def leave() -> None:
        plugin.publish(device("b"))
        await s.until(lambda: s.offers(plugin, 1), "one device is left")

    plugin.during["Allocate"] = leave
    await s.run("pod", 1)
    s.saw("the kubelet is alive", await s.world.is_alive())


@scenario()
async def the_plugin_ends_during_allocate(s: Stage) -> None:
    plugin = await s.ready("a")

    async def end() -> None:
        asyncio.get_running_loop().call_soon(lambda: tasks.append(asyncio.ensure_future(plugin.stop())))
        await asyncio.Event().wait()

    tasks: list[asyncio.Future[None]] = []
    plugin.during["Allocate"] = end
    await s.saw_pod(await s.run("pod", 1))
    await s.saw_numbers("ended", 0, 1)
    await asyncio.gather(*tasks)


@scenario(alike=("d1", "d2", "d3"))
async def two_containers_have_devices_of_their_own(s: Stage) -> None:
    await s.ready("d1", "d2", "d3")
    pod = await s.run("pod", 1, second={s.resource: 2})
    await s.saw_pod(pod)
    for name in ("main", "second"):
        s.saw(f"{name}: received", await s.world.received(pod, name))
    await s.saw_listed("running")
