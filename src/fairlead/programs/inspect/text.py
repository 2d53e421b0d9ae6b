"""A survey of GPU memory as text: the tables of `kubectl inspect gpushare`, to the space, and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fairlead.programs.inspect.survey import NodeRow, Survey

Line = Sequence[str]  # cells; all but the last are parts of columns, as if each ended with a tab
_GAP = 2
_RULE_MAX = 120  # the original's grows with every pod
IN_CLUSTER = "Allocated/Total GPU Memory In Cluster:"


def summary(found: Survey) -> str:
    """A line for each node, a column for each GPU."""
    indexes = sorted({index for node in found.nodes for index in node.indexes})
    pending = any(node.pending for node in found.nodes)
    unit = f"({found.unit})" if found.unit else ""
    heads = [f"GPU{index}(Allocated/Total)" for index in indexes]
    lines: list[Line] = [["NAME", "IPADDRESS", *heads, *["PENDING(Allocated)"] * pending, f"GPU Memory{unit}"]]
    for node in found.nodes:
        gpus = [f"{node.allocated_on(index)}/{node.total_of(index)}" for index in indexes]
        waiting = [str(node.pending or "")] * pending
        lines.append([node.name, node.address, *gpus, *waiting, f"{node.allocated}/{node.total}"])
    rule = len("\t".join(lines[1])) + 21 if found.nodes else 0
    return _align([*lines, ["-" * rule], [IN_CLUSTER], [_share(found), ""]])


def details(found: Survey) -> str:
    """A table for each node, a line for each pod."""
    lines: list[Line] = []
    rule = 0
    for node in found.nodes:
        pods = list(_pods(node))
        rule = rule or min(sum(len("\t".join(line)) + 1 for line in pods) + 10, _RULE_MAX)
        heads = [f"GPU{index}(Allocated)" for index in node.indexes]
        waiting = ["Pending(Allocated)"] * bool(node.pending)
        lines += [
            [""],
            ["NAME:", node.name],
            ["IPADDRESS:", node.address],
            [""],
            ["NAME", "NAMESPACE", *heads, *waiting, ""],
            *pods,
            ["Allocated :", f"{node.allocated} ({_percent(node)}%)", ""],
            ["Total :", f"{node.total} ", ""],
            ["-" * rule],
        ]
    return _align([*lines, [""], [""], [IN_CLUSTER, _share(found), ""]])


def as_json(found: Survey) -> dict[str, Any]:
    return {
        "unit": found.unit or None,
        "allocated": found.allocated,
        "total": found.total,
        "nodes": [
            {
                "name": node.name,
                "address": node.address,
                "unit": node.unit or None,
                "allocated": node.allocated,
                "total": node.total,
                "pending": node.pending,
                "gpus": [
                    {"index": index, "allocated": node.allocated_on(index), "total": node.total_of(index)}
                    for index in node.indexes
                ],
                "pods": [
                    {
                        "namespace": pod.namespace,
                        "name": pod.name,
                        "gpus": [{"index": index, "allocated": units} for index, units in pod.gpus.items()],
                        "pending": pod.pending,
                    }
                    for pod in node.pods
                ],
            }
            for node in found.nodes
        ],
        "notes": list(found.notes),
    }


def _pods(node: NodeRow) -> Iterator[Line]:
    for pod in node.pods:
        gpus = [str(pod.gpus.get(index, 0)) for index in node.indexes]
        waiting = [str(pod.pending)] * bool(node.pending)
        yield [pod.name, pod.namespace, *gpus, *waiting, ""]


def _share(some: Survey | NodeRow) -> str:
    return f"{some.allocated}/{some.total} ({_percent(some)}%)"


def _percent(some: Survey | NodeRow) -> int:
    return some.allocated * 100 // some.total if some.total else 0


def _align(lines: Sequence[Line]) -> str:
    """As Go's tabwriter: a column is as wide as its cells in the lines above and below, up to one without it."""
    widths = [[0] * (len(line) - 1) for line in lines]
    for column in range(max(map(len, widths), default=0)):
        run: list[int] = []
        for number in range(len(lines) + 1):
            if number < len(lines) and column < len(widths[number]):
                run.append(number)
                continue
            widest = max((len(lines[one][column]) for one in run), default=0)
            for one in run:
                widths[one][column] = widest + _GAP
            run = []
    shown = (
        "".join(cell.ljust(width) for cell, width in zip(line, (*wide, 0), strict=True))
        for line, wide in zip(lines, widths, strict=True)
    )
    return "".join(f"{line}\n" for line in shown)
