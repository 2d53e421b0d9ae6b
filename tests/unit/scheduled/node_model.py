"""A node on paper for the Assigner: a kubelet's ledger of slots, an API server's pods, and a watch that may lag.

No sockets and no clock that runs: every step is a call, so any order of them can be tried.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace
from tests.clock import FakeClock
from tests.unit.scheduled.cards import MEMORY, ROOM, make_cards
from tests.unit.scheduled.extender_model import Extender

from fairlead.cluster.cluster import Cluster
from fairlead.cluster.pods import PodSnapshot
from fairlead.model.errors import AskRefused
from fairlead.model.holdings import Holder, Holdings
from fairlead.model.inventory import ALL_HEALTHY
from fairlead.model.names import SlotId
from fairlead.model.pod import Container, Pod
from fairlead.model.resource import Resource
from fairlead.policy.scheduled.pending import NEVER
from fairlead.policy.scheduled.reconcile import GRACE_S
from fairlead.scheduled.assigner import Assigner


@dataclass(frozen=True)
class Shape:
    """Amounts of a pod's containers."""

    main: tuple[int, ...]
    init: tuple[int, ...] = ()

    @property
    def most(self) -> int:
        return max(sum(self.main), *self.init, 0)


@dataclass
class Given:
    """What a container has, as the kubelet wrote it down."""

    slots: frozenset[str]
    told: tuple[str, ...]  # the cards in its environment
    init: bool
    words: Mapping[str, str] = field(default_factory=dict)


class Node:
    def __init__(self, seed: int = 0, resource: Resource | None = None) -> None:
        self.resource = resource or make_cards()
        self.extender = Extender((device.index for device in self.resource.inventory.devices), ROOM)
        self.rng = random.Random(seed)
        self.clock = FakeClock()
        self.api: dict[str, Pod] = {}  # what the API server has
        self.ledger: dict[str, dict[str, Given]] = {}  # by uid, then container
        self.names: dict[str, Pod] = {}  # pods that the kubelet knows
        self.refused: dict[str, str] = {}
        self.foreign: set[str] = set()  # served by another plugin
        self.checkpoint: set[str] = set()  # slots of pods that have ended since the kubelet wrote its checkpoint
        self.counted: set[str] = set()  # of these: what a kubelet that has just started takes to be held
        self.facts: list[tuple[str, dict[str, Any]]] = []
        self.problems: dict[str, str] = {}
        self.unlocked: list[str] = []
        self.to_write: dict[str, tuple[Pod, dict[str, str]]] = {}
        self._ids = itertools.count(1)
        self.start()

    # --- The daemon -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """A daemon that knows nothing yet."""
        client: Any = SimpleNamespace(clock=self.clock, rng=self.rng)
        self.assigner = Assigner(
            Cluster(client, "n1"),  # no server here
            self.clock,
            lambda kind, **keys: self.facts.append((kind, keys)),
            self._note,
            self._holders,
        )
        self.to_write = {}
        marker: Any = SimpleNamespace(set=self._order, unlock=self.unlocked.append)
        self.assigner._annotator = marker
        pods: Any = self.assigner.pods
        pods.check = self._read
        assert self.resource.terms.assign is not None
        self.assigner.read([self.resource.terms.assign])
        self.assigner.tell([self.resource], ALL_HEALTHY)
        self.sync()

    async def restart(self) -> None:
        await self.calm()
        self.start()

    async def calm(self) -> None:
        """Before the daemon is started anew, one that three rare things have come to at once gets its mark.

        On a node where another plugin has given ids away, a pod that was taken for another one may have ids that agree
        with its own annotation by chance. Until it is marked nothing says that it was told something else. One that
        cannot be marked, because its assignment stays wrong and no annotation tells what it has, is deleted: that is
        the cure which the daemon reports.
        """
        says = {uid: pod.annotations.get("card") for uid, pod in self.api.items()}
        told = [(uid, given.told) for uid, mine in self.ledger.items() for given in mine.values()]
        if self.foreign and any(says.get(uid) not in cards for uid, cards in told):
            await self.settle()
            assert self.resource.terms.assign is not None
            for uid in self.wrong if not self.resource.terms.assign.actual else ():
                self.end(uid)

    def _note(self, topic: str, problem: str) -> None:
        self.problems[topic] = problem

    def _order(self, pod: Pod, texts: Mapping[str, str]) -> None:
        known = self.to_write.get(pod.uid, (pod, {}))[1]
        self.to_write[pod.uid] = (pod, {**known, **texts})

    def write(self) -> None:
        """What the daemon has ordered to be written is written."""
        for uid, (_, texts) in self.to_write.items():
            if (pod := self.api.get(uid)) is not None:
                self.api[uid] = replace(pod, annotations={**pod.annotations, **texts})
        self.to_write = {}

    def sync(self) -> None:
        """The watch tells everything."""
        now_s = self.clock.monotonic()
        self.assigner.pods.latest.set(PodSnapshot(dict(self.api), complete=True, read_s=now_s))
        self.assigner.pods.heard()

    async def _read(self) -> None:
        """All pods are read from the API server."""
        self.sync()

    async def verify(self, grace_s: float = GRACE_S) -> None:
        for state in self.assigner._states.values():
            await self.assigner.verify(state.name, grace_s)

    async def settle(self) -> None:
        """Nothing happens for a while."""
        for _ in range(4):
            self.sync()
            await self.clock.advance(GRACE_S + 1)
            await self.verify()
            self.write()

    @property
    def wrong(self) -> set[str]:
        return {uid for state in self.assigner._states.values() for uid in state.wrong}

    # --- The scheduler --------------------------------------------------------------------------------------------

    def promised(self) -> dict[str, int]:
        """Units of each card that pods were promised, by their annotations."""
        total = dict.fromkeys((device.index for device in self.resource.inventory.devices), 0)
        for pod in self.api.values():
            card = pod.annotations.get("card", "")
            if card in total:
                main = sum(int(container.limits[MEMORY]) for container in pod.containers)
                init = max((int(container.limits[MEMORY]) for container in pod.init_containers), default=0)
                total[card] += max(main, init)
        return total

    def bind(self, shape: Shape, card: str | None = None, time: int | None = None) -> str | None:
        """A pod with a promise that can be kept. None if no card has so much room."""
        if card is None:
            fits = [name for name in self.extender.pods if self._free(name) >= shape.most]
            if not fits:
                return None
            card = self.rng.choice(fits)
        number = next(self._ids)
        when = str(number if time is None else time) if time != NEVER else "?"
        pod = Pod(
            uid=f"u{number}",
            namespace="default",
            name=f"p{number}",
            node="n1",
            phase="Pending",
            created_s=float(number),
            annotations={"card": card, "time": when} if card else {},
            init_containers=tuple(_containers("init", shape.init)),
            containers=tuple(_containers("main", shape.main)),
        )
        self.api[pod.uid] = pod
        if card in self.extender.pods:
            self.extender.book(pod, shape.most)
        return pod.uid

    def _free(self, card: str) -> int:
        """As the scheduler counts: by its own books, or by what pods say now."""
        assert self.resource.terms.assign is not None
        return self.extender.free(card) if self.resource.terms.assign.actual else ROOM - self.promised()[card]

    # --- The kubelet ----------------------------------------------------------------------------------------------

    async def _holders(self, _timeout_s: float) -> Holdings:
        return Holdings(
            {
                (MEMORY, SlotId(slot)): Holder(self.names[uid].namespace, self.names[uid].name, name)
                for uid, containers in self.ledger.items()
                for name, given in containers.items()
                if not given.init
                for slot in given.slots
            }
        )

    async def admit(self, uid: str, *, fail_after: int = -1, forget_after: int = -1, kill_at: int = -1) -> bool:
        """As the kubelet does it. `fail_after`: so many containers, then something else refuses the pod.

        `forget_after`: so many containers, then the kubelet is restarted before it wrote down the last of them.
        `kill_at`: the daemon is killed between the question for that container and its Allocate, and started anew: the
        kubelet's call fails, and so does the pod. After its last container the pod has all it needs.
        """
        pod = self.api[uid]
        self.names[uid] = pod
        mine = self.ledger.setdefault(uid, {})
        requests = [(c, True) for c in pod.init_containers] + [(c, False) for c in pod.containers]
        number = 0
        while number < len(requests):
            if number == fail_after:
                self.end(uid, "Failed")
                return False
            container, init = requests[number]
            try:
                given = await self._allocate(uid, int(container.limits[MEMORY]), init=init, kill=number == kill_at)
            except AskRefused as refusal:
                self.refused[uid] = str(refusal)
                self.end(uid, "Failed")
                return False
            number += 1
            if number == forget_after:
                forget_after = -1
                number -= 1
                continue  # its answer was lost: the same container is asked for again
            mine[container.name] = given
        if kill_at == len(requests):
            await self.restart()
        if fail_after == len(requests):
            self.end(uid, "Failed")
        if uid not in self.api:
            return False
        self.api[uid] = replace(self.api[uid], phase="Running")
        return True

    async def _allocate(self, uid: str, size: int, *, init: bool, kill: bool = False) -> Given:
        taken = {slot for containers in self.ledger.values() for given in containers.values() for slot in given.slots}
        taken |= self.counted
        mine = self.ledger[uid].values()
        reusable = {slot for given in mine if given.init for slot in given.slots}
        reusable -= {slot for given in mine if not given.init for slot in given.slots}
        must = self.rng.sample(sorted(reusable), min(size, len(reusable)))
        free = [slot.id for slot in self.resource.slots if slot.id not in taken]
        if len(must) + len(free) < size:
            raise AskRefused("the kubelet has too few")
        chosen: list[str] = list(must)
        if len(must) < size:
            try:
                chosen = list(await self.assigner.prefer(self.resource, [*free, *must], must, size))
            except AskRefused:
                chosen = list(must)
            chosen = [slot for slot in chosen if slot in free or slot in must][:size]
            rest = [slot for slot in free if slot not in chosen]
            chosen += self.rng.sample(rest, size - len(chosen))
        self.rng.shuffle(chosen)
        if kill:
            await self.restart()
            raise AskRefused("the connection is gone")
        try:
            grant = await self.assigner.confirm(self.resource, chosen)
        except AskRefused:
            self.assigner.forget(self.resource, [])
            raise
        self.checkpoint = set(self.counted)
        return Given(frozenset(chosen), tuple(device.index for device in grant.devices), init, grant.variables)

    def restart_kubelet(self) -> None:
        """Its first pods come before it has dropped those that have ended: see `have_pods`."""
        self.counted = set(self.checkpoint)

    def have_pods(self) -> None:
        """The kubelet has taken all its pods in."""
        self.counted = set()

    def serve_by_another_plugin(self, uid: str) -> bool:
        """As the plugins do that ours replaces: any ids, the card that the annotation says, marked at once."""
        pod = self.api[uid]
        taken = {slot for containers in self.ledger.values() for given in containers.values() for slot in given.slots}
        free = [slot.id for slot in self.resource.slots if slot.id not in taken]
        amounts = {container.name: int(container.limits[MEMORY]) for container in pod.containers}
        card, units = pod.annotations.get("card", ""), sum(amounts.values())
        if pod.init_containers or units > len(free) or self.load().get(card, ROOM) + units > ROOM:
            return False
        self.rng.shuffle(free)
        self.names[uid], self.ledger[uid] = pod, {}
        self.foreign.add(uid)
        for name, amount in amounts.items():
            slots, free = frozenset(free[:amount]), free[amount:]
            self.ledger[uid][name] = Given(slots, (pod.annotations["card"],), init=False)
        self.api[uid] = replace(pod, phase="Running", annotations={**pod.annotations, "assigned": "true"})
        return True

    def end(self, uid: str, phase: str = "Succeeded") -> None:
        """Its containers have ended, and the API server knows. An ended pod is not in the watch."""
        self.checkpoint |= {slot for given in self.ledger.pop(uid, {}).values() for slot in given.slots}
        self.names.pop(uid, None)
        if (pod := self.api.pop(uid, None)) is not None:
            self.extender.release(pod)
        assert phase

    def vanish(self, uid: str) -> None:
        """Deleted by force: the API server has forgotten it, and its containers run on.

        Not one that another plugin has served: then nothing would be left that says which card it has.
        """
        if uid in self.foreign:
            return
        if (pod := self.api.pop(uid, None)) is not None:
            self.extender.release(pod)

    # --- What must hold -------------------------------------------------------------------------------------------

    def load(self) -> dict[str, int]:
        """Units of each card that containers were told."""
        total = dict.fromkeys((device.index for device in self.resource.inventory.devices), 0)
        for containers in self.ledger.values():
            seen: set[str] = set()
            for given in sorted(containers.values(), key=lambda given: given.init):
                for card in given.told:
                    total[card] += len(given.slots - seen) // len(given.told)
                seen |= given.slots
        return total

    def check_room(self) -> None:
        over = {card: units for card, units in self.load().items() if units > ROOM}
        assert not over, f"more was given than there is: {over}"

    def check_settled(self, *, ids: bool = True) -> None:
        """What a container was told, where its slots lie, what its pod says: all the same. And the pod is marked.

        `ids`: whether slots say where units are, and init containers are known. They do not where another plugin has
        given slots away, and are not where the daemon was killed in between.
        """
        for uid, containers in self.ledger.items():
            if uid not in self.api or uid in self.unknown:
                continue
            pod = self.api[uid]
            says = json.loads(pod.annotations.get("actual") or "{}")
            if uid in self.wrong and not says:
                continue
            for name, given in containers.items():
                if given.init and (says or not ids):
                    continue  # the kubelet does not list it, and where it was is over
                card = ",".join(says[name]) if name in says else pod.annotations["card"]
                assert ",".join(given.told) == card, (uid, name, self.facts[-6:])
                assert not ids or {slot.split("-")[0] for slot in given.slots} == set(given.told), (uid, name)
            if pod.annotations.get("card") in self.extender.pods:
                assert pod.annotations.get("assigned") == "true", (uid, self.facts[-6:])
            assert bool(says) == (uid in self.wrong), (uid, says)

    @property
    def unknown(self) -> set[str]:
        """Pods of which the daemon does not know which card they have. It counts both, and says so."""
        allocations = [
            allocation
            for state in self.assigner._states.values()
            for allocation in state.allocations
            if allocation.maybe
        ]
        assert all(allocation.uid in self.wrong or allocation.uid not in self.api for allocation in allocations)
        return {allocation.uid for allocation in allocations}

    def check_known(self) -> None:
        """What the daemon takes containers to have is what they were told."""
        cards = {device.id: device.index for device in self.resource.inventory.devices}
        for state in self.assigner._states.values():
            for allocation in state.allocations:
                given = self.ledger.get(allocation.uid, {}).get(allocation.container)
                if given is not None and allocation.slots and not allocation.init:
                    maybe = {tuple(cards[d] for d in allocation.devices), *((cards[d],) for d in allocation.maybe)}
                    assert given.told in maybe, (allocation, given)


def _containers(name: str, amounts: Sequence[int]) -> Iterable[Container]:
    for number, amount in enumerate(amounts):
        yield Container(f"{name}{number}", {MEMORY: str(amount)})
