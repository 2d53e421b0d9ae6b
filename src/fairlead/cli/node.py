"""`fairlead node`: amounts in a node's status, by hand. Asks the API server, not a daemon."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fairlead.cli.explained import Listed
from fairlead.cli.options import json_option
from fairlead.model.errors import InvalidName, InvalidQuantity, UsageError
from fairlead.model.names import parse_resource_name
from fairlead.model.quantity import parse_amount

if TYPE_CHECKING:
    from fairlead.cli.nodeamounts import NodeAmounts
    from fairlead.cluster.nodes import Node

F = TypeVar("F", bound=Callable[..., Any])


def where_options(function: F) -> F:
    options = (
        click.option("--node", metavar="NAME", help="The node. [NODE_NAME]"),
        click.option("--kubeconfig", metavar="FILE", help="How to reach the cluster. [KUBECONFIG]"),
        click.option("--context", metavar="NAME", help="The context of the kubeconfig. Default: its current one."),
    )
    for option in reversed(options):
        function = option(function)
    return function


force_option = click.option("--force", is_flag=True, help="Even if it was set by another.")


def _amounts_of(where: dict[str, str | None]) -> NodeAmounts:
    from fairlead.cli.nodeamounts import NodeAmounts  # noqa: PLC0415 - loads what speaks to clusters

    return NodeAmounts(**where)


@click.group(cls=Listed)
def node() -> None:
    """Publish amounts without devices in a node's status."""


@node.command("show")
@where_options
@json_option
def show(as_json: bool, **where: str | None) -> None:
    """Show the extended resources of a node, and who has set them."""
    _print(_amounts_of(where).read(), as_json)


@node.command("set")
@click.argument("amounts", nargs=-1, required=True, metavar="NAME=AMOUNT...")
@where_options
@force_option
@click.option("--keep", is_flag=True, help="Stay, and set them again whenever they are reset. Ctrl-C ends it.")
@json_option
def set_(amounts: tuple[str, ...], force: bool, keep: bool, as_json: bool, **where: str | None) -> None:
    """Publish amounts in a node's status: capacity and allocatable.

    \b
      fairlead node set --node worker-1 example.com/gpu-core=800 example.com/licences=5
    """  # noqa: D301 - click reads this backspace as "keep the lines"
    wanted = _parse(amounts)
    status = _amounts_of(where)
    _print(status.change(wanted, force=force), as_json)
    if keep:
        status.keep(wanted, force=force)


@node.command("unset")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@where_options
@force_option
@json_option
def unset(names: tuple[str, ...], force: bool, as_json: bool, **where: str | None) -> None:
    """Take amounts out of a node's status again."""
    _check(_fault(partial(parse_resource_name, name)) for name in names)
    _print(_amounts_of(where).change({}, names, force=force), as_json)


# --- What is given ----------------------------------------------------------------------------------------------------


def _parse(texts: Iterable[str]) -> dict[str, int]:
    wanted: dict[str, int] = {}

    def take(text: str) -> None:
        name, equals, amount = text.rpartition("=")
        if not equals:
            raise UsageError(f"{text!r} is not of the form NAME=AMOUNT, such as example.com/gpu-core=800")
        resource = parse_resource_name(name)
        if resource in wanted:
            raise UsageError(f"{name} is given twice")
        wanted[resource] = parse_amount(amount)

    _check(_fault(partial(take, text)) for text in texts)
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


# --- What is shown ----------------------------------------------------------------------------------------------------


def _print(found: Node, as_json: bool) -> None:
    from fairlead.cli.draw import table  # noqa: PLC0415 - as below
    from fairlead.fronts.nodestatus.amounts import posted_on  # noqa: PLC0415 - loaded by now

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
    elif not rows:
        click.echo(f"node {found.name} has no extended resources")
    else:
        shown = [[*(row[key] or "" for key in ("resource", "capacity", "allocatable")), _by(row)] for row in rows]
        headers = ["RESOURCE", "CAPACITY", "ALLOCATABLE", "SET BY"]
        click.echo(f"node {found.name}\n\n{table(headers, shown, right=(1, 2))}")


def _by(row: dict[str, str | None]) -> str:
    owner = row["set_by"]
    if owner is None:
        return "a device plugin, or others"
    return "fairlead node set" if owner == "by-hand" else f"daemon {owner}"
