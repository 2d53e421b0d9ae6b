"""`fairlead inspect`, `fairlead why` and `fairlead simulate`: the scheduler's side, for people. Change nothing."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fairlead.cli.draw import Cell, table
from fairlead.cli.options import json_option, print_json
from fairlead.config.settings import environment
from fairlead.kit.text import printable
from fairlead.model.errors import UsageError

if TYPE_CHECKING:
    from fairlead.programs.packing import Cluster, Inspection, NodeRow, Placement, Why

F = TypeVar("F", bound=Callable[..., Any])
BAR = 10  # characters of a device
UNPLACED = 1  # exit code


def where_options(function: F) -> F:
    for option in reversed(
        (
            click.option("--snapshot", metavar="FILE", help="Nodes and pods from a file, not from the cluster."),
            click.option("--config", metavar="FILE", help="That of the extender. [FAIRLEAD_SCHEDULER]"),
            click.option("--kubeconfig", metavar="FILE", help="How to reach the cluster. [KUBECONFIG]"),
        )
    ):
        function = option(function)
    return function


@click.command()
@click.argument("node", required=False, default="")
@click.option("--resource", default="", metavar="NAME", help="Only this resource.")
@click.option("--pods", is_flag=True, help="Each pod, by device.")
@where_options
@json_option
def inspect(node: str, resource: str, pods: bool, as_json: bool, **where: str | None) -> None:
    """Show what is taken of each device, on each node.

    Also: what is free in parts, on devices that pods are on, and the largest pod that still fits.
    """
    from fairlead.programs.packing import inspect as look  # noqa: PLC0415 - loads what speaks to clusters

    found = look(_cluster(where), node, resource)
    if as_json:
        print_json(found)
        return
    if not found.nodes:
        raise UsageError(f"no node {node + ' ' if node else ''}offers such devices")
    click.echo(show_inspection(found, pods=pods))


@click.command()
@click.argument("pod")
@click.option("-n", "--namespace", default="default", show_default=True, help="Of the pod.")
@where_options
@json_option
def why(pod: str, namespace: str, as_json: bool, **where: str | None) -> None:
    """Say why a pod waits.

    For each node what is missing, from the same code as the extender's filter; or where it fits.
    """
    from fairlead.programs.packing import why as ask  # noqa: PLC0415 - as above

    name = pod if "/" in pod else f"{namespace}/{pod}"
    found = ask(_cluster(where), name)
    if found is None:
        raise UsageError(f"there is no pod {name}. Name its namespace with -n")
    if as_json:
        print_json(found)
    else:
        click.echo("\n".join(printable(line) for line in show_why(found).splitlines()))


@click.command()
@click.argument("file")
@where_options
@json_option
def simulate(file: str, as_json: bool, **where: str | None) -> None:
    """Say whether the pods of a file would fit, and where.

    Ends with 1 if one does not. Nothing is written.
    """
    from fairlead.programs.packing import read_objects  # noqa: PLC0415 - as above
    from fairlead.programs.packing import simulate as place  # noqa: PLC0415 - as above

    _, pods = read_objects(file)
    if not pods:
        raise UsageError(f"{file} has no pods")
    placed = place(_cluster(where), pods)
    if as_json:
        print_json(placed)
    else:
        click.echo(show_placements(placed))
    if any(not one.node for one in placed):
        sys.exit(UNPLACED)


def _cluster(where: dict[str, str | None]) -> Cluster:
    from fairlead.cli.scheduler import read_spec  # noqa: PLC0415 - as above
    from fairlead.programs.packing import read_cluster, read_file  # noqa: PLC0415 - as above

    spec = read_spec(where["config"])
    if where["snapshot"]:
        return read_file(where["snapshot"], spec.terms())
    from fairlead.cluster.access import find_access  # noqa: PLC0415 - as above
    from fairlead.cluster.client import Client  # noqa: PLC0415 - as above
    from fairlead.kit.clock import SystemClock  # noqa: PLC0415 - as above

    clock = SystemClock()
    access = find_access(environment(), clock, kubeconfig=where["kubeconfig"] or spec.kubeconfig)
    return asyncio.run(read_cluster(Client(access, clock), spec.terms()))


# --- For people -------------------------------------------------------------------------------------------------------


def show_inspection(found: Inspection, *, pods: bool) -> str:
    blocks = []
    for resource in dict.fromkeys(row.resource for row in found.nodes):
        rows = [row for row in found.nodes if row.resource == resource]
        blocks.append(f"{resource}\n\n{_nodes(rows)}")
        if pods:
            blocks.append(_pods(rows))
        used, units = sum(row.used for row in rows), sum(row.units for row in rows)
        largest = max((row.largest for row in rows), default=0)
        blocks.append(
            f"{used:,} of {units:,} are taken ({used / units:.0%}). The largest pod that still fits on one device asks "
            f"for {max(largest, 0):,}."
        )
    if found.waiting:
        count = len(found.waiting)
        verb = "pod waits" if count == 1 else "pods wait"
        blocks.append(f"{count} {verb}: {_some(found.waiting[:5], count)}. See fairlead why POD")
    blocks += [f"not counted: {text}" for text in found.faults[:10]]
    return "\n\n".join(blocks)


def _nodes(rows: Sequence[NodeRow]) -> str:
    return table(
        ["NODE", "DEVICES", "TAKEN", "OF", "LARGEST FREE", "FREE IN PARTS"],
        [
            [row.node, " ".join(map(_bar, row.devices)), row.used, row.units, max(row.largest, 0), row.in_parts or ""]
            for row in rows
        ],
        right=(2, 3, 4, 5),
    )


def _bar(device: Any) -> str:
    if not device.usable:
        return f"{device.index}[{'unusable':^{BAR}}]"
    full = round(BAR * min(device.used / device.units, 1)) if device.units else 0
    return f"{device.index}[{'#' * full:.<{BAR}}]"


def _pods(rows: Sequence[NodeRow]) -> str:
    return table(
        ["NODE", "DEVICE", "POD", "TAKES"],
        [
            [row.node, device.index, tenant.pod, tenant.units]
            for row in rows
            for device in row.devices
            for tenant in device.pods
        ],
        right=(3,),
    )


def show_why(found: Why) -> str:
    lines = [f"pod {found.pod}"]
    lines += [f"asks for {text}" for text in found.asks]
    if found.node:
        lines.append(f"is on node {found.node}{f', but {found.note}' if found.note else ''}")
        return "\n".join(lines)
    if found.note:
        return "\n".join([*lines, found.note])
    if found.fits:
        lines += ["", f"It fits, best on {', '.join(found.fits)}. If it waits, kube-scheduler has another reason:"]
        lines.append(f"  kubectl describe pod {found.pod.partition('/')[2]} -n {found.pod.partition('/')[0]}")
        return "\n".join(lines)
    lines += ["", "It fits on no node:" if found.reasons else "No node offers such devices."]
    lines += [f"  {one.nodes:>5}  {one.text}  ({_some(one.examples, one.nodes)})" for one in found.reasons]
    return "\n".join(lines)


def _some(names: Sequence[str], count: int) -> str:
    return f"{', '.join(names)}{', …' if count > len(names) else ''}"


def show_placements(placed: Sequence[Placement]) -> str:
    rows = [
        [
            one.pod,
            "; ".join(one.asks),
            one.node or Cell("nowhere", "bad"),
            ",".join(one.devices),
            Cell(one.reason, "warn"),
        ]
        for one in placed
    ]
    missing = sum(not one.node for one in placed)
    all_fit = "the pod fits." if len(placed) == 1 else f"all {len(placed)} pods fit."
    end = f"{len(placed) - missing} of {len(placed)} pods fit." if missing else all_fit
    return f"{table(['POD', 'ASKS FOR', 'NODE', 'DEVICE', 'WHY'], rows)}\n\n{end}"
