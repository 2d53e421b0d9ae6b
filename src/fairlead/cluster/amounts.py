"""Amounts in a node's status: read, changed by one JSON patch, and kept there whoever resets them.

Each owner signs for its names in an annotation of its own, in the same patch: so it knows after a restart what to take
away, and never takes away what is not its own. An annotation may be set through the status, so one rule is enough.

The kubelet copies the capacity of a name it does not know into allocatable with its next report; both are written here,
so that the scheduler need not wait for that. It sets them to 0 when it registers its node before there is anything in
its plug-in directory, and a node that is made anew has none: the watch sees it, and they are set again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping

from fairlead.cluster.backoff import wait_s
from fairlead.cluster.client import Client
from fairlead.cluster.errors import ClusterError
from fairlead.cluster.kinds import NODES
from fairlead.cluster.nodes import Node, NodeWatch
from fairlead.cluster.patches import JsonPatch, Op, drop, expect, json_patch, put
from fairlead.policy.amounts import Plan, Posted, plan

SIGNED = "amounts.fairlead/"  # and the owner's name
BY_HAND = "by-hand"  # who signs for `fairlead node set`

# Somebody who keeps setting another amount is answered more and more slowly.
FIGHT_AFTER = 3
FIGHT_FIRST_S, FIGHT_MOST_S = 1.0, 60.0
PEACE_S = 300.0
# Behind the watch: compares what is known already, and asks nobody.
LOOK_S = 60.0


Record = Callable[..., None]  # an event and its keys


def posted_on(node: Node) -> Posted:
    owners = {
        resource: key.removeprefix(SIGNED)
        for key, names in node.metadata.annotations.items()
        if key.startswith(SIGNED)
        for resource in names.split(",")
        if resource
    }
    return Posted(node.status.capacity, node.status.allocatable, owners)


def patch_of(node: Node, change: Plan, owner: str) -> JsonPatch:
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


def _signatures(node: Node, change: Plan, mine: str) -> Iterator[Op]:
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


async def change_node(client: Client, node: Node, change: Plan, owner: str) -> Node:
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
        self._watch = watch
        self._owner = owner
        self._record = record
        self._on_problem = on_problem
        self._wanted: Mapping[str, int] | None = None
        self._adopt: frozenset[str] = frozenset()
        self._stir = asyncio.Event()
        self._settled: Mapping[str, int] = {}  # what stood there, as wanted, when last looked
        self._undone = 0  # how often that was changed by somebody else
        self._undone_s = float("-inf")

    def want(self, amounts: Mapping[str, int], adopt: frozenset[str] = frozenset()) -> None:
        """From now on these, and no others of this owner."""
        if (amounts, adopt) != (self._wanted, self._adopt):
            self._wanted, self._adopt = dict(amounts), adopt
            self._stir.set()

    async def run(self) -> None:
        """Until cancelled. Leaves the amounts where they are: a restart must not take them from the scheduler."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch.run())
            tasks.create_task(self._notice())
            tasks.create_task(self._look())
            tasks.create_task(self._keep())

    async def _notice(self) -> None:
        async for _ in self._watch.latest.follow():
            self._stir.set()

    async def _look(self) -> None:
        while True:
            await self._client.clock.sleep(LOOK_S)
            self._stir.set()

    async def _keep(self) -> None:
        failures = 0
        while True:
            await self._stir.wait()
            self._stir.clear()
            try:
                await self._reconcile()
                failures = 0
            except ClusterError as error:
                self._on_problem(f"amounts of node {self._watch.name!r}: {error}")
                await self._client.clock.sleep(wait_s(failures, self._client.rng, asked_s=error.retry_after_s))
                failures += 1
                self._stir.set()

    async def _reconcile(self) -> None:
        now = self._watch.latest.value
        if self._wanted is None:
            return
        if now.node is None:
            absent = f"there is no node {self._watch.name!r}. Is it the right name?" if now.complete else now.problem
            self._on_problem(absent and f"amounts: {absent}")
            return
        posted = posted_on(now.node)
        change = plan(self._wanted, posted, self._owner, self._adopt)
        if change.empty:
            self._settled = {resource: self._wanted[resource] for resource in change.signed}
            self._tell(change, now.problem)
            return
        undone = {name for name, number in change.put.items() if self._settled.get(name) == number}
        if undone:
            await self._answer(undone, posted)
            self._stir.set()  # things may have changed while we waited
            self._settled = {}
            return
        wanted = {resource: self._wanted[resource] for resource in change.signed}
        node = await change_node(self._client, now.node, change, self._owner)
        self._settled = wanted
        self._watch.put(node)
        self._record("amounts-set", node=node.name, **_facts(change))
        self._tell(change, "")

    async def _answer(self, undone: set[str], posted: Posted) -> None:
        """Somebody changed what was right. The first time is a kubelet that restarted; many times are a fight."""
        clock = self._client.clock
        self._undone = 1 if self._is_peace() else self._undone + 1
        self._undone_s = clock.monotonic()
        told = " ".join(f"{name}={posted.capacity.get(name, 'none')}" for name in sorted(undone))
        self._record("amounts-undone", node=self._watch.name, found=told)
        if self._undone > FIGHT_AFTER:
            self._on_problem(
                f"somebody else keeps changing amounts of node {self._watch.name!r} ({told}). "
                "Does a device plugin offer the same name?"
            )
            attempt = self._undone - FIGHT_AFTER - 1
            await clock.sleep(wait_s(attempt, self._client.rng, first_s=FIGHT_FIRST_S, most_s=FIGHT_MOST_S))

    def _tell(self, change: Plan, problem: str) -> None:
        refused = "; ".join(f"{resource} is not published: {why}" for resource, why in sorted(change.refused.items()))
        if self._undone <= FIGHT_AFTER or self._is_peace():
            self._on_problem("; ".join(filter(None, (refused, problem))))

    def _is_peace(self) -> bool:
        return self._client.clock.monotonic() - self._undone_s > PEACE_S


def _facts(change: Plan) -> dict[str, object]:
    facts: dict[str, object] = {}
    if change.put:
        facts["set"] = [f"{resource}={number}" for resource, number in sorted(change.put.items())]
    if change.drop:
        facts["removed"] = list(change.drop)
    return facts
