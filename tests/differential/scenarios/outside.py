"""Where a kubelet depends on the runtime, which the stand-in does not have."""

from __future__ import annotations

from fairlead.standin._gen import deviceplugin_v1beta1_pb2 as dp
from tests.differential.stage import Stage, scenario
from tests.differential.world import CDI_KIND

Answer = dp.ContainerAllocateResponse


@scenario()
async def a_device_file_that_does_not_exist(s: Stage) -> None:
    plugin = await s.ready("a")
    node = dp.DeviceSpec(container_path="/dev/diff0", host_path="/dev/diff-nothing", permissions="rw")
    plugin.answer = lambda _: [Answer(devices=[node])]
    await s.saw_pod(await s.run("pod", 1))
    await s.saw_listed("waiting")


@scenario()
async def a_cdi_device_that_nobody_knows(s: Stage) -> None:
    plugin = await s.ready("a")
    plugin.answer = lambda _: [Answer(cdi_devices=[dp.CDIDevice(name=f"{CDI_KIND}=nothing")])]
    await s.saw_pod(await s.run("pod", 1))
    await s.saw_listed("waiting")


@scenario()
async def an_image_that_cannot_be_had(s: Stage) -> None:
    await s.ready("a")
    await s.saw_pod(await s.run("pod", 1, image=False))
