"""Register: what is accepted, what is refused and with which words, and what a second registration does."""

from __future__ import annotations

import asyncio

from fairlead.standin._gen import deviceplugin_v1beta1_pb2 as dp
from tests.differential.stage import Stage, scenario

NAMES = (
    "",
    "gpu",
    "/gpu",
    "diff.example/",
    "diff.example/gpu/two",
    "Diff.example/gpu",
    "diff_.example/gpu",
    "diff.example/-gpu",
    "diff.example/gpu_",
    "kubernetes.io/gpu",
    "sub.kubernetes.io/gpu",
    "requests.diff.example/gpu",
    f"diff.example/{'n' * 64}",
    f"{'p' * 250}.example/gpu",
)


@scenario()
async def a_plugin_registers(s: Stage) -> None:
    plugin = await s.plugin("a", "b")
    s.saw("register", await plugin.register())
    await s.saw_numbers("registered", 2, 2)
    await s.saw_offered("registered")
    s.saw_checkpoint("registered")


@scenario()
async def another_version_is_refused(s: Stage) -> None:
    plugin = await s.plugin("a")
    for version in ("v1beta2", "v1alpha1", "V1BETA1", ""):
        s.saw(f"version {version!r}", await plugin.register(version=version))
    await s.saw_no_numbers("refused")


@scenario()
async def an_invalid_name_is_refused(s: Stage) -> None:
    plugin = await s.plugin("a")
    for name in NAMES:
        s.saw(f"name {name[:30]!r}", await plugin.register(resource_name=name))


@scenario()
async def options_that_fail_end_the_registration(s: Stage) -> None:
    plugin = await s.plugin("a")
    plugin.fail["GetDevicePluginOptions"] = "no options today"
    s.saw("register", await plugin.register())
    await s.saw_no_numbers("refused")
    s.saw("pod", await s.world.look(await s.run("pod", 1)))
    plugin.fail.clear()
    s.saw("register again", await plugin.register())
    await s.saw_numbers("registered", 1, 1)


@scenario()
async def a_plugin_without_an_options_call(s: Stage) -> None:
    plugin = await s.plugin()
    plugin.missing.add("GetDevicePluginOptions")
    await plugin.serve()
    s.saw("register", await plugin.register())
    await s.saw_no_numbers("refused")


@scenario()
async def options_that_are_no_message(s: Stage) -> None:
    plugin = await s.plugin("a")
    plugin.garbage.add("GetDevicePluginOptions")
    s.saw("register", await plugin.register())
    await s.saw_no_numbers("refused")


@scenario()
async def other_options_at_the_second_registration(s: Stage) -> None:
    plugin = await s.ready("a", "b", "c")
    plugin.prefer = lambda _: [["b"]]
    plugin.options = dp.DevicePluginOptions(get_preferred_allocation_available=True, pre_start_required=True)
    plugin.end_streams()
    await s.saw_numbers("ended", 0, 3)
    s.saw("register again", await plugin.register())
    await s.saw_numbers("registered again", 3, 3)
    await s.saw_pod(await s.run("pod", 1))


@scenario()
async def an_endpoint_that_nobody_serves(s: Stage) -> None:
    plugin = await s.plugin("a")
    # An absolute path lands under the directory, and an empty one is the directory itself.
    endpoints = {"missing": "nobody.sock", "absolute": str(plugin.path), "empty": ""}
    answers = await asyncio.gather(*(plugin.register(endpoint=endpoint) for endpoint in endpoints.values()))
    for name, answer in zip(endpoints, answers, strict=True):
        s.saw(f"{name} endpoint", answer)
    await s.saw_no_numbers("refused")


@scenario()
async def an_endpoint_in_another_directory(s: Stage) -> None:
    plugin = await s.plugin("a")
    await plugin.serve("diff-sub")
    s.saw("below", await plugin.register(endpoint=f"diff-sub/{plugin.path.name}"))
    await s.saw_numbers("below", 1, 1)
    beside = await s.plugin("a", "b", name="beside", resource=s.other)
    await beside.serve("../diff-beside")
    s.saw("beside", await beside.register(endpoint=f"../diff-beside/{beside.path.name}"))
    await s.saw_numbers("beside", 2, 2, s.other)


@scenario()
async def options_in_the_request_do_not_count(s: Stage) -> None:
    plugin = await s.plugin("a")
    both = dp.DevicePluginOptions(pre_start_required=True, get_preferred_allocation_available=True)
    s.saw("register", await plugin.register(options=both))
    await s.saw_numbers("registered", 1, 1)
    await s.saw_pod(await s.run("pod", 1))


@scenario()
async def the_same_plugin_registers_twice(s: Stage) -> None:
    plugin = await s.ready("a", "b")
    s.saw("register again", await plugin.register())
    await s.until_heard(plugin, "ListAndWatch", 2)
    await s.saw_no_numbers("twice")


@scenario()
async def a_second_plugin_takes_the_name(s: Stage) -> None:
    old = await s.ready("a", "b", name="old")
    new = await s.plugin("c", "d", "e", name="new")
    s.saw("register", await new.register())
    await s.saw_numbers("both serve", 3, 3)
    old.publish()  # both lists count, and the last word is the old one's
    await s.saw_numbers("the old one lists nothing", 0, 0)
    new.publish(*[dp.Device(ID=i, health="Healthy") for i in "cd"])
    await s.saw_numbers("the new one lists two", 2, 2)


@scenario()
async def the_end_of_the_old_plugin_takes_the_new_one_along(s: Stage) -> None:
    old = await s.ready("a", "b", name="old")
    new = await s.plugin("c", "d", "e", name="new")
    s.saw("register", await new.register())
    await s.saw_numbers("both serve", 3, 3)
    await old.stop()
    await s.saw_numbers("the old one is gone", 0, 3)
    s.saw("register again", await new.register())
    await s.saw_numbers("the new one is back", 3, 3)


@scenario()
async def the_old_plugin_is_gone_before_the_new_one_comes(s: Stage) -> None:
    old = await s.ready("a", "b", name="old")
    await old.stop()
    await s.saw_numbers("nobody serves", 0, 2)
    new = await s.plugin("c", name="new")
    s.saw("register", await new.register())
    await s.saw_numbers("another one serves", 1, 1)


@scenario()
async def a_failed_second_registration_hides_the_end_of_the_first(s: Stage) -> None:
    old = await s.ready("a", "b", name="old")
    s.saw("register", await old.register(endpoint="nobody.sock"))
    await s.saw_numbers("the old one serves", 2, 2)
    await old.stop()
    await s.saw_no_numbers("the old one is gone")
    await s.saw_pod(await s.run("pod", 1))
