"""Nodes of every size, with each dialect's own settings: the list fits, a unit that had to grow is told, and a pod gets
what it was promised."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from tests.apiserver.server import api_server
from tests.nvml import Driver, gpus
from tests.system.desk import DOSLAB, GPUSHARE, NODE, VOLCANO, Desk, Dialect, configure
from tests.system.process import program
from tests.system.rig import running
from tests.system.supply import put_node, write_kubeconfig

from fairlead.cli import show
from fairlead.policy.offering.budget import KUBELET_MESSAGE_MAX_BYTES
from fairlead.policy.offering.memory import MIB, name_unit
from fairlead.policy.offering.stall import PAIR_S, most_slots
from fairlead.testing import Kubelet

ONE, EIGHT, LARGE = (80,), (80,) * 8, (141,) * 8
UNEQUAL = (80, 24, 40)
ASKED_MIB = 10 * 1024


class Size(NamedTuple):
    dialect: Dialect
    cards_gib: tuple[int, ...]
    unit_mib: int
    usual_mib: int

    def __str__(self) -> str:
        return f"{self.dialect.name}-{'+'.join(map(str, self.cards_gib))}"


SIZES = [
    Size(DOSLAB, ONE, 1, 1),
    Size(DOSLAB, EIGHT, 512, 1),
    Size(DOSLAB, LARGE, 1024, 1),
    Size(DOSLAB, UNEQUAL, 128, 1),
    Size(GPUSHARE, ONE, 1024, 1024),
    Size(GPUSHARE, EIGHT, 1024, 1024),
    Size(GPUSHARE, LARGE, 1024, 1024),
    Size(GPUSHARE, UNEQUAL, 1024, 1024),
    Size(VOLCANO, ONE, 1, 1),
    Size(VOLCANO, EIGHT, 512, 1),
    Size(VOLCANO, LARGE, 1024, 1),
    Size(VOLCANO, UNEQUAL, 1, 1),
]
# Where a container finds how much it has, and how much its card has; in units, or in MiB.
TOLD = {
    "doslab": ("DOSLAB_IO_GPU_RESOURCE_USED_BY_CONTAINER", "DOSLAB_IO_GPU_RESOURCE_TOTAL"),
    "gpushare": ("ALIYUN_COM_GPU_MEM_CONTAINER", "ALIYUN_COM_GPU_MEM_DEV"),
    "volcano": ("VOLCANO_GPU_ALLOCATED", "VOLCANO_GPU_MEMORY_TOTAL"),
}
THEIR_IDS = {"doslab": "fakeID---{index}---{n}", "gpushare": "{id}-_-{n}", "volcano": "{index}-{n}"}


@asynccontextmanager
async def sized(size: Size, kubelet: Kubelet, root: Path) -> AsyncIterator[Desk]:
    cards = [{"count": 1, "vendor": "nvidia", "model": "GPU", "memory": f"{gib}GiB"} for gib in size.cards_gib]
    async with api_server() as server:
        put_node(server)
        config = configure(size.dialect, kubelet, root, server, yaml.safe_dump({"devices": cards}))
        config["rules"][0]["memory"] = size.dialect.mean()["rules"][0]["memory"]  # no unit but its own
        async with running(kubelet, root, yaml.safe_dump(config)) as node:
            await node.ready(size.dialect.resource, sum(size.cards_gib) * 1024 // size.unit_mib)
            yield Desk(size.dialect, node, server)


@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_a_node_of_any_size_is_offered_in_a_unit_that_fits(size: Size, kubelet: Kubelet, kubelet_root: Path):
    async with sized(size, kubelet, kubelet_root) as at:
        unit = at.node.daemon.supervisor.endpoints[at.offered.name]
        assert len(unit.device_list.frame) <= KUBELET_MESSAGE_MAX_BYTES
        check_ids_are_theirs(size, at)
        check_growth_is_told(size, at)
        check_price_is_told(size, at)
        await check_a_pod_gets_its_card(size, at)


def check_ids_are_theirs(size: Size, at: Desk) -> None:
    """And each card has its own number of them."""
    template = THEIR_IDS[size.dialect.name]
    wanted = {
        template.format(id=at.cards[index], index=index, n=n)
        for index, gib in enumerate(size.cards_gib)
        for n in range(gib * 1024 // size.unit_mib)
    }
    assert at.node.kubelet.devices(size.dialect.resource).keys() == wanted


def check_growth_is_told(size: Size, at: Desk) -> None:
    told = [fact.keys for fact in at.node.facts if fact.kind == "unit-grown"]
    shown = show.status(at.node.status())
    if size.unit_mib == size.usual_mib:
        assert (told, "a unit is" in shown) == ([], False)
        return
    (keys,) = told
    assert (keys["from_mib"], keys["to_mib"]) == (size.usual_mib, size.unit_mib)
    why = str(keys["reason"])
    slots = sum(size.cards_gib) * 1024 // size.usual_mib
    unit, usual = name_unit(size.unit_mib * MIB), name_unit(size.usual_mib * MIB)
    assert why.startswith(f"a unit is {unit}, not {usual}: {slots:,} slots of {usual} make a list of ")
    assert "over the kubelet's 4,194,304, and " in why
    assert why.endswith(f" s. An amount of 1 means {unit} here")
    assert f"{size.dialect.resource}: {why}" in shown


def check_price_is_told(size: Size, at: Desk) -> None:
    """Their unit is the contract, whatever it costs the kubelet. What it costs is said, with the cure.

    One that had to grow is no contract: it grows until it costs little.
    """
    told = [fact.keys for fact in at.node.facts if fact.kind == "list-costly"]
    shown = show.status(at.node.status())
    slots = sum(size.cards_gib) * 1024 // size.unit_mib
    assert size.unit_mib == size.usual_mib or slots <= most_slots()
    assert ("busy with the list" in shown) == (slots > most_slots())
    if slots <= most_slots():
        assert told == []
        return
    (keys,) = told
    assert (keys["slots"], keys["seconds"]) == (slots, round(slots**2 * PAIR_S, 1))
    assert f"{size.dialect.resource}: {keys['reason']}" in shown
    assert "--max-stall" in str(keys["reason"])


async def check_a_pod_gets_its_card(size: Size, at: Desk) -> None:
    """The last card: its units are the last in the list."""
    dialect, card = size.dialect, len(size.cards_gib) - 1
    pod = await at.bind("p", {"main": ASKED_MIB // size.unit_mib}, card)
    assert pod.phase == "Running", pod.message
    assert (at.told(pod), at.lies_on(pod)) == (card, {card})
    env = pod.containers["main"].env
    mine, all_of_it = (int(env[name]) for name in TOLD[dialect.name])
    whole = sum(size.cards_gib) if dialect is DOSLAB else size.cards_gib[card]  # doslab tells the node's
    scale = 1 if dialect is VOLCANO else size.unit_mib  # volcano tells MiB
    assert (mine * scale, all_of_it * scale) == (ASKED_MIB, whole * 1024)
    await at.marked("p")


@pytest.mark.parametrize(
    ("dialect", "args", "unit", "cure"),
    [
        (DOSLAB, [], "8MiB", "--unit-too-small=grow"),
        (GPUSHARE, ["--memory-unit=MiB"], "16MiB", "--memory-unit=GiB"),
        (VOLCANO, [], "4MiB", "--gpu-memory-factor"),
    ],
    ids=["doslab", "gpushare", "volcano"],
)
async def test_a_unit_that_is_too_small_is_refused_with_one_that_fits(
    dialect: Dialect, args: Sequence[str], unit: str, cure: str, kubelet: Kubelet, tmp_path: Path
):
    with Driver(gpus=gpus("H100", 8, memory_total=80 << 30)).installed(tmp_path / "machine") as machine:
        async with api_server() as server:
            put_node(server)
            write_kubeconfig(tmp_path / "kubeconfig", server.url)
            env = {
                **machine.env,
                "KUBECONFIG": str(tmp_path / "kubeconfig"),
                "NODE_NAME": NODE,
                "FAIRLEAD_PLUGIN_DIR": str(kubelet.plugin_dir),
                "FAIRLEAD_POD_RESOURCES": str(kubelet.podresources_socket),
                "FAIRLEAD_STATUS_SOCKET": str(tmp_path / "s"),
            }
            words = ("-m", "fairlead", dialect.name, *args, "--unit-too-small=refuse")
            async with program(*words, env=env) as running:
                assert await running.ends() == 1
    assert f"{dialect.resource} is not offered: 655,360 slots of 1MiB make a list of " in running.lines[-2]
    assert f"Set memory.unit to {unit} or more" in running.lines[-2]
    assert cure in running.lines[-1]
    assert not any("Traceback" in line for line in running.lines)
    assert dialect.resource not in {call.resource for call in kubelet.calls}
