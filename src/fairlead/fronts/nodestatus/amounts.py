"""Amounts in a node's status: read, changed by one JSON patch, and set again when another client resets them.

Each owner signs for its names in an annotation of its own, in the same patch: so it knows after a restart what to take
away, and never takes away what is not its own. An annotation may be set through the status, so one rule is enough.

The kubelet copies the capacity of a name it does not know into allocatable with its next report; both are written here,
so that the scheduler need not wait for that. It sets them to 0 when it registers its node before there is anything in
its plug-in directory, and a node that is made anew has none: the watch sees it, and they are set again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence

from fairlead.cluster.client import Client
from fairlead.cluster.kinds import NODES
from fairlead.cluster.nodes import Node, NodeWatch
from fairlead.cluster.patches import JsonPatch, Op, drop, expect, json_patch, put
from fairlead.kit.backoff import wait_s
from fairlead.kit.calls import explain
from fairlead.kit.supervise import SupervisedLoop
from fairlead.model.inventory import Conditions, Inventory
from fairlead.model.ports import Record
from fairlead.policy.offering.amounts import Amount, AmountChange, Posted, count, needed_change

SIGNED = "amounts.fairlead/"  # and the owner's name
BY_HAND = "by-hand"  # who signs for `fairlead node set`

# Another client that keeps setting another amount is answered more and more slowly.
RIVAL_AFTER = 3
RIVAL_FIRST_S, RIVAL_MOST_S = 1.0, 60.0
PEACE_S = 300.0
# Behind the watch: compares what is known already, and asks no server.
LOOK_S = 60.0


def posted_on(node: Node) -> Posted:
    owners = {
        resource: key.removeprefix(SIGNED)
        for key, names in node.metadata.annotations.items()
        if key.startswith(SIGNED)
        for resource in names.split(",")
        if resource
    }
    return Posted(node.status.capacity, node.status.allocatable, owners)


def patch_of(node: Node, change: AmountChange, owner: str) -> JsonPatch:
    """The change as one JSON patch, signature included."""
    ops: list[Op] = []
    places = (("capacity", node.status.capacity), ("allocatable", node.status.allocatable))
    for place, amounts in places:
        if change.put and not amounts:
            ops += _make(node, "status", place)
        ops += [put(str(number), "status", place, resource) for resource, number in change.put.items()]
        ops += [drop("status", place, resource) for resource in change.drop if resource in amounts]
    if change.signed and not node.metadata.annotations:
        ops += _make(node, "metadata", "annotations")
    return json_patch([*ops, *_signatures(node, change, SIGNED + owner)])


def _signatures(node: Node, change: AmountChange, mine: str) -> Iterator[Op]:
    """Ours, and those of others from whom we take a name over."""
    signatures = {key: text for key, text in node.metadata.annotations.items() if key.startswith(SIGNED)}
    for key, before in {mine: "", **signatures}.items():
        taken = {*change.signed, *change.drop}
        names = change.signed if key == mine else [name for name in before.split(",") if name not in taken]
        after = ",".join(names)
        if after and after != before:
            yield put(after, "metadata", "annotations", key)
        elif not after and key in signatures:
            yield drop("metadata", "annotations", key)


def _make(node: Node, *path: str) -> list[Op]:
    # A map cannot be added to before it is there, and making it would empty one that another has made meanwhile.
    return [expect(node.metadata.resource_version, "metadata", "resourceVersion"), put({}, *path)]


async def change_node(client: Client, node: Node, change: AmountChange, owner: str) -> Node:
    return await client.patch(NODES, node.name, patch_of(node, change, owner), Node, subresource="status")


class Publisher:
    """Keeps what is wanted on one node. Run it as a task; say what is wanted at any time."""

    def __init__(
        self,
        client: Client,
        watch: NodeWatch,
        owner: str,
        record: Record,
        on_problem: Callable[[str], None] = lambda _problem: None,
    ) -> None:
        self._client = client
        self._clock = client.clock
        self._watch = watch
        self._owner = owner
        self._record, self._on_problem = record, on_problem
        self._wanted: Mapping[str, int] | None = None
        self._adopt: frozenset[str] = frozenset()
        self._due = asyncio.Event()
        self._loop = SupervisedLoop(
            "amounts",
            self._reconcile,
            clock=self._clock,
            rng=client.rng,
            report=on_problem,
            record=record,
            due=self._due,
            describe=lambda error: f"amounts of node {watch.name!r}: {explain(error)}",
        )
        self._settled: Mapping[str, int] = {}  # what stood there, as wanted, at the last look
        self._undone = 0  # how often another client changed that
        self._undone_s = float("-inf")
        self._rival = ""  # the problem while another client keeps changing it

    def offer(self, inventory: Inventory, conditions: Conditions, amounts: Sequence[Amount]) -> None:
        self.want(
            count(inventory, conditions, amounts), frozenset(amount.resource for amount in amounts if amount.adopt)
        )

    def want(self, amounts: Mapping[str, int], adopt: frozenset[str] = frozenset()) -> None:
        """From now on these, and no others of this owner."""
        if (amounts, adopt) != (self._wanted, self._adopt):
            self._wanted, self._adopt = dict(amounts), adopt
            self._due.set()

    async def run(self) -> None:
        """Until cancelled. Leaves the amounts where they are: a restart must not take them from the scheduler."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch.run())
            tasks.create_task(self._follow())
            tasks.create_task(self._look())
            tasks.create_task(self._loop.run())

    async def _follow(self) -> None:
        async for _ in self._watch.latest.follow():
            self._due.set()

    async def _look(self) -> None:
        while True:
            await self._clock.sleep(LOOK_S)
            self._due.set()

    async def _reconcile(self) -> str:
        """Returns what is wrong and only others can change."""
        now = self._watch.latest.value
        if self._wanted is None:
            return ""
        if now.node is None:
            absent = f"there is no node {self._watch.name!r}. Is it the right name?" if now.complete else now.problem
            return absent and f"amounts: {absent}"
        posted = posted_on(now.node)
        change = needed_change(self._wanted, posted, self._owner, self._adopt)
        wanted = {resource: self._wanted[resource] for resource in change.signed}
        if change.empty:
            self._settled = wanted
            return self._standing(change, now.problem)
        undone = {name for name, number in change.put.items() if self._settled.get(name) == number}
        if undone:
            self._settled = {}
            await self._answer(undone, posted)
            self._due.set()  # the node may have changed during the wait
            return self._rival
        node = await change_node(self._client, now.node, change, self._owner)
        self._settled = wanted
        self._watch.put(node)
        self._record("amounts-set", node=node.name, **_facts(change))
        return self._standing(change, "")

    async def _answer(self, undone: set[str], posted: Posted) -> None:
        """The first time it is a kubelet that restarted. After many times the next change waits, longer each time."""
        self._undone = 1 if self._is_peace() else self._undone + 1
        self._undone_s = self._clock.monotonic()
        found = " ".join(f"{name}={posted.capacity.get(name, 'none')}" for name in sorted(undone))
        self._record("amounts-undone", node=self._watch.name, found=found)
        if self._undone > RIVAL_AFTER:
            self._rival = (
                f"another client keeps changing amounts of node {self._watch.name!r} ({found}). "
                "Does a device plugin offer the same name?"
            )
            self._on_problem(self._rival)
            attempt = self._undone - RIVAL_AFTER - 1
            await self._clock.sleep(wait_s(attempt, self._client.rng, first_s=RIVAL_FIRST_S, most_s=RIVAL_MOST_S))

    def _standing(self, change: AmountChange, problem: str) -> str:
        if self._rival and not self._is_peace():
            return self._rival
        self._rival = ""
        refused = "; ".join(f"{resource} is not published: {why}" for resource, why in sorted(change.refused.items()))
        return "; ".join(filter(None, (refused, problem)))

    def _is_peace(self) -> bool:
        return self._clock.monotonic() - self._undone_s > PEACE_S


def _facts(change: AmountChange) -> dict[str, object]:
    facts: dict[str, object] = {}
    if change.put:
        facts["set"] = [f"{resource}={number}" for resource, number in sorted(change.put.items())]
    if change.drop:
        facts["removed"] = list(change.drop)
    return facts
