"""Runs of a daemon with scheduler-chosen devices on the node: their shapes, rules and commands."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Collection, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import yaml

from fairlead.cluster.rbac import Rule
from tests.docs.blocks import ROOT, read_blocks
from tests.node.assigner import NAME, Assigner, Dialect
from tests.node.cluster import Cluster
from tests.node.daemon import Fairlead
from tests.node.load import Cards, Load, Refused
from tests.node.trouble import Trouble
from tests.nvml import Gpu

UNITS = (16, 24, 32, 48)  # of each card
TOTAL = sum(UNITS)
MIB = 1 << 20
ODD = ("assignment-rewritten", "assignment-lost", "assignment-wrong")
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


def cards(dialect: Dialect, those: tuple[Gpu, ...]) -> Cards:
    """By index. Ids name a card by its index or its UUID, and so do environments."""
    names = {word: str(index) for index, gpu in enumerate(those) for word in (gpu.uuid, str(index))}

    def card_of(slot: str) -> str:
        word = slot.rpartition("-")[0].removesuffix("-_").removesuffix("--").removeprefix("fakeID---")
        return names[word]

    def told(env: Mapping[str, str]) -> tuple[str, int] | None:
        card, units = env.get(dialect.tells_card), env.get(dialect.tells_units)
        return (names[card], int(units) * dialect.told_mib) if card and units else None

    units = {str(index): gpu.memory_total // MIB // dialect.unit_mib for index, gpu in enumerate(those)}
    mib = {card: own * dialect.unit_mib for card, own in units.items()}
    return Cards(units, mib, dialect.unit_mib, card_of, told)


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
            self.load.loose.update(chosen)
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
