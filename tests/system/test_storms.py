"""A controller makes a pod anew each time it is refused: that is told once, slowed where asked, and over once."""

from __future__ import annotations

from pathlib import Path

from tests.system.rig import GPU, SIM, Node, running

from fairlead.testing import Kubelet

# The kubelet has no list with the fault yet when it asks: the daemon refuses, as in the moment between the two.
RULE = SIM.replace("- resource: nvidia.com/gpu", "- {resource: nvidia.com/gpu, perContainer: 2}")


async def controller(node: Node, times: int, size: int = 3) -> None:
    for _ in range(times):
        pod = await node.kubelet.run_pod(f"again-{len(node.kubelet.pods)}", {"main": {GPU: size}})
        assert pod.phase == "Failed"


def told(node: Node, kind: str) -> int:
    return sum(fact.kind == kind for fact in node.facts)


async def test_a_storm_is_told_once_and_is_over_when_it_is_quiet(kubelet: Kubelet, kubelet_root: Path) -> None:
    async with running(kubelet, kubelet_root, f"{RULE}\nstorm: {{within: 1s}}\n") as node:
        await node.ready()
        await controller(node, 4)
        assert told(node, "admission-storm") == 0
        await controller(node, 6)
        await node.until_fact("admission-storm")
        fact = node.find("admission-storm")
        assert fact is not None
        assert fact.keys["refusals"] == 5
        assert "one container may have 2 of it, not 3" in fact.keys["reason"]
        (storm,) = node.status().storms
        assert storm.startswith("10 requests for 3 of nvidia.com/gpu were refused: ")
        assert node.status().healthy  # it is a fault of pods, and not of the node
        node.write(f"{SIM}\nstorm: {{within: 1s}}\n")  # 3 are allowed now
        await node.reload()
        pod = await _granted(node)
        assert pod == "Running"
        await node.until_fact("admission-storm-over")
        assert (told(node, "admission-storm"), told(node, "admission-storm-over")) == (1, 1)
        assert not node.status().storms


async def _granted(node: Node) -> str:
    """The reload is settled a moment after it was applied."""
    phase = ""
    for number in range(200):
        phase = (await node.kubelet.run_pod(f"later-{number}", {"main": {GPU: 3}})).phase
        if phase != "Failed":
            break
    return phase


async def test_a_storm_is_slowed_where_that_is_wanted(kubelet: Kubelet, kubelet_root: Path) -> None:
    async with running(kubelet, kubelet_root, f"{RULE}\nstorm: {{refusals: 2, delay: 40ms}}\n") as node:
        await node.ready()
        slept: list[float] = []
        true_sleep = node.daemon.storms.sleep

        async def sleep(seconds: float) -> None:
            slept.append(seconds)
            await true_sleep(seconds)

        node.daemon.storms.sleep = sleep  # type: ignore[method-assign]  # to see it
        await controller(node, 4)
        assert slept == [0.04] * 3
        pod = await node.kubelet.run_pod("other", {"main": {GPU: 1}})
        assert pod.phase == "Running"
        assert len(slept) == 3


async def test_it_can_be_switched_off(kubelet: Kubelet, kubelet_root: Path) -> None:
    async with running(kubelet, kubelet_root, f"{RULE}\nstorm: {{refusals: 0}}\n") as node:
        await node.ready()
        await controller(node, 8)
        assert told(node, "admission-storm") == 0
        assert not node.status().storms
