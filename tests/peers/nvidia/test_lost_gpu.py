"""A GPU falls off the bus. Seven others work, in use or free: which pods does the kubelet still admit?

NVIDIA's plugin asks every GPU of the node for its links whenever the kubelet asks what it prefers, and one that is lost
makes that an error; the kubelet refuses the pod for it. Or it cannot tell which GPU is lost, and gives up all eight.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from fairlead.testing import Kubelet, Pod
from tests.nvml import Driver, Node, gpus
from tests.peers.nvidia.place import Place, needs_root, placed
from tests.peers.nvidia.programs import Program, nvidia_plugin, our_plugin

GPU = "nvidia.com/gpu"
LOST = 3
GPU_IS_LOST = 15
PATIENCE_S = 30.0

pytestmark = [
    pytest.mark.go,
    pytest.mark.timeout(600),  # the first of them may have to build the plugin
    pytest.mark.skipif(needs_root() is not None, reason=str(needs_root())),
]


async def told_by_an_event(kubelet: Kubelet, machine: Node) -> None:
    """XID 79 comes and is read in time; from then on every call on that GPU fails."""
    machine.xid(LOST, 79)
    await known(kubelet, machine)
    machine.fault("*", GPU_IS_LOST, gpu=LOST)


async def told_too_late(kubelet: Kubelet, machine: Node) -> None:
    """XID 79 comes, and whoever asks which GPU it is about gets no answer any more."""
    machine.fault("*", GPU_IS_LOST, gpu=LOST)
    machine.xid(LOST, 79)
    await known(kubelet, machine)


async def told_by_the_wait(kubelet: Kubelet, machine: Node) -> None:
    """No event comes: the wait for events fails, and so does every call on that GPU."""
    machine.lose(LOST)
    await known(kubelet, machine)


Falls = Callable[[Kubelet, Node], Awaitable[None]]


async def known(kubelet: Kubelet, machine: Node) -> None:
    lost = machine.driver.gpus[LOST].uuid
    await kubelet.wait_for(lambda: kubelet.devices(GPU)[lost] == "Unhealthy", PATIENCE_S)


@asynccontextmanager
async def serving(program: Program, kubelet: Kubelet) -> AsyncIterator[Place]:
    inside = {**program.files, "/var/lib/kubelet/pod-resources": kubelet.podresources_socket.parent}
    with placed(Driver(gpus=gpus("H100", 8)), inside) as place, tempfile.TemporaryFile() as said:
        command = place.command(program.words, plugins=str(kubelet.plugin_dir))
        process = await asyncio.create_subprocess_exec(*command, env=program.env, stdout=said, stderr=said)
        try:
            await kubelet.wait_for_allocatable(GPU, 8, PATIENCE_S)
            yield place
        finally:
            process.kill()
            await process.wait()
            said.seek(0)
            print(said.read().decode(errors="replace"))


async def ask(kubelet: Kubelet, *sizes: int) -> list[Pod]:
    """A pod of each size, one after the other; all of them fit beside what runs, on GPUs that work."""
    return [await kubelet.run_pod(f"asks-{size}", {"main": {GPU: size}}) for size in sizes]


async def take_the_others(kubelet: Kubelet, machine: Node) -> list[Pod]:
    """A pod on each GPU but the one that will fall."""
    pods = [await kubelet.run_pod(f"works-{number}", {"main": {GPU: 1}}) for number in range(8)]
    (idle,) = [pod for pod in pods if holds(pod) == {machine.driver.gpus[LOST].uuid}]
    await kubelet.delete_pod(idle)
    return [pod for pod in pods if pod is not idle]


def holds(*pods: Pod) -> set[str]:
    return {one for pod in pods for one in pod.containers["main"].devices[GPU]}


@pytest.mark.parametrize("falls", [told_by_an_event, told_too_late, told_by_the_wait])
async def test_with_ours_every_pod_that_fits_is_admitted(kubelet: Kubelet, falls: Falls) -> None:
    async with serving(our_plugin(), kubelet) as place:
        working = await take_the_others(kubelet, place.node)
        await falls(kubelet, place.node)
        await kubelet.wait_for_allocatable(GPU, 7, PATIENCE_S)
        back = holds(*working[:3])
        for pod in working[:3]:
            await kubelet.delete_pod(pod)
        pods = await ask(kubelet, 1, 2)
        assert [(pod.phase, pod.message) for pod in pods] == [("Running", "")] * 2
        assert holds(*pods) == back
        assert {pod.phase for pod in working[3:]} == {"Running"}
        for pod in (*pods, *working[3:]):
            await kubelet.delete_pod(pod)
        (large,) = await ask(kubelet, 7)
        assert (large.phase, large.message) == ("Running", "")


async def test_with_nvidias_the_kubelet_refuses_every_pod(kubelet: Kubelet) -> None:
    async with serving(await asyncio.to_thread(nvidia_plugin), kubelet) as place:
        working = await take_the_others(kubelet, place.node)
        await told_by_an_event(kubelet, place.node)
        assert kubelet.node().allocatable[GPU] == 7, "it says that seven can be had"
        for pod in working[:6]:
            await kubelet.delete_pod(pod)
        for pod in await ask(kubelet, 1, 2, 3):
            assert (pod.phase, pod.reason) == ("Failed", "UnexpectedAdmissionError")
            assert "GPU is lost" in pod.message


@pytest.mark.parametrize("falls", [told_too_late, told_by_the_wait])
async def test_with_nvidias_all_eight_are_gone(kubelet: Kubelet, falls: Falls) -> None:
    async with serving(await asyncio.to_thread(nvidia_plugin), kubelet) as place:
        await falls(kubelet, place.node)
        await kubelet.wait_for_allocatable(GPU, 0, PATIENCE_S)
        (pod,) = await ask(kubelet, 1)
        assert pod.phase == "Failed"
