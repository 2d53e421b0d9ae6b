"""Pods of doslab and of gpushare on the same nodes, through one extender.

doslab's pods name GPUs by UUID, so the nodes tell of them as `fairlead doslab` does. They ask for cores too, which are
an amount of the node: kube-scheduler counts them, and the extender is not asked about pods with nothing else.
"""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest

from fairlead.cluster.kinds import NODES, PODS
from fairlead.config.schedulerspec import ResourceSpec, System
from tests.cluster.judge import DOSLAB, GPUSHARE
from tests.cluster.plane import Object, Plane, node, pod

CORES = "doslab.io/gpu-core"
CORES_EACH = 100 * DOSLAB.devices  # of a node
TELLS = "devices.fairlead/doslab.io_gpu-memory"
NAMES = [f"node-{number}" for number in range(20)]
BOTH = (ResourceSpec(System.GPUSHARE), ResourceSpec(System.DOSLAB))


def with_both(name: str) -> Object:
    told = [{"i": str(n), "d": DOSLAB.name_of(name, n), "u": DOSLAB.units} for n in range(DOSLAB.devices)]
    offer = {**GPUSHARE.offer, **DOSLAB.offer, CORES: CORES_EACH}
    return node(name, offer, annotations={TELLS: json.dumps(told)})


@pytest.fixture
async def shared(plane: Plane) -> Plane:
    await plane.create(NODES, [with_both(name) for name in NAMES])
    await plane.begin(BOTH)
    return plane


async def test_pods_of_two_systems_get_devices_of_their_own_account_and_cores_are_counted(shared: Plane):
    ledger = await shared.follow(GPUSHARE, DOSLAB)
    rng = random.Random(5)
    made = []
    for number in range(240):
        theirs = {DOSLAB.resource: rng.randint(4, 40), CORES: rng.randint(5, 40)}
        wants = [theirs, {GPUSHARE.resource: rng.randint(4, 40)}, {CORES: 10}][number % 3]
        made.append(pod(f"p{number}", wants))
    await shared.create(PODS, made, "default")
    await shared.until(lambda: ledger.bound() == len(made), "all are bound")
    cores = Counter[str]()
    for one in ledger.named():
        limits = one["spec"]["containers"][0]["resources"]["limits"]
        cores[one["spec"]["nodeName"]] += int(limits.get(CORES, 0))
    assert max(cores.values()) <= CORES_EACH
    assert ledger.faults == []


async def test_a_node_without_cores_takes_no_pod_that_asks_for_some_though_its_memory_is_free(shared: Plane):
    """The room that the extender keeps for a pod is of no use to one that kube-scheduler cannot place there."""
    ledger = await shared.follow(GPUSHARE, DOSLAB)
    wants = {DOSLAB.resource: 10, CORES: CORES_EACH}
    await shared.create(PODS, [pod(f"greedy{number}", wants) for number in range(len(NAMES) + 1)], "default")
    await shared.until(lambda: ledger.bound("greedy") == len(NAMES), "each node has one of them")
    plain = [pod(f"plain{number}", {DOSLAB.resource: DOSLAB.units}) for number in range(7 * len(NAMES))]
    await shared.create(PODS, plain, "default")
    await shared.until(lambda: ledger.bound("plain") == len(plain), "every other device is given")
    (waiting,) = ledger.pending()
    await shared.delete("greedy0" if waiting["metadata"]["name"] != "greedy0" else "greedy1")
    await shared.until(lambda: not ledger.pending(), "the one that waited has its place")
    assert ledger.faults == []
