"""A scheduler that hands out parts of GPUs, as gpushare's extender, Volcano and doslab's do: it chooses a card, writes
it on the pod, and binds the pod. Scripted, and as fast as the API server is.

Owns the annotations of the three dialects, and who is bound where. Must not know Fairlead.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.node.cluster import PODS_PATH, Cluster
from tests.node.rig.places import NODE
from tests.node.rig.steps import NodeFailedError

NAME = "scripted"  # a scheduler's name: the usual one leaves its pods alone
MERGE = "application/merge-patch+json"
OVER = {"Succeeded", "Failed"}


@dataclass(frozen=True, slots=True)
class Dialect:
    """`card`, `units` and `mib` of an environment: which variable tells it, and how."""

    name: str
    args: tuple[str, ...]
    resource: str
    device: str  # annotation that names the card
    time: str
    assigned: str
    tells_card: str
    tells_units: str
    by_uuid: bool = False
    unit_mib: int = 1024
    told_mib: int = 1024  # MiB that 1 stands for, in `tells_units`
    unassigned: Mapping[str, str] = field(default_factory=dict)
    others: Mapping[str, str] = field(default_factory=dict)
    lock: str = ""  # annotation of the node


DIALECTS = (
    Dialect(
        "doslab",
        (),
        "doslab.io/gpu-memory",
        "doslab.io/gpu-uuid",
        "doslab.io/gpu-assume-time",
        "doslab.io/gpu-assigned",
        "DOSLAB_IO_GPU_UUID",
        "DOSLAB_IO_GPU_RESOURCE_USED_BY_CONTAINER",
        by_uuid=True,
        unit_mib=1,
        told_mib=1,
        unassigned={"doslab.io/gpu-assigned": "false"},
        others={"doslab.io/gem-scheduler-ip": "10.0.0.9", "doslab.io/gem-podmanager-port": "50051"},
    ),
    Dialect(
        "gpushare",
        ("--memory-unit=GiB",),
        "aliyun.com/gpu-mem",
        "ALIYUN_COM_GPU_MEM_IDX",
        "ALIYUN_COM_GPU_MEM_ASSUME_TIME",
        "ALIYUN_COM_GPU_MEM_ASSIGNED",
        "ALIYUN_COM_GPU_MEM_IDX",
        "ALIYUN_COM_GPU_MEM_CONTAINER",
        unassigned={"ALIYUN_COM_GPU_MEM_ASSIGNED": "false"},
    ),
    Dialect(
        "volcano",
        ("--gpu-memory-factor=1024",),
        "volcano.sh/gpu-memory",
        "volcano.sh/gpu-index",
        "volcano.sh/predicate-time",
        "volcano.sh/gpu-assigned",
        "NVIDIA_VISIBLE_DEVICES",
        "VOLCANO_GPU_ALLOCATED",
        told_mib=1,
        lock="gpu",
    ),
)


class Assigner:
    """`words`: how annotations name each card; `units`: how many each has. Both by the card's index."""

    def __init__(
        self,
        cluster: Cluster,
        dialect: Dialect,
        words: Mapping[str, str],
        units: Mapping[str, int],
        chance: random.Random,
    ) -> None:
        self._api = cluster.api
        self._dialect = dialect
        self._words = words
        self._cards = {word: card for card, word in words.items()}
        self._units = units
        self._chance = chance

    def choose(self, amounts: Sequence[tuple[str, int]]) -> dict[str, str]:
        """A card for each pod and its amount, in their order: the fullest that has room. Some may fit nowhere."""
        free = self._free()
        chosen = {}
        for name, amount in amounts:
            fits = [card for card, room in free.items() if room >= amount]
            if fits:
                card = min(fits, key=lambda card: (free[card], card))
                free[card] -= amount
                chosen[name] = card
        return chosen

    def assign(self, chosen: Mapping[str, str]) -> None:
        """Writes the choices in their order, and binds the pods in another: extenders bind at the same time."""
        names = list(chosen)
        for name in names:
            self._annotate(f"{PODS_PATH}/{name}", self._promise(chosen[name]))
        self._chance.shuffle(names)
        for name in names:
            if self._dialect.lock:
                self._annotate(f"/api/v1/nodes/{NODE}", {self._dialect.lock: str(time.time_ns())})
            target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
            self._api.call("POST", f"{PODS_PATH}/{name}/binding", {"metadata": {"name": name}, "target": target})

    def says(self, pod: Any) -> str | None:
        """The card that a pod's annotations name, once they say that the pod has it."""
        known = pod["metadata"].get("annotations", {})
        return self._cards.get(known.get(self._dialect.device)) if known.get(self._dialect.assigned) == "true" else None

    def is_locked(self) -> bool:
        known = self._api.get(f"/api/v1/nodes/{NODE}")["metadata"].get("annotations", {})
        return bool(self._dialect.lock) and self._dialect.lock in known

    def _promise(self, card: str) -> dict[str, str]:
        dialect = self._dialect
        stamp = {dialect.device: self._words[card], dialect.time: str(time.time_ns())}
        return {**stamp, **dialect.unassigned, **dialect.others}

    def _free(self) -> dict[str, int]:
        """By what stands on pods, as a scheduler that was just started."""
        used = Counter[str]()
        for pod in self._api.get(PODS_PATH)["items"]:
            word = pod["metadata"].get("annotations", {}).get(self._dialect.device)
            if word is not None and pod["status"].get("phase") not in OVER:
                used[self._cards[word]] += asked(pod, self._dialect.resource)
        free = {card: units - used[card] for card, units in self._units.items()}
        if min(free.values()) < 0:
            raise NodeFailedError(f"the pods' annotations give away more than there is: {free}")
        return free

    def _annotate(self, path: str, annotations: Mapping[str, str]) -> None:
        self._api.call("PATCH", path, {"metadata": {"annotations": dict(annotations)}}, MERGE)


def asked(pod: Any, resource: str) -> int:
    """What a pod needs of a resource: its containers together, or its largest init container."""
    mains, inits = (
        [int(part["resources"].get("limits", {}).get(resource, 0)) for part in pod["spec"].get(key, ())]
        for key in ("containers", "initContainers")
    )
    return max([sum(mains), *inits])
