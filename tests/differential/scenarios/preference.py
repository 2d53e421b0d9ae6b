"""GetPreferredAllocation: when it is asked, with what, and what is made of the answer."""

from __future__ import annotations

from fairlead.standin._gen import deviceplugin_v1beta1_pb2 as dp
from tests.differential.stage import Stage, scenario

Asked = dp.ContainerPreferredAllocationRequest


@scenario()
async def the_preferred_devices_are_taken(s: Stage) -> None:
    plugin = await s.ready("a", "b", "c", "d", preferred=True)
    plugin.prefer = lambda _: [["b", "d"]]
    await s.saw_pod(await s.run("pod", 2))
    plugin.prefer = lambda _: [["c"]]
    await s.saw_pod(await s.run("next", 1))
    await s.saw_listed("running")


@scenario(alike=("d1", "d2"))
async def a_plugin_that_has_no_preference_is_not_asked(s: Stage) -> None:
    plugin = await s.ready("d1", "d2")
    plugin.prefer = lambda _: [["d2"]]
    await s.saw_pod(await s.run("pod", 1))


@scenario()
async def it_is_asked_even_where_there_is_nothing_to_choose(s: Stage) -> None:
    await s.ready("a", "b", preferred=True)
    await s.saw_pod(await s.run("pod", 2))


@scenario()
async def it_is_not_asked_where_there_is_too_little(s: Stage) -> None:
    await s.ready("a", preferred=True)
    await s.saw_pod(await s.run("pod", 2))


@scenario()
async def unhealthy_and_used_devices_are_not_to_choose_from(s: Stage) -> None:
    plugin = await s.ready("a", "b", "c", dp.Device(ID="d", health="Unhealthy"), preferred=True)
    plugin.prefer = lambda _: [["a"]]
    await s.saw_pod(await s.run("first", 1))
    plugin.prefer = lambda _: [["b"]]
    await s.saw_pod(await s.run("second", 1))


@scenario()
async def unknown_and_used_ids_in_the_answer_are_ignored(s: Stage) -> None:
    plugin = await s.ready("a", "b", preferred=True)
    plugin.prefer = lambda _: [["a"]]
    await s.run("first", 1)
    plugin.prefer = lambda _: [["a", "nonsense", ""]]
    await s.saw_pod(await s.run("second", 1))


@scenario()
async def a_preference_for_more_containers_than_were_asked_about(s: Stage) -> None:
    plugin = await s.ready("a", "b", "c", preferred=True)
    plugin.prefer = lambda _: [["a", "b", "c"], ["c"]]
    await s.saw_pod(await s.run("pod", 3))


@scenario()
async def too_few_are_preferred(s: Stage) -> None:
    plugin = await s.ready("a", "b", preferred=True)
    plugin.prefer = lambda _: [["b"]]
    await s.saw_pod(await s.run("pod", 2))


@scenario(alike=("d1", "d2", "d3"))
async def more_are_preferred_than_are_asked_for(s: Stage) -> None:
    plugin = await s.ready("d1", "d2", "d3", preferred=True)
    plugin.prefer = lambda _: [["d1", "d2", "d3"]]
    await s.saw_pod(await s.run("pod", 2))


@scenario(alike=("d1", "d2"))
async def no_preference_in_the_answer(s: Stage) -> None:
    plugin = await s.ready("d1", "d2", preferred=True)
    plugin.prefer = lambda _: [[]]
    await s.saw_pod(await s.run("first", 1))
    plugin.prefer = lambda _: []
    await s.saw_pod(await s.run("second", 1))


@scenario()
async def a_preference_that_fails(s: Stage) -> None:
    plugin = await s.ready("a", "b", preferred=True)
    plugin.fail["GetPreferredAllocation"] = "cannot decide"
    await s.saw_pod(await s.run("failed", 1))
    await s.saw_listed("failed")
    plugin.fail.clear()
    plugin.prefer = lambda _: [["a"]]
    await s.saw_pod(await s.run("next", 1))


@scenario()
async def a_plugin_that_has_a_preference_and_cannot_tell(s: Stage) -> None:
    plugin = await s.plugin("a", preferred=True)
    plugin.missing.add("GetPreferredAllocation")
    await plugin.serve()
    await plugin.register()
    await s.saw_numbers("registered", 1, 1)
    await s.saw_pod(await s.run("pod", 1))


@scenario()
async def a_preference_that_is_no_message(s: Stage) -> None:
    plugin = await s.ready("a", preferred=True)
    plugin.garbage.add("GetPreferredAllocation")
    await s.saw_pod(await s.run("pod", 1))


@scenario()
async def devices_of_an_init_container_must_be_included(s: Stage) -> None:
    plugin = await s.ready("a", "b", "c", preferred=True)

    def prefer(asked: Asked) -> list[list[str]]:
        return [["c"]] if asked.allocation_size == 1 else [["a", "c"]]

    plugin.prefer = prefer
    pod = await s.run("pod", 2, init={"first": {s.resource: 1}})
    await s.saw_pod(pod)
    await s.saw_listed("running")
