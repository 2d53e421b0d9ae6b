"""PreStartContainer: when it is called, and what its failure does."""

from __future__ import annotations

from tests.differential.plugin import Plugin
from tests.differential.stage import Stage, scenario

RETRY_S = 20.0


@scenario(alike=("d1", "d2", "d3"))
async def it_is_called_before_each_start(s: Stage) -> None:
    await s.ready("d1", "d2", "d3", pre_start=True)
    pod = await s.run("pod", 2)
    await s.saw_pod(pod)
    await s.world.crash(pod, "main")
    await s.saw_pod(pod, "after a crash")
    s.saw("received", await s.world.received(pod, "main"))


@scenario(alike=("d1", "d2", "d3"))
async def it_is_called_for_each_container(s: Stage) -> None:
    await s.ready("d1", "d2", "d3", pre_start=True)
    pod = await s.run("pod", 1, init={"first": {s.resource: 1}}, sidecars={"beside": {s.resource: 2}})
    await s.saw_pod(pod)


@scenario()
async def it_fails(s: Stage) -> None:
    plugin = await s.ready("a", pre_start=True)
    plugin.fail["PreStartContainer"] = "cannot reset"
    pod = await s.run("pod", 1)
    await s.saw_pod(pod)
    await s.saw_listed("waiting")
    await _end(s, plugin, pod, 1)


@scenario()
async def it_fails_when_the_container_starts_again(s: Stage) -> None:
    plugin = await s.ready("a", pre_start=True)
    pod = await s.run("pod", 1)
    plugin.fail["PreStartContainer"] = "cannot reset"
    await s.world.crash(pod, "main")
    await s.saw_pod(pod)
    await _end(s, plugin, pod, 2)


@scenario()
async def it_fails_for_the_second_container(s: Stage) -> None:
    await s.ready("a", name="good")
    bad = await s.ready("x", name="bad", resource=s.other, pre_start=True)
    bad.fail["PreStartContainer"] = "cannot reset"
    pod = await s.run("pod", 1, second={s.other: 1})
    await s.until(lambda: _runs(s, pod, "main"), "the first one runs")
    await s.saw_pod(pod)
    await _end(s, bad, pod, 1)


@scenario()
async def it_fails_for_an_init_container(s: Stage) -> None:
    plugin = await s.ready("a", pre_start=True)
    plugin.fail["PreStartContainer"] = "cannot reset"
    pod = await s.run("pod", 1, init={"first": {s.resource: 1}})
    await s.saw_pod(pod)
    await _end(s, plugin, pod, 1)


@scenario()
async def it_fails_for_a_sidecar(s: Stage) -> None:
    plugin = await s.ready("a", pre_start=True)
    plugin.fail["PreStartContainer"] = "cannot reset"
    pod = await s.run("pod", {}, sidecars={"beside": {s.resource: 1}})
    await s.saw_pod(pod)
    await _end(s, plugin, pod, 1)


@scenario()
async def a_failed_start_is_tried_again(s: Stage) -> None:
    plugin = await s.ready("a", pre_start=True)
    plugin.fail["PreStartContainer"] = "cannot reset"
    pod = await s.run("pod", 1)
    plugin.fail.clear()
    await s.until(lambda: _runs(s, pod, "main"), must=False, patience_s=RETRY_S)
    await s.saw_pod(pod)
    await _end(s, plugin, pod, 1)


@scenario()
async def a_plugin_that_wants_to_prepare_and_cannot(s: Stage) -> None:
    plugin = await s.plugin("a", pre_start=True)
    plugin.missing.add("PreStartContainer")
    await plugin.serve()
    await plugin.register()
    await s.saw_numbers("registered", 1, 1)
    await s.saw_pod(await s.run("pod", 1))


@scenario()
async def the_plugin_is_gone_when_the_container_starts_again(s: Stage) -> None:
    plugin = await s.ready("a")
    pod = await s.run("pod", 1)
    await plugin.stop()
    await s.saw_numbers("gone", 0, 1)
    await s.world.crash(pod, "main")
    await s.saw_pod(pod)
    s.saw("received", await s.world.received(pod, "main"))


@scenario()
async def the_plugin_is_gone_and_would_have_to_prepare(s: Stage) -> None:
    plugin = await s.ready("a", pre_start=True)
    pod = await s.run("pod", 1)
    await plugin.stop()
    await s.saw_numbers("gone", 0, 1)
    await s.world.crash(pod, "main")
    await s.saw_pod(pod)


async def _runs(s: Stage, pod: str, container: str) -> bool:
    seen = await s.world.look(pod)
    return seen is not None and bool(seen["containers"][container]["state"] == "running")


async def _end(s: Stage, plugin: Plugin, pod: str, count: int) -> None:
    """How often a kubelet tries again is a matter of time: only the first calls are compared."""
    await s.world.delete(pod)
    made = [index for index, (method, _) in enumerate(plugin.calls) if method == "PreStartContainer"]
    plugin.calls[:] = [call for index, call in enumerate(plugin.calls) if index not in made[count:]]
