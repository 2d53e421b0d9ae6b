"""The kubelet ends and starts again, with pods running, and with or without its plugins."""

from __future__ import annotations

from tests.differential.stage import Stage, scenario


@scenario(alone=True, alike=("d1", "d2"))
async def pods_keep_their_devices(s: Stage) -> None:
    plugin = await s.ready("d1", "d2", pre_start=True)
    pod = await s.run("pod", 1)
    await s.world.stop_kubelet()
    await s.world.start_kubelet()
    await s.saw_numbers("the plugin is not back", 0, 0)
    await s.back(plugin)
    await s.saw_numbers("the plugin is back", 2, 2)
    await s.saw_pod(pod)
    await s.saw_listed("the plugin is back")
    await s.world.crash(pod, "main")
    await s.saw_pod(pod, "after a crash")
    await s.saw_pod(await s.run("next", 1))
    s.saw_checkpoint("the next one runs")


@scenario(alone=True)
async def the_plugin_does_not_come_back(s: Stage) -> None:
    await s.ready("a")
    pod = await s.run("pod", 1)
    await s.world.stop_kubelet()
    await s.world.start_kubelet()
    await s.saw_numbers("restarted", 0, 0)
    await s.saw_pod(pod)
    await s.saw_listed("restarted")
    await s.saw_offered("restarted")
    s.saw("health", await s.world.health(pod))
    await s.saw_pod(await s.run("next", 1))
    await s.world.crash(pod, "main")
    await s.saw_pod(pod, "after a crash")
    s.saw("received", await s.world.received(pod, "main"))


@scenario(alone=True)
async def the_plugin_comes_back_with_other_devices(s: Stage) -> None:
    plugin = await s.ready("a")
    pod = await s.run("pod", 1)
    await s.world.stop_kubelet()
    await s.world.start_kubelet()
    await s.back(plugin, "x")
    await s.saw_numbers("registered", 1, 1)
    await s.saw_pod(pod)
    await s.saw_listed("registered")
    await s.world.crash(pod, "main")
    await s.saw_pod(pod, "after a crash")
    await s.saw_pod(await s.run("next", 1))
    await s.saw_listed("the next one runs")


@scenario(alone=True)
async def containers_that_no_longer_run_need_their_plugin(s: Stage) -> None:
    await s.ready("a")
    pod = await s.run("pod", 1)
    await s.world.stop_kubelet()
    await s.world.start_kubelet(reboot=True)
    await s.wait_for(pod, "Failed")
    await s.saw_pod(pod)
    await s.saw_listed("failed")
    await s.saw_numbers("failed", 0, 0)


@scenario(alone=True)
async def a_pod_deleted_while_the_kubelet_was_away(s: Stage) -> None:
    plugin = await s.ready("a")
    pod = await s.run("pod", 1)
    finished = await s.run("finished", {}, once=True)
    await s.world.finish(finished)
    await s.world.stop_kubelet()
    await s.world.forget(pod)
    await s.world.start_kubelet()
    await s.back(plugin)
    await s.saw_numbers("registered", 1, 1)
    await s.saw_listed("registered")
    await s.saw_pod(finished)
    await s.saw_pod(await s.run("next", 1))


@scenario(alone=True)
async def files_in_the_directory(s: Stage) -> None:
    plugin = await s.ready("a")
    top = s.world.plugin_dir
    below = await s.plugin("b", name="below", resource=s.other)
    await below.serve("diff-sub")
    (top / "diff-file").write_text("x")
    (top / "diff-link-to-socket").symlink_to(f"diff-sub/{below.path.name}")
    (top / "diff-dangling").symlink_to("nowhere")
    (top / "diff-link-to-file").symlink_to("diff-file")
    names = {
        "a live socket": plugin.path,
        "a socket below": below.path,
        "a file": top / "diff-file",
        "a link to a socket below": top / "diff-link-to-socket",
        "a dangling link": top / "diff-dangling",
        "a link to a file": top / "diff-link-to-file",
        "the checkpoint": top / "kubelet_internal_checkpoint",
    }
    await s.world.stop_kubelet()
    await s.world.start_kubelet()
    s.saw("still there", {name: path.is_symlink() or path.exists() for name, path in names.items()})
    for path in top.glob("diff-*"):
        if not path.is_dir() or path.is_symlink():
            path.unlink()


@scenario(alone=True)
async def a_damaged_checkpoint_is_forgotten(s: Stage) -> None:
    plugin = await s.ready("a")
    pod = await s.run("pod", 1)
    await s.saw_numbers("before", 1, 1)
    await s.world.stop_kubelet()
    file = s.world.plugin_dir / "kubelet_internal_checkpoint"
    file.write_text(file.read_text().replace('"Checksum":', '"Checksum":1'))
    await s.world.start_kubelet()
    await s.saw_no_numbers("restarted")
    await s.saw_pod(pod)
    await s.saw_listed("restarted")
    await s.back(plugin)
    await s.saw_numbers("registered", 1, 1)
    await s.saw_pod(await s.run("next", 1))
    await s.saw_listed("the next one runs")


@scenario(alone=True)
async def a_pod_that_waits_for_its_image_needs_its_plugin(s: Stage) -> None:
    await s.ready("a")
    pod = await s.run("pod", 1, image=False)
    await s.saw_listed("before")
    await s.world.stop_kubelet()
    await s.world.start_kubelet()
    await s.wait_for(pod, "Failed")
    await s.saw_pod(pod)


@scenario(alone=True)
async def a_pod_whose_init_container_had_a_device(s: Stage) -> None:
    plugin = await s.ready("a", "b", preferred=True)
    plugin.prefer = lambda asked: [sorted(asked.available_deviceIDs)[: asked.allocation_size]]
    pod = await s.run("pod", 1, init={"first": {s.resource: 1}})
    await s.world.stop_kubelet()
    await s.world.start_kubelet()
    # The init container does not run any more, so the pod needs its plugin, which is not back: it is ended. Whether
    # its phase tells of the refusal or of how its containers ended is a matter of luck with a true kubelet.
    await s.wait_for(pod, "Succeeded", "Failed")
    await s.saw_listed("ended")
    await s.back(plugin)
    await s.saw_numbers("back", 2, 2)
    await s.saw_pod(await s.run("next", 1))


@scenario(alone=True)
async def a_pod_with_a_sidecar_keeps_its_devices(s: Stage) -> None:
    plugin = await s.ready("a", "b", "c", preferred=True)
    plugin.prefer = lambda asked: [sorted(asked.available_deviceIDs)[: asked.allocation_size]]
    pod = await s.run("pod", 1, sidecars={"beside": {s.resource: 1}})
    await s.world.stop_kubelet()
    await s.world.start_kubelet()
    await s.saw_pod(pod)
    await s.back(plugin)
    await s.saw_numbers("back", 3, 3)
    await s.saw_pod(pod, "back")
    await s.saw_listed("back")
    await s.saw_pod(await s.run("next", 1))
