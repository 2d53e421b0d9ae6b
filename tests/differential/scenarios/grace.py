"""A plugin that stays away for more than five minutes."""

from __future__ import annotations

from tests.differential.stage import Stage, scenario


@scenario(long=True)
async def a_plugin_that_stays_away_is_forgotten(s: Stage) -> None:
    plugin = await s.ready("a", "b", preferred=True)
    plugin.prefer = lambda _: [["a"]]
    pod = await s.run("pod", 1)
    await plugin.stop()
    await s.world.outlast()
    await s.saw_numbers("forgotten", 0, 0)
    await s.saw_pod(pod)
    await s.saw_listed("forgotten")
    await s.saw_offered("forgotten")
    s.saw_checkpoint("forgotten")
    await s.saw_pod(await s.run("next", 1))
    await s.world.crash(pod, "main")
    await s.saw_pod(pod, "after a crash")
    await s.back(plugin)
    await s.saw_numbers("back", 2, 2)
    plugin.prefer = lambda _: [["b"]]
    await s.saw_pod(await s.run("last", 1))
    await s.saw_listed("back")


@scenario(long=True)
async def a_plugin_without_pods_that_stays_away(s: Stage) -> None:
    plugin = await s.ready("a")
    await plugin.stop()
    await s.world.outlast()
    await s.saw_numbers("forgotten", 0, 0)
    await s.saw_pod(await s.run("pod", 1))
    await s.saw_listed("forgotten")


@scenario(long=True)
async def a_plugin_that_never_listed_stays_away(s: Stage) -> None:
    plugin = await s.plugin("a")
    plugin.fail["ListAndWatch"] = "not today"
    s.saw("register", await plugin.register())
    await s.world.outlast()
    await s.saw_numbers("forgotten", 0, 0)
