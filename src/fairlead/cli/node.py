"""`fairlead node`: amounts in a node's status, by hand. Asks the API server, not a daemon."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fairlead.cli.say import say
from fairlead.model.errors import InvalidName, InvalidQuantity, UsageError
from fairlead.model.names import parse_resource_name
from fairlead.model.quantity import parse_amount
from fairlead.model.text import printable

if TYPE_CHECKING:
    from fairlead.cluster.client import Client
    from fairlead.cluster.nodes import Node
    from fairlead.policy.amounts import Plan, Posted

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
TRIES = 4  # somebody else may change the node between our look and our patch


class Where:
    """Which node of which cluster."""

    def __init__(self, kubeconfig: str | None, context: str | None, node: str | None) -> None:
        from fairlead.config.settings import environment  # noqa: PLC0415 - only these commands

        self._environment = environment()
        self._kubeconfig, self._context = kubeconfig or "", context or ""
        self.node = node or self._environment.get("NODE_NAME", "")
        if not self.node:
            raise UsageError("which node? Name it with --node, or set NODE_NAME, as a pod can from its spec.nodeName")

    def client(self) -> Client:
        from fairlead.cluster.access import find_access  # noqa: PLC0415 - loads what speaks to clusters
        from fairlead.cluster.client import Client  # noqa: PLC0415 - as above
        from fairlead.model.clock import SystemClock  # noqa: PLC0415 - as above

        clock = SystemClock()
        found = find_access(self._environment, clock, kubeconfig=self._kubeconfig, context=self._context)
        return Client(found, clock)


def where_options(function: F) -> F:
    options = (
        click.option("--node", metavar="NAME", help="The node. [NODE_NAME]"),
        click.option("--kubeconfig", metavar="FILE", help="How to reach the cluster. [KUBECONFIG]"),
        click.option("--context", metavar="NAME", help="The context of the kubeconfig. Default: its current one."),
    )
    for option in reversed(options):
        function = option(function)
    return function


json_option = click.option("--json", "as_json", is_flag=True, help="The answer as JSON.")
force_option = click.option("--force", is_flag=True, help="Even if somebody else has set it.")


@click.group()
def node() -> None:
    """Amounts without devices: what a node's status offers to the scheduler."""


@node.command("show")
@where_options
@json_option
def show(node: str | None, kubeconfig: str | None, context: str | None, as_json: bool) -> None:
    """Show the extended resources of a node, and who has set them."""
    where = Where(kubeconfig, context, node)
    found = asyncio.run(_with_client(where, lambda client: _get(client, where.node)))
    _print(found, as_json)


@node.command("set")
@click.argument("amounts", nargs=-1, required=True, metavar="NAME=AMOUNT...")
@where_options
@force_option
@click.option("--keep", is_flag=True, help="Stay, and set them again whenever somebody resets them. Ctrl-C ends it.")
@json_option
def set_(
    amounts: tuple[str, ...],
    node: str | None,
    kubeconfig: str | None,
    context: str | None,
    force: bool,
    keep: bool,
    as_json: bool,
) -> None:
    """Publish amounts in a node's status: capacity and allocatable.

    \b
      fairlead node set --node worker-1 example.com/gpu-core=800 example.com/licences=5
    """  # noqa: D301 - click reads this backspace as "keep the lines"
    wanted = _parse(amounts)
    where = Where(kubeconfig, context, node)
    found = asyncio.run(_with_client(where, lambda client: _change(client, where.node, wanted, (), force=force)))
    _print(found, as_json)
    if keep:
        _stay(where, wanted, force=force)


@node.command("unset")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@where_options
@force_option
@json_option
def unset(
    names: tuple[str, ...], node: str | None, kubeconfig: str | None, context: str | None, force: bool, as_json: bool
) -> None:
    """Take amounts out of a node's status again."""
    _check(_fault(partial(parse_resource_name, name)) for name in names)
    where = Where(kubeconfig, context, node)
    found = asyncio.run(_with_client(where, lambda client: _change(client, where.node, {}, names, force=force)))
    _print(found, as_json)


# --- What they do -----------------------------------------------------------------------------------------------------


def _parse(words: Iterable[str]) -> dict[str, int]:
    wanted: dict[str, int] = {}

    def take(word: str) -> None:
        name, equals, amount = word.rpartition("=")
        if not equals:
            raise UsageError(f"{word!r} is not of the form NAME=AMOUNT, such as example.com/gpu-core=800")
        resource = parse_resource_name(name)
        if resource in wanted:
            raise UsageError(f"{name} is given twice")
        wanted[resource] = parse_amount(amount)

    _check(_fault(partial(take, word)) for word in words)
    return wanted


def _fault(work: Callable[[], Any]) -> str:
    try:
        work()
    except (InvalidName, InvalidQuantity, UsageError) as error:
        return str(error)
    return ""


def _check(faults: Iterable[str]) -> None:
    """All of them at once."""
    if found := [fault for fault in faults if fault]:
        raise UsageError("\n".join(found))


async def _with_client(where: Where, work: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
    client = where.client()
    try:
        return await work(client)
    finally:
        await client.close()


async def _get(client: Client, name: str) -> Node:
    from fairlead.cluster.kinds import NODES  # noqa: PLC0415 - loaded by now
    from fairlead.cluster.nodes import Node  # noqa: PLC0415 - as above

    return await client.get(NODES, name, Node)


async def _change(client: Client, name: str, put: dict[str, int], drop: tuple[str, ...], *, force: bool) -> Node:
    from fairlead.cluster.amounts import BY_HAND, change_node, posted_on  # noqa: PLC0415 - as above
    from fairlead.cluster.errors import Conflict, Invalid  # noqa: PLC0415 - as above

    for last in (*(False,) * (TRIES - 1), True):
        found = await _get(client, name)
        change = _plan(posted_on(found), put, drop, force=force)
        if change.empty:
            return found
        try:
            return await change_node(client, found, change, BY_HAND)
        except (Conflict, Invalid):
            if last:
                raise
    raise AssertionError  # the last try returns or raises


def _plan(posted: Posted, put: dict[str, int], drop: tuple[str, ...], *, force: bool) -> Plan:
    from fairlead.backends.strict import did_you_mean  # noqa: PLC0415 - as above
    from fairlead.cluster.amounts import BY_HAND  # noqa: PLC0415 - as above
    from fairlead.policy.amounts import amended, plan  # noqa: PLC0415 - as above

    problems = []
    for resource in drop:
        owner = posted.owners.get(resource)
        if resource not in posted and owner is None:
            known = [name for name, by in posted.owners.items() if by == BY_HAND]
            problems.append(f"{resource}: the node has none{did_you_mean(resource, known)}")
        elif owner != BY_HAND and not force:
            whose = f"the daemon {owner!r} keeps it" if owner else "it was not set by `fairlead node set`"
            problems.append(f"{resource}: {whose}. Remove it all the same with --force")
    change = plan(amended(posted, BY_HAND, put, drop), posted, BY_HAND, frozenset(put if force else ()))
    problems += [f"{name}: {why}. Set it all the same with --force" for name, why in sorted(change.refused.items())]
    if problems:
        raise UsageError("\n".join(problems))
    from msgspec.structs import replace  # noqa: PLC0415 - as above

    return replace(change, drop=tuple(sorted({*change.drop, *drop})))


def _stay(where: Where, wanted: dict[str, int], *, force: bool) -> None:
    from fairlead.cluster.amounts import BY_HAND, Publisher, posted_on  # noqa: PLC0415 - as above
    from fairlead.cluster.nodes import NodeWatch  # noqa: PLC0415 - as above
    from fairlead.policy.amounts import amended  # noqa: PLC0415 - as above

    said = ""

    def problem(text: str) -> None:
        nonlocal said
        if text and text != said:
            say(text)
        said = text

    def record(kind: str, /, **keys: object) -> None:
        click.echo(printable(" ".join([kind, *(f"{key}={value}" for key, value in keys.items())])), err=True)

    async def keep(client: Client) -> None:
        publisher = Publisher(client, NodeWatch(client, where.node), BY_HAND, record, problem)
        posted = posted_on(await _get(client, where.node))
        publisher.want(amended(posted, BY_HAND, wanted), frozenset(wanted if force else ()))
        click.echo("fairlead: keeping them until Ctrl-C", err=True)
        await publisher.run()

    try:
        asyncio.run(_with_client(where, keep))
    except KeyboardInterrupt:
        click.echo("fairlead: the amounts stay, and nobody keeps them now", err=True)


# --- What they show ---------------------------------------------------------------------------------------------------


def _print(found: Node, as_json: bool) -> None:
    from fairlead.cluster.amounts import posted_on  # noqa: PLC0415 - as above

    posted = posted_on(found)
    names = sorted(
        name for name in {*posted.capacity, *posted.allocatable} if "/" in name and "kubernetes.io/" not in name
    )
    rows = [
        {
            "resource": name,
            "capacity": posted.capacity.get(name),
            "allocatable": posted.allocatable.get(name),
            "set_by": posted.owners.get(name),
        }
        for name in names
    ]
    if as_json:
        click.echo(json.dumps({"node": found.name, "resources": rows}, indent=2))
        return
    from fairlead.cli.draw import table  # noqa: PLC0415 - for people only

    if not rows:
        click.echo(f"node {found.name} has no extended resources")
        return
    shown = [[row["resource"], row["capacity"] or "", row["allocatable"] or "", _whose(row["set_by"])] for row in rows]
    click.echo(f"node {found.name}\n\n{table(['RESOURCE', 'CAPACITY', 'ALLOCATABLE', 'SET BY'], shown, right=(1, 2))}")


def _whose(owner: str | None) -> str:
    if owner is None:
        return "a device plugin, or others"
    return "fairlead node set" if owner == "by-hand" else f"daemon {owner}"
