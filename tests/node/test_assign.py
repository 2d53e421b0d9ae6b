"""A scheduler above chose the GPU: on a true node, with the three dialects as their guides install them.

The command itself runs, on a simulated driver, with exactly the account of the guide's manifest.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.node.account import Account
from tests.node.assign_runs import MIB, TOTAL, UNITS, Command, Run, Shape, rules
from tests.node.assigner import DIALECTS, NAME, Dialect
from tests.node.cluster import Cluster
from tests.node.conftest import Measure
from tests.node.load import Refused
from tests.node.rig.node import start_kubelet, stop_kubelet
from tests.node.rig.places import NODE
from tests.node.rig.steps import until
from tests.node.trouble import wait_back
from tests.nvml import Driver, Gpu, gpus
from tests.nvml.library import compiled_or_skip

BURST = 15
PODS = 300 if os.environ.get("NODE_TEST_FULL") else 60
SIZES = (1, 2, 3, 4, 5, 6, 8)
DOES_NOT_FIT = "units do not fit"


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


def shapes(chance: random.Random) -> Iterator[Shape]:
    """Few sizes at a time, so that equal ones meet. Most pods have one container; some two, some begin with another."""
    while True:
        sizes = chance.sample(SIZES, 3)
        for _ in range(BURST):
            one, two = chance.choice(sizes), chance.choice(sizes)
            kind = chance.random()
            yield ((one,), 0) if kind < 0.7 else ((one, two), 0) if kind < 0.85 else ((one,), min(one, two))


def test_pods_get_the_card_that_was_chosen_for_them_in_bursts_over_restarts(
    cluster: Cluster, dialect: Dialect, those: tuple[Gpu, ...], command: Command, measure: Measure
):
    """Equal pods are promised different cards, and are bound in another order than the promises were made in.

    What its processes were told, what the kubelet says it holds, and what stands on the pod are one card. In every
    other burst the daemon or the kubelet is killed or ended. Then the kubelet refuses pods; and it comes back to pods
    in an order of its own, so that some get what was promised to others: equal pods are exchanged, and one that cannot
    be helped is refused or told of. Of a card that it takes to be full it offers no ids, so that a pod has its card and
    ids of another. Without such trouble none of this happens.
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
        astray = {name for name in load.ready if run.astray(name)} | load.elsewhere()
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


def test_a_pod_has_its_card_though_a_kubelet_that_restarted_takes_it_to_be_full(
    cluster: Cluster, dialect: Dialect, those: tuple[Gpu, ...], command: Command
):
    """A pod that filled the card has ended, and the kubelet's checkpoint has it still: no id of the card is offered."""
    command.start()
    cluster.wait_numbers(dialect.resource, TOTAL, TOTAL)
    until(lambda: f"{dialect.resource}={TOTAL}x" in str(cluster.annotations()), "the node says how large a unit is")
    run = Run(cluster, dialect, those, command)
    load, names = run.load, map("pod{}".format, count())
    while not load.ready:  # a pod that the kubelet meets before the daemon is refused, and another one comes
        before, pod = next(names), next(names)
        load.make(before, (UNITS[0],), schedulerName=NAME)
        run.assigner.assign({before: "0"})
        load.settle()
        load.release([before])
        load.settle()
        stop_kubelet(signal.SIGKILL)
        with load.away():
            load.make(pod, (8,), schedulerName=NAME)
            load.loose.add(pod)
            run.assigner.assign({pod: "0"})
            start_kubelet(wait=False)
            wait_back(cluster, dialect.resource, TOTAL)
        load.settle()
        assert [one for one in load.refused if not load.is_away(one)] == []
    assert load.elsewhere() == load.ready
    assert run.odd(load.ready) == []
