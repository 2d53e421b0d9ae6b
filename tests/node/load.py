"""Many pods with memory of cards: made in bursts, looked at while they live, given back in the middle.

Each look compares three witnesses: what the API server says of the pods, what the kubelet says that they hold, and what
the processes that live were told. It judges nothing that may change between two of these questions.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import grpc

from tests.node.cluster import PODS_PATH, Cluster, Pod, shape
from tests.node.ledger import SEVERAL, Stay
from tests.node.living import living
from tests.node.rig.steps import NodeFailedError, until

SCRIPT = 'trap "exit 0" TERM; sleep 1000000 & wait'  # ends at once, and well, when it is told to
SETTLE_S = 90.0
LOOK_S = 0.5
# What a kubelet says of a pod that comes while the plugin is away, or while it is itself not ready.
AWAY = re.compile(
    r"unregistered device|no healthy devices present|no longer healthy|devices unavailable|code = Unavailable"
    r"|code = Canceled|endpoint .* (has been )?stopped|Node didn't have enough resource"
)
OVER = {"Succeeded", "Failed"}
Key = tuple[str, str]  # pod, container


@dataclass(frozen=True, slots=True)
class Cards:
    """What there is: units of each card by its id, and how ids and environments name a card."""

    units: Mapping[str, int]
    mib: Mapping[str, int]  # of each card as a whole
    unit_mib: int
    card_of: Callable[[str], str]  # a slot's id
    told: Callable[
        [Mapping[str, str]], tuple[str, int] | None
    ]  # an environment: card and MiB; None: says nothing of it

    @property
    def total(self) -> int:
        return sum(self.units.values())


@dataclass(frozen=True, slots=True)
class Refused:
    name: str
    sizes: tuple[int, ...]
    reason: str
    message: str
    at: float  # to the second, rounded down

    def is_for_want_of_one_card(self) -> bool:
        return self.reason == "UnexpectedAdmissionError" and SEVERAL in self.message


class Load:
    """`agrees`: whether a pod that runs and lies on these cards says so itself, where a scheduler writes it there.

    `by_card`: the scheduler knows single cards, so that a pod waits when no card has room for it. Else it knows totals.

    `loose`: pods that were told a card by a scheduler, and whose ids may be another card's. A kubelet that has just
    started counts the units of pods that have ended, and offers none of that card for its first pods (see `ledger`).
    """

    def __init__(
        self,
        cluster: Cluster,
        resource: str,
        cards: Cards,
        agrees: Callable[[Any, set[str]], bool] = lambda _pod, _cards: True,
        *,
        by_card: bool = False,
    ) -> None:
        self._cluster = cluster
        self._resource = resource
        self.cards = cards
        self._agrees = agrees
        self._by_card = by_card
        self._needs: dict[str, int] = {}  # of every pod: its containers together, or its init container
        self.sizes: dict[str, tuple[int, ...]] = {}  # of every pod that is not over
        self.ready: set[str] = set()
        self.let_go: set[str] = set()
        self.loose: set[str] = set()
        self.ran = Counter[tuple[int, ...]]()
        self.stays: list[Stay] = []
        self.refused: list[Refused] = []
        self.looks: list[float] = []
        self._open: dict[Key, Stay] = {}
        self._away: list[list[float]] = []

    # --- What is done -------------------------------------------------------------------------------------------------

    def make(self, name: str, sizes: tuple[int, ...], init: int = 0, **more: Any) -> None:
        """A pod with a container for each size. `init`: before them one that asks for so much, and ends."""
        parts = [shape(f"c{number}", {self._resource: size}, SCRIPT) for number, size in enumerate(sizes)]
        first = [shape("init", {self._resource: init}, "exit 0")] if init else []
        self.sizes[name], self._needs[name] = sizes, max(sum(sizes), init)
        # OnFailure: a kubelet that was killed while it started a container tries again. Who ends well stays ended.
        fixed = {"restartPolicy": "OnFailure", "terminationGracePeriodSeconds": 20}
        self._cluster.start_pod(name, {}, containers=parts, initContainers=first, **fixed, **more)

    def release(self, names: Iterable[str]) -> None:
        """Every other pod is deleted; the others are told to end, and stay as pods that succeeded."""
        pids: dict[str, list[int]] = {}
        for one in living():
            pids.setdefault(one.pod, []).append(one.pid)
        for number, name in enumerate(sorted(names)):
            self.let_go.add(name)
            self.ready.discard(name)
            if number % 2:
                self._cluster.api.call("DELETE", f"{PODS_PATH}/{name}")
            else:
                for pid in pids.get(name, ()):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGTERM)

    @contextmanager
    def away(self) -> Iterator[None]:
        """The plugin or the kubelet is away meanwhile: the kubelet refuses pods, and that is how it must be."""
        window = [time.time() - 1, float("inf")]  # the kubelet tells whole seconds
        self._away.append(window)
        yield
        window[1] = time.time() + 1

    # --- What is seen -------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Until every pod that was let go is gone, and every other runs, or needs more than is free on all cards."""
        last: list[str] = []

        def settled() -> bool:
            last[:] = self._unsettled()
            return not last

        try:
            until(settled, "pods settle", SETTLE_S, LOOK_S)
        except NodeFailedError as error:
            raise NodeFailedError(f"{error}; these do not: {last}") from None
        self._agree()

    def look(self) -> dict[str, Any] | None:
        """The pods, by name. None while the kubelet cannot be asked."""
        alive = self._alive()
        try:
            held = self._cluster.holdings(self._resource)
        except grpc.RpcError:
            return None
        pods = {one["metadata"]["name"]: one for one in self._cluster.api.get(PODS_PATH)["items"]}
        self._check(held, alive)
        self._note(held, pods)
        for name in [name for name in self.sizes if name not in pods or pods[name]["status"].get("phase") in OVER]:
            if not any(key[0] == name for key in held):
                self._over(name, pods.get(name))
        return pods

    def _unsettled(self) -> list[str]:
        pods = self.look()
        if pods is None:
            return ["the kubelet does not answer"]
        free, alive = self._free(), self._alive()
        found = []
        for name, sizes in self.sizes.items():
            pod = pods.get(name, {"spec": {}, "status": {}})
            if name in self.let_go:
                found.append(f"{name} was let go: {pod['status']}")
            elif _is_ready(pod) and all((name, f"c{number}") in self._open for number in range(len(sizes))):
                places = self._told(name, alive) if name in self.loose else self._places(name)
                if not self._agrees(pod, places):
                    found.append(f"{name} lies on {places}, and says {pod['metadata'].get('annotations')}")
                # A kubelet that was killed may have reported a container that has ended since.
                if dead := [n for n in range(len(sizes)) if (name, f"c{n}") not in alive]:
                    found.append(f"{name} is ready, and no process of its containers {dead} lives")
                if name not in self.ready:
                    self.ready.add(name)
                    self.ran[sizes] += 1
            elif pod["spec"].get("nodeName") or self._needs[name] <= free:
                found.append(f"{name} {sizes} of {free}: {pod['status']}")
        return found

    def _free(self) -> int:
        """The largest pod that the scheduler must find room for."""
        free = dict(self.cards.units)
        for card, pods in self.taken().items():
            free[card] -= sum(pods.values())
        return max(free.values()) if self._by_card else sum(free.values())

    def taken(self) -> dict[str, dict[str, int]]:
        """What each pod has of each card, by card. An init container's units are the pod's until it ends."""
        found: dict[str, Counter[str]] = {}
        for (name, _), stay in self._open.items():
            pods = found.setdefault(stay.card, Counter())
            pods[name] += len(stay.ids)
        for pods in found.values():
            # A pod that was made elsewhere needs what it has.
            whole = {name: self._needs.get(name, pods[name]) for name in pods if len(self._places(name)) == 1}
            pods.update({name: needs - pods[name] for name, needs in whole.items()})
        return {card: dict(pods) for card, pods in found.items()}

    def _places(self, name: str) -> set[str]:
        return {stay.card for (pod, _), stay in self._open.items() if pod == name}

    def _told(self, name: str, alive: Mapping[Key, tuple[str, int]]) -> set[str]:
        return {card for (pod, _), (card, _) in alive.items() if pod == name}

    def elsewhere(self) -> set[str]:
        """Loose pods whose ids are another card's than they were told."""
        alive = self._alive()
        return {name for name in self.loose & self.ready if self._places(name) != self._told(name, alive)}

    def _alive(self) -> dict[Key, tuple[str, int]]:
        found = {(one.pod, one.container): self.cards.told(one.env) for one in living()}
        return {key: told for key, told in found.items() if told is not None}

    def _check(self, held: Mapping[Key, frozenset[str]], alive: Mapping[Key, tuple[str, int]]) -> None:
        """What must hold at every moment."""
        times = Counter(name for ids in held.values() for name in ids)
        assert not [name for name, count in times.items() if count > 1], f"held twice: {times.most_common(3)}"
        in_use = Counter[str]()
        for card, mib in alive.values():
            in_use[card] += mib
        over = {card: mib for card, mib in in_use.items() if mib > self.cards.mib[card]}
        assert not over, f"more is in use than there is: {over}; {alive}"
        for key in held.keys() & alive.keys():
            self._compare(key, held[key], alive[key])

    def _compare(self, key: Key, ids: frozenset[str], told: tuple[str, int]) -> None:
        places = {told[0]} if key[0] in self.loose else {self.cards.card_of(name) for name in ids}
        assert (places, len(ids) * self.cards.unit_mib) == ({told[0]}, told[1]), f"{key} holds {ids}, was told {told}"

    def _agree(self) -> None:
        """All three witnesses, of each container of each pod that runs."""
        alive = self._alive()
        for name in self.ready:
            for number, size in enumerate(self.sizes[name]):
                key = (name, f"c{number}")
                assert len(self._open[key].ids) == size, f"{key} wants {size}, and has {self._open[key].ids}"
                assert key in alive, f"{key} runs, and no process of it lives"
                self._compare(key, self._open[key].ids, alive[key])

    # --- The books ----------------------------------------------------------------------------------------------------

    def _note(self, held: Mapping[Key, frozenset[str]], pods: Mapping[str, Any]) -> None:
        now = time.time()
        self.looks.append(now)
        for key, stay in list(self._open.items()):
            # A kubelet that has just started learns of its pods first: that it does not name one says nothing, not
            # even of a pod that was let go. Until that one has ended the kubelet counts its units, by its checkpoint.
            left = key not in held and pods.get(key[0], _GONE)["status"].get("phase") in OVER
            if left or held.get(key, stay.ids) != stay.ids:
                stay.until = now
                del self._open[key]
        for key, ids in held.items():
            if key not in self._open:
                stay = Stay(self.cards.card_of(min(ids)), ids, now)
                self._open[key] = stay
                self.stays.append(stay)

    def _over(self, name: str, pod: Any) -> None:
        sizes = self.sizes.pop(name)
        self.ready.discard(name)
        status = (pod or _GONE)["status"]
        if status.get("phase") == "Failed" and name not in self.let_go:
            at = datetime.fromisoformat(status["startTime"]).timestamp()
            self.refused.append(Refused(name, sizes, status.get("reason", ""), status.get("message", ""), at))
        elif name not in self.let_go:
            raise NodeFailedError(f"pod {name} is over, and nobody ended it: {status}")
        if pod is not None:
            Pod(self._cluster.api, name).delete()

    @property
    def outages(self) -> list[tuple[float, float]]:
        """From when to when the plugin or the kubelet was away."""
        return [(begin, end) for begin, end in self._away]

    def is_away(self, refused: Refused) -> bool:
        """Whether the kubelet refused it because the plugin or the kubelet was away."""
        return bool(AWAY.search(refused.message)) and any(begin <= refused.at <= end for begin, end in self._away)


_GONE: dict[str, Any] = {"status": {"phase": "Succeeded"}}


def _is_ready(pod: Any) -> bool:
    conditions = pod["status"].get("conditions", ())
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
