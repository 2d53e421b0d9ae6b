"""Pods for whoever asks: beside a plugin that gives devices only to pods that were promised them.

The conformance suite asks as no scheduler was asked before. So for each amount that it may ask for, pods wait that were
promised it. What a container gets must follow from the question alone: pods that ask for as much have the same name,
each in a namespace of its own, and were promised the same cards.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.apiserver.server import ApiServer
from tests.system.desk import NODE, Dialect

AT_ONCE = 40  # far more than the suite asks for in one moment
EACH = 4


def put_node(server: ApiServer, name: str = NODE) -> None:
    meta = {"name": name, "annotations": {}, "labels": {}}
    server.store.put("nodes", {"metadata": meta, "status": {"capacity": {}, "allocatable": {}}})


def put_supply(server: ApiServer, dialect: Dialect, cards: Sequence[str], units: int) -> None:
    """`cards` as annotations name them, of so many units each. Small amounts are promised on one card, in turn."""
    times = itertools.count(1_000_000_000)
    for amount in range(1, units * len(cards) + 1):
        needed = -(-amount // units)
        first = (amount - 1) % len(cards) if needed == 1 else 0
        promise = ",".join(cards[first : first + needed])
        for number in range(AT_ONCE if amount == 1 else EACH):
            put_pod(server, dialect, f"asks-{amount}", amount, promise, next(times), namespace=f"ns-{amount}-{number}")


def put_pod(
    server: ApiServer,
    dialect: Dialect,
    name: str,
    amount: int,
    promise: str,
    time: int,
    *,
    namespace: str = "default",
    node: str = NODE,
) -> None:
    """One pod with one container, as the API server has it once it is bound."""
    limits = {dialect.resource: str(amount)}
    annotations = {dialect.device: promise, dialect.time: str(time), **dialect.unassigned, **dialect.others}
    meta = {"name": name, "namespace": namespace, "uid": f"uid-{namespace}-{name}", "annotations": annotations}
    spec: dict[str, Any] = {
        "nodeName": node,
        "containers": [{"name": "main", "resources": {"limits": limits, "requests": limits}}],
    }
    server.store.put("pods", {"metadata": meta, "spec": spec, "status": {"phase": "Pending"}}, namespace)


def write_kubeconfig(path: Path, url: str) -> None:
    config = {
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(json.dumps(config))
