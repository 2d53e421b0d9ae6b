"""Changes amounts in a node's status by hand, and keeps them there. What `fairlead node` does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

import click
from msgspec.structs import replace

from fairlead.cli.say import say
from fairlead.cluster.access import find_access
from fairlead.cluster.client import Client
from fairlead.cluster.errors import Conflict, Invalid
from fairlead.cluster.kinds import NODES
from fairlead.cluster.nodes import Node, NodeWatch
from fairlead.config.settings import environment
from fairlead.fronts.nodestatus.amounts import BY_HAND, Publisher, change_node, posted_on
from fairlead.kit.clock import SystemClock
from fairlead.kit.decoding import did_you_mean
from fairlead.kit.text import printable
from fairlead.model.errors import UsageError
from fairlead.policy.offering.amounts import AmountChange, Posted, amended, needed_change

T = TypeVar("T")
TRIES = 4  # the node may change between our look and our patch


class NodeAmounts:
    """The status of one node of one cluster."""

    def __init__(self, node: str | None, kubeconfig: str | None, context: str | None) -> None:
        self._environment = environment()
        self._kubeconfig, self._context = kubeconfig or "", context or ""
        self._node = node or self._environment.get("NODE_NAME", "")
        if not self._node:
            raise UsageError("which node? Name it with --node, or set NODE_NAME, as a pod can from its spec.nodeName")

    def read(self) -> Node:
        return self._run(self._get)

    def change(self, put: Mapping[str, int], drop: tuple[str, ...] = (), *, force: bool) -> Node:
        async def work(client: Client) -> Node:
            for last in (*(False,) * (TRIES - 1), True):
                found = await self._get(client)
                change = _plan(posted_on(found), put, drop, force=force)
                if change.empty:
                    return found
                try:
                    return await change_node(client, found, change, BY_HAND)
                except (Conflict, Invalid):
                    if last:
                        raise
            raise AssertionError  # the last try returns or raises

        return self._run(work)

    def keep(self, wanted: Mapping[str, int], *, force: bool) -> None:
        """Until Ctrl-C."""
        said = ""

        def problem(text: str) -> None:
            nonlocal said
            if text and text != said:
                say(text)
            said = text

        def record(kind: str, /, **keys: object) -> None:
            click.echo(printable(" ".join([kind, *(f"{key}={value}" for key, value in keys.items())])), err=True)

        async def work(client: Client) -> None:
            publisher = Publisher(client, NodeWatch(client, self._node), BY_HAND, record, problem)
            posted = posted_on(await self._get(client))
            publisher.want(amended(posted, BY_HAND, wanted), frozenset(wanted if force else ()))
            click.echo("fairlead: keeping them until Ctrl-C", err=True)
            await publisher.run()

        try:
            self._run(work)
        except KeyboardInterrupt:
            click.echo("fairlead: the amounts stay, and are no longer kept", err=True)

    def _run(self, work: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        async def run() -> T:
            clock = SystemClock()
            found = find_access(self._environment, clock, kubeconfig=self._kubeconfig, context=self._context)
            client = Client(found, clock)
            try:
                return await work(client)
            finally:
                await client.close()

        return asyncio.run(run())

    async def _get(self, client: Client) -> Node:
        return await client.get(NODES, self._node, Node)


def _plan(posted: Posted, put: Mapping[str, int], drop: tuple[str, ...], *, force: bool) -> AmountChange:
    problems = []
    for resource in drop:
        owner = posted.owners.get(resource)
        if resource not in posted and owner is None:
            known = [name for name, by in posted.owners.items() if by == BY_HAND]
            problems.append(f"{resource}: the node has none{did_you_mean(resource, known)}")
        elif owner != BY_HAND and not force:
            whose = f"the daemon {owner!r} keeps it" if owner else "it was not set by `fairlead node set`"
            problems.append(f"{resource}: {whose}. Remove it all the same with --force")
    change = needed_change(amended(posted, BY_HAND, put, drop), posted, BY_HAND, frozenset(put if force else ()))
    problems += [f"{name}: {why}. Set it all the same with --force" for name, why in sorted(change.refused.items())]
    if problems:
        raise UsageError("\n".join(problems))
    return replace(change, drop=tuple(sorted({*change.drop, *drop})))
