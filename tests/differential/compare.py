"""Recorded traces, the list of known differences, and the comparison of two traces.

Owns both files. Must not know how a trace comes about.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from tests.differential.stage import Scenario
from tests.differential.trace import Trace

HERE = Path(__file__).parent
RECORDED = HERE / "recorded"
KNOWN = HERE / "known.json"


class Difference(msgspec.Struct, frozen=True):
    """What the stand-in shows where the true kubelet shows something else."""

    scenario: str
    looked_at: str
    kubelet: Any
    standin: Any


class Known(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A difference that is there to stay, and why."""

    id: str
    why: str
    scenario: str
    looked_at: str
    standin: Any


def recorded(scenario: Scenario) -> Trace | None:
    """What the true kubelet did, None if it has not played this scenario yet."""
    file = RECORDED / f"{scenario.group}.json"
    traces: Mapping[str, Trace] = json.loads(file.read_text()) if file.exists() else {}
    return traces.get(scenario.name)


def record(scenario: Scenario, trace: Trace, known_names: Collection[str]) -> None:
    """Writes the trace in place of the old one. Those of scenarios that are gone leave the file."""
    file = RECORDED / f"{scenario.group}.json"
    before: dict[str, Trace] = json.loads(file.read_text()) if file.exists() else {}
    before[scenario.name] = trace
    RECORDED.mkdir(exist_ok=True)
    file.write_text(render({name: before[name] for name in sorted(before) if name in known_names}))


def known() -> list[Known]:
    return msgspec.json.decode(KNOWN.read_bytes(), type=list[Known])


def differences(scenario: str, kubelet: Trace, standin: Trace) -> list[Difference]:
    """Step by step. A step that one of them does not have is seen as None there."""
    true, ours = dict(_steps(kubelet)), dict(_steps(standin))
    return [
        Difference(scenario, step, true.get(step), ours.get(step))
        for step in dict.fromkeys([*true, *ours])
        if true.get(step) != ours.get(step)
    ]


def judge(found: Iterable[Difference], listed: Iterable[Known]) -> list[str]:
    """What is wrong: a difference that is not listed, or is another one now, or one that no longer occurs."""
    by_place = {(one.scenario, one.looked_at): one for one in listed}
    wrong = []
    for one in found:
        entry = by_place.pop((one.scenario, one.looked_at), None)
        if entry is None:
            wrong.append(_beside(one.looked_at, "kubelet", one.kubelet, one.standin))
        elif entry.standin != one.standin:
            wrong.append(_beside(f"{one.looked_at} ({entry.id})", "listed", entry.standin, one.standin))
    left = by_place.values()
    return wrong + [f"{one.looked_at}: {one.id} is listed as a difference, and no longer is one" for one in left]


def render(value: Any) -> str:
    """JSON with a line for each thing that was seen, so that a change of a recording can be read."""
    lines = ["{"]
    for number, (name, trace) in enumerate(value.items()):
        lines.append(f" {json.dumps(name)}: [")
        steps = [f"  {_line(step)}" for step in trace]
        lines.append(",\n".join(steps))
        lines.append(" ]" + ("," if number < len(value) - 1 else ""))
    return "\n".join([*lines, "}"]) + "\n"


def _steps(trace: Trace) -> list[tuple[str, Any]]:
    names = [str(what) for what, _ in trace]
    assert len(names) == len(set(names)), f"two looks have one name: {names}"
    return [(str(what), seen) for what, seen in trace]


def _beside(place: str, who: str, what: Any, standin: Any) -> str:
    return f"{place}\n  {who}: {_line(what)}\n  stand-in: {_line(standin)}"


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)
