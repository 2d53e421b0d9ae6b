"""Memory as a resource on a node: no GPU is over-committed, ids and environment agree, restarts change nothing."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.system.rig import GPU, Node, running

from fairlead.model.names import SlotId
from fairlead.policy.offering.memory import MIB, read_id
from fairlead.testing import Kubelet, Pod

MEMORY = "example.com/gpu-memory"
ENV = "EXAMPLE_COM_GPU_MEMORY"
# Two cards of 16 GiB, one of 24 GiB and one of 10 GiB, in units of 1 GiB.
FLEET = """
description: four cards
devices:
  - {count: 2, vendor: nvidia, model: T4, memory: 16GiB}
  - {count: 1, vendor: nvidia, model: L4, memory: 24GiB}
  - {count: 1, vendor: nvidia, model: P4, memory: 10GiB}
"""
RULE = "{resource: example.com/gpu-memory, memory: {unit: 1GiB}}"
SIZES = [16, 16, 24, 10]


def config(root: Path, rule: str = RULE) -> str:
    fleet = root / "fleet.yaml"
    fleet.write_text(FLEET)
    return f"backends: [{{kind: sim, fleet: {fleet}}}]\nrules: [{rule}]\n"


def where(node: Node, pod: Pod) -> int:
    """The number of the device that a pod's memory lies on. Its ids and its environment must tell the same."""
    container = pod.containers["main"]
    units = container.devices[MEMORY]
    device = container.env[f"FAIRLEAD_MEMORY_DEVICES_{ENV}"]
    parts = [part for unit in units if (part := read_id(SlotId(unit)))]
    assert {part.short for part in parts} == {device.split("-")[1]}
    number = node.ids().index(device)
    assert container.env[f"FAIRLEAD_MEMORY_MIB_{ENV}"] == str(sum(part.unit_bytes for part in parts) // MIB)
    assert container.env[f"FAIRLEAD_MEMORY_PERCENT_{ENV}"] == str(len(units) * 100 // SIZES[number])
    return number


async def burst(node: Node, name: str, size: int, count: int) -> list[Pod]:
    return [await node.kubelet.run_pod(f"{name}{number}", {"main": {MEMORY: size}}) for number in range(count)]


async def test_a_burst_of_equal_pods_fills_every_card_and_over_commits_none(kubelet: Kubelet, kubelet_root: Path):
    async with running(kubelet, kubelet_root, config(kubelet_root)) as node:
        await node.ready(MEMORY, sum(SIZES))
        pods = await burst(node, "first", 5, 4)
        await node.stop()
        node.start()
        await node.ready(MEMORY, sum(SIZES))
        pods += await burst(node, "second", 5, 4)
        await node.kubelet.restart()
        await node.kubelet.wait_for_allocatable(MEMORY, sum(SIZES))
        pods += await burst(node, "third", 5, 4)
        assert [pod.phase for pod in pods] == ["Running"] * 12  # 3 + 3 + 4 + 2: no place is lost
        assert Counter(where(node, pod) for pod in pods) == {0: 3, 1: 3, 2: 4, 3: 2}
        held = [unit for pod in pods for unit in pod.containers["main"].devices[MEMORY]]
        assert len(held) == len(set(held)) == 60

        late = await node.kubelet.run_pod("late", {"main": {MEMORY: 5}})  # 6 are free, but in pieces of 1, 1 and 4
        assert late.phase == "Failed"
        assert "the units lie on several devices" in late.message
        for pod in pods:
            await node.kubelet.delete_pod(pod)
        whole = await node.kubelet.run_pod("whole", {"main": {MEMORY: 24}})
        assert where(node, whole) == 2
        assert whole.containers["main"].env[f"FAIRLEAD_MEMORY_PERCENT_{ENV}"] == "100"


async def test_pods_that_are_spread_go_to_the_least_used_card(kubelet: Kubelet, kubelet_root: Path):
    rule = RULE.replace("memory:", "placement: spread, memory:")
    async with running(kubelet, kubelet_root, config(kubelet_root, rule)) as node:
        await node.ready(MEMORY, sum(SIZES))
        pods = await burst(node, "pod", 4, 4)
        assert Counter(where(node, pod) for pod in pods) == {0: 1, 1: 1, 2: 1, 3: 1}


async def test_memory_may_straddle_cards_where_that_is_allowed(kubelet: Kubelet, kubelet_root: Path):
    rule = (
        "{resource: example.com/gpu-memory, memory: {unit: 1GiB, straddle: true}, "
        'env: {"LIMIT_{n}": "{memoryMib}m", GPUS: "{ids}"}}'
    )
    async with running(kubelet, kubelet_root, config(kubelet_root, rule)) as node:
        await node.ready(MEMORY, sum(SIZES))
        pod = await node.kubelet.run_pod("large", {"main": {MEMORY: 40}})
        env = pod.containers["main"].env
        assert pod.phase == "Running"
        assert sorted((env["LIMIT_0"], env["LIMIT_1"])) == ["16384m", "24576m"]
        assert "LIMIT_2" not in env
        assert len(env["GPUS"].split(",")) == 2


async def test_a_failed_card_takes_all_its_memory_with_it(kubelet: Kubelet, kubelet_root: Path):
    async with running(kubelet, kubelet_root, config(kubelet_root)) as node:
        await node.ready(MEMORY, sum(SIZES))
        await node.steer(do="fail", device="2", xid=79)
        await node.kubelet.wait_for_allocatable(MEMORY, sum(SIZES) - 24)
        pod = await node.kubelet.run_pod("pod", {"main": {MEMORY: 12}})
        assert where(node, pod) in {0, 1}


async def test_every_container_of_a_pod_gets_its_own_share_and_an_init_container_lends_its_own(
    kubelet: Kubelet, kubelet_root: Path
):
    async with running(kubelet, kubelet_root, config(kubelet_root)) as node:
        await node.ready(MEMORY, sum(SIZES))
        lent = await node.kubelet.run_pod("lent", {"main": {MEMORY: 9}}, init={"warm": {MEMORY: 3}})
        assert lent.phase == "Running", lent.message
        assert where(node, lent) == 3
        assert set(lent.containers["warm"].devices[MEMORY]) <= set(lent.containers["main"].devices[MEMORY])
        pod = await node.kubelet.run_pod("pair", {"one": {MEMORY: 6}, "two": {MEMORY: 7}})
        told = {name: part.env[f"FAIRLEAD_MEMORY_MIB_{ENV}"] for name, part in pod.containers.items()}
        assert told == {"one": "6144", "two": "7168"}


async def test_a_card_is_offered_whole_or_by_its_memory(kubelet: Kubelet, kubelet_root: Path):
    rule = RULE.replace("memory:", f"also: [{{resource: {GPU}}}], memory:")
    async with running(kubelet, kubelet_root, config(kubelet_root, rule)) as node:
        await node.ready(MEMORY, sum(SIZES))
        await node.ready(GPU, 4)
        pod = await node.kubelet.run_pod("share", {"main": {MEMORY: 1}})
        await node.kubelet.wait_for_allocatable(GPU, 3)
        whole = await node.kubelet.run_pod("whole", {"main": {GPU: 3}})
        assert pod.containers["main"].env[f"FAIRLEAD_MEMORY_DEVICES_{ENV}"] not in whole.containers["main"].devices[GPU]
        await node.kubelet.wait_for_allocatable(MEMORY, 10)


async def test_a_real_node_of_large_cards_works_out_of_the_box(kubelet: Kubelet, kubelet_root: Path):
    (kubelet_root / "h200.yaml").write_text("description: x\ndevices: [{count: 8, vendor: nvidia, memory: 141GiB}]\n")
    text = (
        f"backends: [{{kind: sim, fleet: {kubelet_root}/h200.yaml}}]\nrules: [{{resource: {MEMORY}, memory: {{}}}}]\n"
    )
    async with running(kubelet, kubelet_root, text) as node:
        await node.ready(MEMORY, 8 * 141)
        pod = await node.kubelet.run_pod("one", {"main": {MEMORY: 16}})
        assert pod.containers["main"].env[f"FAIRLEAD_MEMORY_MIB_{ENV}"] == "16384"
        assert node.find("resource-added", resource=MEMORY, unit_mib=1024)
