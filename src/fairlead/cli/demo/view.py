"""The live table of the demo, drawn with rich from a daemon's status."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fairlead.cli.draw import duration, memory, short
from fairlead.observe.status import Status

COLOURS = {"healthy": "green", "suspect": "yellow", "probation": "yellow", "unhealthy": "red", "streaming": "green"}


def draw(status: Status, keys: str) -> RenderableType:
    now = status.now_s
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name, justify in (
        ("", "left"),
        ("MODEL", "left"),
        ("MEMORY", "right"),
        ("NUMA", "right"),
        ("HEALTH", "left"),
        ("CAUSE", "left"),
        ("HELD BY", "left"),
    ):
        table.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]  # literals all
    for row in status.devices:
        table.add_row(
            row.index,
            row.model,
            memory(row.memory_bytes),
            ",".join(map(str, row.numa_nodes)),
            Text(row.health, style=COLOURS.get(row.health, "")),
            short(row.cause, 44),
            Text(", ".join(row.holders) or "free", style="bold" if row.holders else "dim"),
        )
    lines: list[RenderableType] = [Text(), table, Text()]
    for resource in status.resources:
        line = Text(f"{resource.name}  ", style="bold")
        line.append(f"{resource.healthy} of {resource.slots} healthy, {resource.held} in use   ", style="not bold")
        line.append(resource.phase, style=COLOURS.get(resource.phase, "yellow") + " not bold")
        line.append(f" for {duration(now - resource.since_s)}", style="dim not bold")
        lines.append(line)
    lines += [Text(f"! {problem}", style="red") for problem in status.problems]
    if keys:
        lines += [Text(), Text(keys, style="cyan")]
    return Group(*lines)
