"""A scheduler above chose the GPU: on a true node, with the three dialects as their guides install them.

The command itself runs, on a simulated driver, with exactly the account of the guide's manifest.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from fairlead.cluster.rbac import Rule
from tests.docs.blocks import ROOT, read_blocks
from tests.node.account import Account
from tests.node.assigner import DIALECTS, NAME, Assigner, Dialect
from tests.node.cluster import Cluster
from tests.node.conftest import Measure
from tests.node.daemon import Fairlead
from tests.node.load import Cards, Load, Refused
from tests.node.rig.places import NODE
from tests.node.rig.steps import until
from tests.node.trouble import Trouble
from tests.nvml import Driver, Gpu, gpus
from tests.nvml.library import compiled_or_skip

UNITS = (16, 24, 32, 48)  # of each card
TOTAL = sum(UNITS)
MIB = 1 << 20
BURST = 15
PODS = 300 if os.environ.get("NODE_TEST_FULL") else 60
SIZES = (1, 2, 3, 4, 5, 6, 8)
ODD = ("assignment-swapped", "assignment-lost", "assignment-wrong")
DOES_NOT_FIT = "units do not fit"
Shape = tuple[tuple[int, ...], int]  # containers, and the init container


class Command(Fairlead):
    """`fairlead doslab` and the like, in place of `fairlead run`. The journal is text."""

    def __init__(self, root: Path, words: tuple[str, ...], env: Mapping[str, str]) -> None:
        super().__init__(root, {})
        self._words = words
        self._env = dict(env)

    def start(self) -> float:
        began = time.time()
        self.run("-m", "fairlead", *self._words, f"--status-socket={self.socket}", env=self._env)
        return began

    def said(self, event: str) -> list[str]:
        lines = [fact["text"] for fact in self.facts("said")]
        return [line for line in lines if line.split(" ")[1:2] == [event]]


def rules(dialect: str) -> list[Rule]:
    """Of the account in the manifest that the guide tells people to apply."""
    page = ROOT / "docs" / "guide" / f"{dialect}.md"
    (block,) = [block for block in read_blocks(page) if block.word == f"{dialect}-daemonset.yaml"]
    (role,) = [made for made in yaml.safe_load_all(block.text) if made["kind"] == "ClusterRole"]
    return [
        Rule(group, resource, tuple(rule["verbs"]))
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    ]


@pytest.fixture(params=DIALECTS, ids=lambda dialect: dialect.name)
def dialect(request: pytest.FixtureRequest) -> Dialect:
    made: Dialect = request.param
    return made


@pytest.fixture
def those(dialect: Dialect) -> tuple[Gpu, ...]:
    sizes = [units * dialect.unit_mib * MIB for units in UNITS]
    return tuple(replace(gpu, memory_total=size) for gpu, size in zip(gpus("T4", len(UNITS)), sizes, strict=True))


@pytest.fixture
def command(cluster: Cluster, dialect: Dialect, those: tuple[Gpu, ...], tmp_path: Path) -> Iterator[Command]:
    compiled_or_skip()
    account = Account(tmp_path, rules(dialect.name))
    with Driver(gpus=those).installed(tmp_path / "driver") as machine:
        env = {**machine.env, "NODE_NAME": NODE, "KUBECONFIG": str(account.file)}
        made = Command(tmp_path, (dialect.name, *dialect.args), env)
        try:
            yield made
        finally:
            cluster.remove_pods()
            made.end()
            account.remove()


def cards(dialect: Dialect, those: tuple[Gpu, ...]) -> Cards:
    """By index. Ids name a card by its index or its UUID, and so do environments."""
    names = {word: str(index) for index, gpu in enumerate(those) for word in (gpu.uuid, str(index))}

    def card_of(slot: str) -> str:
        word = slot.rpartition("-")[0].removesuffix("-_").removesuffix("--").removeprefix("fakeID---")
        return names[word]

    def told(env: Mapping[str, str]) -> tuple[str, int] | None:
        card, units = env.get(dialect.tells_card), env.get(dialect.tells_units)
        return (names[card], int(units) * dialect.told_mib) if card and units else None

    units = {str(index): own for index, own in enumerate(UNITS)}
    mib = {card: own * dialect.unit_mib for card, own in units.items()}
    return Cards(units, mib, dialect.unit_mib, card_of, told)


def shapes(chance: random.Random) -> Iterator[Shape]:
    """Few sizes at a time, so that equal ones meet. Most pods have one container; some two, some begin with another."""
    while True:
        sizes = chance.sample(SIZES, 3)
        for _ in range(BURST):
            one, two = chance.choice(sizes), chance.choice(sizes)
            kind = chance.random()
            yield ((one,), 0) if kind < 0.7 else ((one, two), 0) if kind < 0.85 else ((one,), min(one, two))


class Run:
    """A command with cards, a scheduler above it, and pods that come in bursts."""

    def __init__(self, cluster: Cluster, dialect: Dialect, those: tuple[Gpu, ...], command: Command) -> None:
        self._names = count()
        self._seen = 0
        self.command = command
        self.chance = random.Random(6)  # fixed, so that a failure comes again
        self.made: dict[str, Shape] = {}
        there = cards(dialect, those)
        words = {str(index): gpu.uuid if dialect.by_uuid else str(index) for index, gpu in enumerate(those)}
        self.assigner = Assigner(cluster, dialect, words, there.units, self.chance)
        self.load = Load(cluster, dialect.resource, there, self._agrees)
        self._trouble = Trouble(cluster, command, dialect.resource, TOTAL)

    def burst(self, wanted: list[Shape], *, trouble: bool) -> tuple[list[Shape], list[Refused]]:
        """Assigns pods of these shapes, until all is quiet. Answers those that had no room, and those refused."""
        batch = {f"pod{next(self._names)}": shape for shape in wanted}
        chosen = self.assigner.choose([(name, max(sum(sizes), init)) for name, (sizes, init) in batch.items()])
        for name in chosen:
            self.made[name] = batch[name]
            self.load.make(name, *batch[name], schedulerName=NAME)
        first = dict(list(chosen.items())[: len(chosen) // 2])
        self.assigner.assign(first)
        rest = {name: card for name, card in chosen.items() if name not in first}
        if trouble:
            with self.load.away():
                self._trouble.begin()
                self.assigner.assign(rest)
                self._trouble.wait_over()
        else:
            self.assigner.assign(rest)
        self.load.settle()
        refused = self.load.refused[self._seen :]
        self._seen = len(self.load.refused)
        return [shape for name, shape in batch.items() if name not in chosen], refused

    def astray(self, name: str) -> bool:
        """Whether the daemon says that this pod has another card than it was promised, and that it cannot help it."""
        return any(f"default/{name} has " in line for line in self.command.said("assignment-wrong"))

    def odd(self, names: Collection[str]) -> list[str]:
        """What the daemon had to put right for these pods, or could not. Of others it may speak again later."""
        lines = [line for event in ODD for line in self.command.said(event)]
        whose = re.compile(f'(pod=|reason="?)default/({"|".join(sorted(names))})\\b')
        return [line for line in lines if whose.search(line)] if names else []

    def counts(self) -> dict[str, int]:
        return {event: len(self.command.said(event)) for event in ("assigned", "allocate-refused", *ODD)}

    def _agrees(self, pod: Any, places: set[str]) -> bool:
        return {self.assigner.says(pod)} == places or self.astray(pod["metadata"]["name"])


def test_pods_get_the_card_that_was_chosen_for_them_in_bursts_over_restarts(
    cluster: Cluster, dialect: Dialect, those: tuple[Gpu, ...], command: Command, measure: Measure
):
    """Equal pods are promised different cards, and are bound in another order than the promises were made in.

    What its processes were told, what the kubelet says it holds, and what stands on the pod are one card. In every
    other burst the daemon or the kubelet is killed or ended. Then the kubelet refuses pods; and it comes back to pods
    in an order of its own, so that some get what was promised to others: equal pods are exchanged, and one that cannot
    be helped is refused or told of. Without such trouble none of this happens.
    """
    command.start()
    cluster.wait_offered(dialect.resource, TOTAL)
    cluster.wait_numbers(dialect.resource, TOTAL, TOTAL)
    until(lambda: f"{dialect.resource}={TOTAL}x" in str(cluster.annotations()), "the node says how large a unit is")
    run = Run(cluster, dialect, those, command)
    load = run.load
    wanted = [shape for shape, _ in zip(shapes(run.chance), range(PODS), strict=False)]
    expected = Counter(sizes for sizes, _ in wanted)
    began, unmeant = time.monotonic(), list[Refused]()
    for number in count():
        trouble, before = number % 2 == 1, set(run.made)
        without_room, refused = run.burst(wanted[:BURST], trouble=trouble)
        wanted = [*without_room, *wanted[BURST:], *(run.made[one.name] for one in refused)]
        unmeant += [one for one in refused if not (trouble and (load.is_away(one) or DOES_NOT_FIT in one.message))]
        if not trouble:
            assert run.odd(run.made.keys() - before) == []
            until(lambda: not run.assigner.is_locked(), "the node's lock is taken away")
        if not wanted:
            break
        astray = {name for name in load.ready if run.astray(name)}
        others = sorted(load.ready - astray)
        load.release({*astray, *run.chance.sample(others, round(len(others) * 0.7))})
        load.settle()
    measure(f"{PODS} pods assigned, {dialect.name}", time.monotonic() - began)
    print(f"{len(load.refused)} refused; {run.counts()}")
    assert load.ran == expected
    assert unmeant == []
    load.release(load.sizes)
    load.settle()
    assert cluster.holdings(dialect.resource) == {}
