"""Memory of GPUs from end to end: the true kube-scheduler asks our extender, and the true kubelet asks our daemons.

gpushare's pods and pods of our own resource come at once, through one extender. Nothing plays a part by hand.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from itertools import count, cycle
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.cluster.rbac import FEATURES
from fairlead.policy.pods.contract import ACTUAL
from tests.node.account import Account
from tests.node.assign_runs import MIB, Command, Shape, cards, rules
from tests.node.assigner import DIALECTS, Dialect
from tests.node.cluster import Cluster
from tests.node.conftest import LIMIT_S, Measure
from tests.node.daemon import Fairlead
from tests.node.load import AWAY, Cards, Refused
from tests.node.rig.node import start_apiserver, start_kubelet, stop_apiserver, stop_kubelet
from tests.node.rig.places import NODE
from tests.node.rig.steps import NodeFailedError, until
from tests.node.scheduling import (
    GIB,
    NAME,
    Booked,
    Scheduling,
    SteadyLoad,
    kill,
    killed,
    native_cards,
    native_config,
    native_dialect,
)
from tests.node.trouble import wait_back
from tests.nvml import Driver, gpus
from tests.nvml.library import compiled_or_skip

Make = Callable[[dict[str, Any]], Fairlead]
PODS = 150  # of each dialect
BURST = 25
DOES_NOT_FIT = "units do not fit"
BOOKED_S = 10.0
GPU_GIB = 30  # of each: gpushare divides what a node has by its GPUs
CARDS_GIB = (16, 24, 32, 48)
SIZES = (1, 1, 2, 2, 3, 4, 5, 6, 8, 12)
(GPUSHARE,) = [dialect for dialect in DIALECTS if dialect.name == "gpushare"]


class Sharing:
    """One dialect: its daemon, and its pods."""

    def __init__(self, cluster: Cluster, dialect: Dialect, there: Cards, daemon: Fairlead) -> None:
        self.cluster, self.dialect, self.daemon = cluster, dialect, daemon
        self.load = SteadyLoad(cluster, dialect.resource, there, self._agrees, by_card=True)
        self.total = there.total
        self.wanted: list[Shape] = []
        self._made: dict[str, Shape] = {}
        self._names = count()
        self._seen = 0
        self.strays: set[str] = set()  # pods that have another card than they were assigned, and say so

    def make(self, most: int) -> None:
        """Pods of the shapes that come next."""
        now, self.wanted = self.wanted[:most], self.wanted[most:]
        for shape in now:
            name = f"{self.dialect.name}{next(self._names)}"
            self._made[name] = shape
            self.load.make(name, *shape, schedulerName=NAME)

    def settle(self, *, served: bool = True) -> None:
        """Until every pod runs that fits on a card.

        `served`: kubelet, daemon and API server were there all the time, and none is refused. Else some come while one
        is away, or find that the kubelet gave their place to an equal pod, and must come again.
        """
        self.load.settle()
        refused, self._seen = self.load.refused[self._seen :], len(self.load.refused)
        meant = [one for one in refused if self._was_away(one) or DOES_NOT_FIT in one.message]
        assert refused == ([] if served else meant)
        self.wanted += [self._made[one.name] for one in refused]

    def _was_away(self, one: Refused) -> bool:
        """Its time is that of its start: the kubelet may have begun with it before the part was killed."""
        return bool(AWAY.search(one.message)) and any(one.at <= end for _, end in self.load.outages[-1:])

    def _agrees(self, pod: Any, places: set[str]) -> bool:
        """Equal pods that the kubelet takes in another order are exchanged. What cannot be mended then is told of."""
        name, known = pod["metadata"]["name"], pod["metadata"].get("annotations", {})
        says = set(known.get(self.dialect.device, "").split(","))
        if actual := known.get(ACTUAL):  # gpushare's own annotations stay as they were
            self.strays.add(name)
            says = {card for cards in json.loads(actual).values() for card in cards}
        if says == places and known.get(self.dialect.assigned) == "true":
            return True
        wrong = [fact for fact in map(str, self.daemon.facts()) if "assignment-wrong" in fact]
        if stray := any(f"default/{name} has " in fact for fact in wrong):
            self.strays.add(name)
        return stray


@dataclass(frozen=True)
class Part:
    """What is killed and started again."""

    restart: Callable[[], None]
    serves: tuple[Sharing, ...] = ()  # while it is away, the kubelet may refuse their pods
    loses_order: bool = False  # the kubelet may take pods in another order than they were bound in


class Stage:
    """The node with both dialects, and the scheduler above them."""

    def __init__(self, sharings: tuple[Sharing, ...], scheduling: Scheduling) -> None:
        self.sharings, self._scheduling = sharings, scheduling
        self._troubles = cycle(self._parts())

    def _parts(self) -> Iterator[Part]:
        yield Part(partial(kill, self._scheduling.extender))
        yield Part(_restart_kubelet, self.sharings, loses_order=True)
        yield Part(partial(kill, self._scheduling.scheduler))
        for one in self.sharings:
            yield Part(partial(_restart_daemon, one.daemon), (one,), loses_order=True)
        # Without it the daemons cannot know which pod is meant, and say so.
        yield Part(_restart_apiserver, self.sharings, loses_order=True)

    def burst(self) -> None:
        """Pods come; in the middle a part is killed, and more pods come at once."""
        for one in self.sharings:
            one.make(BURST // 2)
        part = next(self._troubles)
        strays = [set(one.strays) for one in self.sharings]
        with ExitStack() as away:
            for one in part.serves:
                away.enter_context(one.load.away())
            part.restart()
            for one in self.sharings:
                one.make(BURST - BURST // 2)
            for one in part.serves:
                wait_back(one.cluster, one.dialect.resource, one.total)
        self.settle(part)
        assert part.loses_order or strays == [one.strays for one in self.sharings]

    def settle(self, part: Part | None = None) -> None:
        for one in self.sharings:
            one.settle(served=part is None or one not in part.serves)
            taken, resource = one.load.taken(), one.dialect.resource
            with suppress(NodeFailedError):  # its watch may be a moment behind
                until(partial(self._is_booked, resource, taken), "the extender has booked what pods have", BOOKED_S)
            assert self._scheduling.booked(resource) == taken

    def _is_booked(self, resource: str, taken: Booked) -> bool:
        return self._scheduling.booked(resource) == taken


def _restart_kubelet() -> None:
    with killed("kubelet"):
        stop_kubelet(signal.SIGKILL)
    start_kubelet(wait=False)


def _restart_apiserver() -> None:
    with killed("kube-apiserver"):
        stop_apiserver()
    start_apiserver()


def _restart_daemon(daemon: Fairlead) -> None:
    daemon.end(signal.SIGKILL)
    daemon.start()


@pytest.fixture
def stage(cluster: Cluster, fairlead: Make, resource: str, tmp_path: Path) -> Iterator[Stage]:
    compiled_or_skip()
    those = tuple(replace(gpu, memory_total=GPU_GIB * GIB * MIB) for gpu in gpus("T4", len(CARDS_GIB)))
    features = ("the daemon with `assign`", "the daemon with `cluster.devices`")
    with ExitStack() as stack:
        theirs = Account(tmp_path, rules(GPUSHARE.name))
        ours = Account(tmp_path, [rule for feature in features for rule in FEATURES[feature]])
        for account in (theirs, ours):
            stack.callback(account.remove)
        machine = stack.enter_context(Driver(gpus=those).installed(tmp_path / "driver"))
        env = {**machine.env, "NODE_NAME": NODE, "KUBECONFIG": str(theirs.file)}
        gpushare = Command(tmp_path, (GPUSHARE.name, *GPUSHARE.args), env)
        stack.callback(gpushare.end)
        native = fairlead(native_config(resource, CARDS_GIB, ours))
        for daemon in (gpushare, native):
            daemon.start()
        wait_back(cluster, GPUSHARE.resource, GPU_GIB * len(those))
        wait_back(cluster, resource, sum(CARDS_GIB))
        scheduling = Scheduling(tmp_path, [{"system": "gpushare"}, {"system": "fairlead", "resource": resource}])
        stack.callback(scheduling.end)
        scheduling.start()
        sharings = (
            Sharing(cluster, GPUSHARE, cards(GPUSHARE, those), gpushare),
            Sharing(cluster, native_dialect(resource), native_cards(cluster, resource), native),
        )
        stack.callback(cluster.remove_pods)
        yield Stage(sharings, scheduling)


def shapes(chance: random.Random) -> Iterator[Shape]:
    """Most pods have one container; some have two, and some begin with one that may ask for more."""
    while True:
        one, two = chance.choice(SIZES), chance.choice(SIZES)
        kind = chance.random()
        yield ((one,), 0) if kind < 0.7 else ((one, two), 0) if kind < 0.85 else ((one,), two)


@pytest.mark.skipif(not os.environ.get("NODE_TEST_FULL"), reason="not steady yet: make node-test-full plays it")
@pytest.mark.timeout(LIMIT_S * 2, func_only=True)  # every part is killed in turn: on a busy machine that takes long
def test_pods_get_what_the_extender_chose_while_every_part_is_killed(stage: Stage, measure: Measure):
    """Whenever all is quiet: what the processes were told, what the kubelet says that their pod holds, what stands on
    the pod and what the extender has booked are one card and one amount; and a pod that waits fits on no card.
    """
    chance = random.Random(14)  # fixed, so that a failure comes again
    began = time.monotonic()
    for one in stage.sharings:
        one.wanted = [shape for shape, _ in zip(shapes(chance), range(PODS), strict=False)]
    expected = [Counter(sizes for sizes, _ in one.wanted) for one in stage.sharings]
    while any(one.wanted or one.load.sizes for one in stage.sharings):
        stage.burst() if any(one.wanted for one in stage.sharings) else stage.settle()
        for one in stage.sharings:
            part = 0.7 if one.wanted else 1.0
            one.load.release(chance.sample(sorted(one.load.ready), round(len(one.load.ready) * part)))
    measure(f"{PODS} pods of each dialect come, run and end", time.monotonic() - began)
    stage.settle()
    for one, ran in zip(stage.sharings, expected, strict=True):
        print(f"{one.dialect.name}: {len(one.strays)} exchanged, {len(one.load.refused)} came while a part was away")
        assert one.load.ran == ran
        assert one.cluster.holdings(one.dialect.resource) == {}
