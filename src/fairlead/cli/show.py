"""Draws what `observe` makes: status, plan, devices, explanation. Tables of an ordinary node fit into 80 columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fairlead.cli.draw import HEALTH_STYLE, PHASE_STYLE, Cell, duration, memory, paint, short, table
from fairlead.observe.explanation import Explanation, PodReason
from fairlead.observe.journal import Fact, text_line
from fairlead.observe.plan import Holding, Plan, PlannedResource
from fairlead.observe.status import CordonStatus, DeviceFacts, DeviceStatus, ResourceStatus, Status

SHOWN = 20  # of a list of slots; there may be 60,000
NO_DEVICE = "no device was found"


def status(answer: Status) -> str:
    now = answer.now_s
    version = paint(f"fairlead {answer.version}", "bold")
    notes = [paint(f"{row.name}: {row.phase}: {row.reason}", "warn") for row in answer.resources if row.reason]
    if (found := answer.doctor) is not None:
        bad = "bad" if found.errors else "warn" if found.warnings else "dim"
        notes.append(paint(f"doctor, {duration(now - found.at_s)} ago: {found}", bad))
    notes += [paint(text, "warn") for text in answer.storms]
    if not answer.holders_known:
        notes.append(paint(f"who holds what is unknown: {answer.holders_problem}", "dim"))
    return _blocks(
        f"{version}  pid {answer.pid}  up {duration(now - answer.started_s)}  config {answer.config}",
        _resources(answer.resources, now),
        _devices(answer.devices),
        "\n".join(
            [*_causes(answer.devices, now), *_cordons(answer), *notes, *_notes(answer.resources, short_stalls=False)]
        ),
        _problems(answer.problems),
    )


def plan(answer: Plan) -> str:
    resources = table(
        ["RESOURCE", "DEVICES", "SLOTS", "PLACEMENT", "LIST", "OF LIMIT"],
        [
            [
                row.name,
                row.devices,
                _count(row.slots, row.unit_bytes),
                row.placement,
                f"{row.worst_bytes:,} B",
                Cell(f"{row.worst_bytes / row.limit_bytes:.1%}", "bad" if row.worst_bytes > row.limit_bytes else ""),
            ]
            for row in answer.resources
        ],
        right=(1, 2, 4, 5),
    )
    nothing = "nothing would be offered" if not answer.amounts else "no device would be offered"
    amounts = table(["AMOUNT IN NODE STATUS", "NOW"], [[row.name, row.amount] for row in answer.amounts], right=(1,))
    devices = table(
        ["DEVICE", "ID", "MODEL", "MEMORY", "NUMA", "RESOURCE", "WHY"],
        [
            [*_which(row), row.model, memory(row.memory_bytes), _numa(row), _offered_as(row.resource), row.reason]
            for row in answer.devices
        ],
        right=(3,),
        shared=(2, 3, 5),
        nouns="devices",
    )
    return _blocks(
        resources if answer.resources else nothing,
        amounts if answer.amounts else "",
        devices if answer.devices else NO_DEVICE,
        "\n".join(_notes(answer.resources, short_stalls=True)),
        _holding(answer.holding),
        _problems(answer.problems),
    )


def _holding(found: Holding) -> str:
    pods = {row.holder.rpartition("/")[0] for row in found.stranded}
    head = f"this configuration strands {len(pods)} pod{'s' * (len(pods) > 1)}, which keep their slots until they end:"
    rows = table(["HELD BY", "RESOURCE", "SLOTS"], [[row.holder, row.resource, row.slots] for row in found.stranded])
    return _blocks(
        "\n".join([paint(head, "warn"), rows]) if pods else "",
        paint(found.not_looked_at, "dim") if found.not_looked_at else "",
    )


def devices(rows: Sequence[DeviceFacts]) -> str:
    if not rows:
        return NO_DEVICE
    return table(
        ["DEVICE", "ID", "VENDOR", "MODEL", "MEMORY", "PCI", "NUMA", "NODES", "PART OF", "BACKEND"],
        [
            [
                row.index,
                row.id,
                row.vendor,
                row.model,
                memory(row.memory_bytes),
                row.pci_address,
                _numa(row),
                short(" ".join(row.nodes), 40),
                short(row.parent or "", 16),
                row.backend,
            ]
            for row in rows
        ],
        right=(4,),
        shared=(2, 3, 4, 9),
        nouns="devices",
    )


def explanation(answer: Explanation) -> str:
    chosen = [f"  {paint(slot, 'good')}" for slot in answer.slots[:SHOWN]]
    reasons = table(
        ["", "DEVICE", "ID", "FREE" if answer.assignment else "SCORE", "WHY"],
        [
            [Cell("✓", "good") if row.picked else "", row.index, short(row.device, 16), row.score, row.why]
            for row in answer.devices
        ],
        right=(3,),
    )
    left_out = table(["SLOT", "WHY"], [[row.slot, row.why] for row in answer.left_out[:SHOWN]])
    return _blocks(
        "\n".join([_choice(answer), *chosen, *_more(answer.slots, "  ")]),
        f"decided by: {answer.fallback}" if answer.fallback else "",
        reasons if answer.devices else "",
        _other_pods(answer.assignment.others) if answer.assignment else "",
        "\n".join(["not offered:", left_out, *_more(answer.left_out)]) if answer.left_out else "",
        *answer.notes,
    )


def journal(rows: Sequence[Mapping[str, Any]]) -> str:
    def line(row: Mapping[str, Any]) -> str:
        keys = {key: value for key, value in row.items() if key not in {"seq", "at_s", "event"}}
        return text_line(Fact(row["seq"], row["at_s"], row["event"], keys))

    return "\n".join(map(line, rows))


def _choice(answer: Explanation) -> str:
    asked = f"{_count(answer.count, answer.unit_bytes)} of {paint(answer.resource, 'bold')}"
    assignment = answer.assignment
    if assignment is None:
        return f"{asked} by {answer.placement}, from {answer.available} free:"
    if assignment.reason:
        return f"{asked} would be refused: {assignment.reason}"
    index = {row.device: row.index or row.device for row in answer.devices}
    devices = ", ".join(index.get(device, device) for device in assignment.devices)
    if not assignment.pod:
        return f"{asked} would be on device {devices}, the only one: no pod names another"
    return (
        f"{asked} would be for container {assignment.container} of {paint(assignment.pod, 'bold')},\n"
        f"on device {devices}, by its annotation {assignment.annotation}:"
    )


def _other_pods(others: Sequence[PodReason]) -> str:
    rows = [[row.pod, row.why] for row in others[:SHOWN]]
    return "\n".join(["not for:", table(["POD", "WHY"], rows), *_more(others)]) if others else ""


# --- Parts ------------------------------------------------------------------------------------------------------------


def _blocks(*blocks: str) -> str:
    return "\n\n".join(block for block in blocks if block)


def _more(items: Sequence[object], indent: str = "") -> list[str]:
    return [f"{indent}and {len(items) - SHOWN} more"] if len(items) > SHOWN else []


def _problems(problems: Sequence[str]) -> str:
    return "\n".join(paint(f"! {problem}", "bad") for problem in problems)


def _notes(rows: Sequence[ResourceStatus | PlannedResource], *, short_stalls: bool) -> list[str]:
    """`short_stalls`: also those that are as they should be."""
    notes = [paint(f"{row.name}: {row.note}", "warn") for row in rows if row.note]
    return notes + [
        paint(f"{row.name}: {row.stall}", "warn" if row.stall_long else "dim")
        for row in rows
        if row.stall and (short_stalls or row.stall_long)
    ]


def _causes(rows: Sequence[DeviceStatus], now: float) -> list[str]:
    lines = []
    for row in rows:
        if row.cause:
            age = f" for {duration(now - row.since_s)}" if row.since_s else ""
            text = f"device {row.index or row.id}: {row.health}{age}: {row.cause}"
            lines.append(paint(text, HEALTH_STYLE.get(row.health, "")))
    return lines


def _cordons(answer: Status) -> list[str]:
    """Those that no cause of a device shows: it has a fault as well, or is not there."""
    shown = {row.id for row in answer.devices if row.cause.startswith("cordoned")}
    shown |= {row.parent for row in answer.devices if row.id in shown and row.parent}
    rows = [row for row in answer.cordons if row.device not in shown]
    return [paint(f"device {row.device}: cordoned {_term(row, answer.now_s)}: {row.reason}", "warn") for row in rows]


def cordons(rows: Sequence[CordonStatus], now_s: float) -> str:
    if not rows:
        return "no device is cordoned"
    return table(["DEVICE", "CORDONED", "REASON"], [[row.device, _term(row, now_s), row.reason] for row in rows])


def _term(row: CordonStatus, now_s: float) -> str:
    left = "" if row.until_s is None else f", {duration(row.until_s - now_s)} left"
    return f"for {duration(now_s - row.since_s)}{left}"


def _count(slots: int, unit_bytes: int) -> str:
    """`4`, or with a unit of memory `1024 x 16 MiB`."""
    return f"{slots} x {memory(unit_bytes)}" if unit_bytes else str(slots)


def _which(row: DeviceFacts) -> tuple[str, str]:
    return row.index, short(row.id, 16)


def _numa(row: DeviceFacts) -> str:
    return ",".join(map(str, row.numa_nodes))


def _offered_as(resource: str | None) -> Cell:
    return Cell(resource) if resource else Cell("left out", "dim")


def _resources(rows: Sequence[ResourceStatus], now: float) -> str:
    if not rows:
        return "no resource is offered"
    return table(
        ["RESOURCE", "SLOTS", "HEALTHY", "IN USE", "LEAVING", "PLACEMENT", "REGISTRATION", "SINCE"],
        [
            [
                row.name,
                _count(row.slots, row.unit_bytes),
                Cell(row.healthy, "good" if row.healthy == row.slots else "warn"),
                row.held,
                row.retired or "",
                row.placement,
                Cell(row.phase, PHASE_STYLE.get(row.phase, "warn")),
                duration(now - row.since_s),
            ]
            for row in rows
        ],
        right=(1, 2, 3, 4, 7),
    )


def _devices(rows: Sequence[DeviceStatus]) -> str:
    if not rows:
        return NO_DEVICE
    return table(
        ["DEVICE", "ID", "MODEL", "MEMORY", "NUMA", "HEALTH", "RESOURCE", "IN USE", "HELD BY"],
        [
            [
                *_which(row),
                row.model,
                memory(row.memory_bytes),
                _numa(row),
                Cell(row.health, HEALTH_STYLE.get(row.health, "")),
                _offered_as(row.resource),
                f"{row.held}/{row.slots}" if row.slots else "",
                short(", ".join(row.holders), 48),
            ]
            for row in rows
        ],
        right=(3, 7),
        shared=(2, 3, 6),
        nouns="devices",
    )
