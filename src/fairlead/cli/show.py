"""Draws what `report` tells: status, plan, devices, explanation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fairlead.cli.draw import HEALTH_STYLE, PHASE_STYLE, Cell, duration, memory, paint, short, table

SHOWN = 20  # of a list of slots; there may be 60,000


def status(answer: Mapping[str, Any]) -> str:
    now = answer["now_s"]
    head = (
        f"{paint('fairlead ' + answer['version'], 'bold')}  pid {answer['pid']}  "
        f"up {duration(now - answer['started_s'])}  config {answer['config']}"
    )
    blocks = [head, _resources(answer["resources"], now), _devices(answer["devices"], now)]
    notes = []
    if not answer["holders_known"]:
        notes.append(paint(f"who holds what is unknown: {answer['holders_problem']}", "dim"))
    notes += _notes(answer["resources"], prices=False)
    notes += [paint(f"! {problem}", "bad") for problem in answer["problems"]]
    if notes:
        blocks.append("\n".join(notes))
    return "\n\n".join(block for block in blocks if block)


def is_well(answer: Mapping[str, Any]) -> bool:
    """Whether all is registered and healthy, and something is offered."""
    registered = all(row["phase"] == "streaming" for row in answer["resources"])
    healthy = all(row["health"] == "healthy" for row in answer["devices"])
    return bool(registered and healthy and answer["resources"] and not answer["problems"])


def _notes(rows: Sequence[Mapping[str, Any]], *, prices: bool) -> list[str]:
    """`prices`: also those that are as they should be."""
    notes = [paint(f"{row['name']}: {row['note']}", "warn") for row in rows if row["note"]]
    return notes + [
        paint(f"{row['name']}: {row['stall']}", "warn" if row["stall_long"] else "dim")
        for row in rows
        if row["stall"] and (prices or row["stall_long"])
    ]


def _count(slots: int, unit_bytes: int) -> str:
    """`4`, or with a unit of memory `1024 x 16 MiB`."""
    return f"{slots} x {memory(unit_bytes)}" if unit_bytes else str(slots)


def _resources(rows: Sequence[Mapping[str, Any]], now: float) -> str:
    if not rows:
        return "no resource is offered"
    return table(
        ["RESOURCE", "SLOTS", "HEALTHY", "IN USE", "LEAVING", "PLACEMENT", "REGISTRATION", "SINCE", "WHY"],
        [
            [
                row["name"],
                _count(row["slots"], row["unit_bytes"]),
                Cell(row["healthy"], "good" if row["healthy"] == row["slots"] else "warn"),
                row["held"],
                row["retired"] or "",
                row["placement"],
                Cell(row["phase"], PHASE_STYLE.get(row["phase"], "warn")),
                duration(now - row["since_s"]),
                short(row["reason"], 60),
            ]
            for row in rows
        ],
        right=(1, 2, 3, 4, 7),
    )


def _devices(rows: Sequence[Mapping[str, Any]], now: float) -> str:
    if not rows:
        return "no device was found"
    return table(
        ["DEVICE", "ID", "MODEL", "MEMORY", "NUMA", "HEALTH", "SINCE", "CAUSE", "RESOURCE", "IN USE", "HELD BY"],
        [
            [
                row["index"],
                short(row["id"], 16),
                row["model"],
                memory(row["memory_bytes"]),
                ",".join(map(str, row["numa_nodes"])),
                Cell(row["health"], HEALTH_STYLE.get(row["health"], "")),
                duration(now - row["since_s"]) if row["since_s"] else "",
                short(row["cause"], 40),
                row["resource"] or Cell("left out", "dim"),
                f"{row['held']}/{row['slots']}" if row["slots"] else "",
                short(", ".join(row["holders"]), 48),
            ]
            for row in rows
        ],
        right=(3, 6, 9),
    )


def plan(answer: Mapping[str, Any]) -> str:
    blocks = []
    if answer["resources"]:
        blocks.append(
            table(
                ["RESOURCE", "DEVICES", "SLOTS", "PLACEMENT", "LIST", "OF LIMIT"],
                [
                    [
                        row["name"],
                        row["devices"],
                        _count(row["slots"], row["unit_bytes"]),
                        row["placement"],
                        f"{row['worst_bytes']:,} B",
                        Cell(
                            f"{row['worst_bytes'] / row['limit_bytes']:.1%}",
                            "bad" if row["worst_bytes"] > row["limit_bytes"] else "",
                        ),
                    ]
                    for row in answer["resources"]
                ],
                right=(1, 2, 4, 5),
            )
        )
    else:
        blocks.append("nothing would be offered" if not answer["amounts"] else "no device would be offered")
    if answer["amounts"]:
        amounts = [[row["name"], row["amount"]] for row in answer["amounts"]]
        blocks.append(table(["AMOUNT IN NODE STATUS", "NOW"], amounts, right=(1,)))
    blocks.append(
        table(
            ["DEVICE", "ID", "MODEL", "MEMORY", "NUMA", "RESOURCE", "RULE", "WHY"],
            [
                [
                    row["index"],
                    short(row["id"], 16),
                    row["model"],
                    memory(row["memory_bytes"]),
                    ",".join(map(str, row["numa_nodes"])),
                    row["resource"] or Cell("left out", "dim"),
                    row["rule"] or Cell("none", "dim"),
                    short(row["reason"], 70),
                ]
                for row in answer["devices"]
            ],
            right=(3,),
        )
        if answer["devices"]
        else "no device was found"
    )
    notes = [
        *_notes(answer["resources"], prices=True),
        *(paint(f"! {problem}", "bad") for problem in answer["problems"]),
    ]
    if notes:
        blocks.append("\n".join(notes))
    return "\n\n".join(blocks)


def devices(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return "no device was found"
    return table(
        ["DEVICE", "ID", "VENDOR", "MODEL", "MEMORY", "PCI", "NUMA", "NODES", "PART OF", "BACKEND"],
        [
            [
                row["index"],
                row["id"],
                row["vendor"],
                row["model"],
                memory(row["memory_bytes"]),
                row["pci_address"],
                ",".join(map(str, row["numa_nodes"])),
                short(" ".join(row["nodes"]), 40),
                short(row["parent"] or "", 16),
                row["backend"],
            ]
            for row in rows
        ],
        right=(4,),
    )


def explanation(answer: Mapping[str, Any]) -> str:
    asked = _count(answer["count"], answer["unit_bytes"])
    head = f"{asked} of {paint(answer['resource'], 'bold')} by {answer['placement']}, from {answer['available']} free"
    chosen = [f"  {paint(slot, 'good')}" for slot in answer["slots"][:SHOWN]]
    if len(answer["slots"]) > SHOWN:
        chosen.append(f"  and {len(answer['slots']) - SHOWN} more")
    blocks = ["\n".join([f"{head}:", *chosen])]
    if answer["fallback"]:
        blocks.append(f"decided by: {answer['fallback']}")
    if answer["devices"]:
        blocks.append(
            table(
                ["", "DEVICE", "ID", "SCORE", "WHY"],
                [
                    [
                        Cell("✓", "good") if row["picked"] else "",
                        row["index"],
                        short(row["device"], 16),
                        row["score"],
                        row["why"],
                    ]
                    for row in answer["devices"]
                ],
                right=(3,),
            )
        )
    if answer["left_out"]:
        rows = [[row["slot"], row["why"]] for row in answer["left_out"][:SHOWN]]
        more = len(answer["left_out"]) - len(rows)
        blocks.append("not offered:\n" + table(["SLOT", "WHY"], rows) + (f"\nand {more} more" if more else ""))
    blocks += answer["notes"]
    return "\n\n".join(blocks)
