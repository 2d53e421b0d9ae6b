"""The plugin watcher: sockets under plugins_registry."""

from __future__ import annotations

from fairlead.standin._gen import pluginregistration_v1_pb2 as reg
from tests.differential.plugin import Plugin
from tests.differential.stage import Stage, scenario


async def _watched(s: Stage, *listed: str, **info: object) -> Plugin:
    plugin = await s.plugin(*listed, watched=True)
    told = {"type": "DevicePlugin", "name": s.resource, "supported_versions": ["v1beta1"], **info}
    plugin.info = reg.PluginInfo(**told)  # type: ignore[arg-type]  # a scenario may tell nonsense
    return plugin


@scenario()
async def a_socket_is_found(s: Stage) -> None:
    plugin = await _watched(s, "a", "b")
    await plugin.serve()
    await s.saw_numbers("found", 2, 2)
    await s.saw_pod(await s.run("pod", 2))
    plugin.path.unlink()
    await s.saw_numbers("removed", 0, 2)


@scenario()
async def a_socket_in_a_directory_is_found(s: Stage) -> None:
    plugin = await _watched(s, "a")
    await plugin.serve("diff-sub")
    await s.saw_numbers("found", 1, 1)


async def _refused(s: Stage, **info: object) -> None:
    plugin = await _watched(s, "a", **info)
    await plugin.serve()
    await s.until_heard(plugin, "NotifyRegistrationStatus")
    await plugin.stop()
    del plugin.calls[2:]  # how often a kubelet tries again is a matter of time


@scenario()
async def a_watched_plugin_of_another_version(s: Stage) -> None:
    await _refused(s, supported_versions=["v1alpha1", "v2"])


@scenario()
async def a_watched_plugin_of_another_kind(s: Stage) -> None:
    await _refused(s, type="Unknown")


@scenario()
async def a_watched_plugin_with_an_invalid_name(s: Stage) -> None:
    await _refused(s, name="gpu")


@scenario()
async def a_watched_plugin_without_options(s: Stage) -> None:
    plugin = await _watched(s, "a")
    plugin.fail["GetDevicePluginOptions"] = "no options today"
    await plugin.serve()
    await s.until_heard(plugin, "NotifyRegistrationStatus")
    await plugin.stop()
    del plugin.calls[3:]


@scenario()
async def a_watched_plugin_that_serves_elsewhere(s: Stage) -> None:
    served = await s.plugin("a", "b", name="served")
    told = await _watched(s, endpoint=str(s.world.seen_from_inside(served.path)))
    await told.serve()
    await s.saw_numbers("found", 2, 2)


@scenario()
async def a_watched_plugin_that_cannot_be_told(s: Stage) -> None:
    plugin = await _watched(s, "a")
    plugin.fail["NotifyRegistrationStatus"] = "not listening"
    await plugin.serve()
    await s.until_heard(plugin, "NotifyRegistrationStatus", 2)
    await plugin.stop()
    # Whether it comes to a list before it is taken out again is a matter of luck.
    plugin.calls[:] = [call for call in plugin.calls if call[0] != "ListAndWatch"][:6]


@scenario()
async def a_watched_list_ends(s: Stage) -> None:
    plugin = await _watched(s, "a")
    await plugin.serve()
    await s.saw_numbers("found", 1, 1)
    plugin.end_streams()
    await s.saw_numbers("ended", 0, 1)
    await s.saw_no_numbers("still")
