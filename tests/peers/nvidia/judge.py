"""Judges a whole result of ours by one of NVIDIA's plugin: state, exit code, sockets, registrations, lists, answers.

Knows nothing of where the other result comes from: a recording, or NVIDIA's own program beside ours.
"""

from __future__ import annotations

from fairlead.model.inventory import NO_LINKS
from fairlead.model.resource import Strategy
from tests.recorded.answers import Offered, Verdict, judge_allocation, judge_preference
from tests.recorded.nvidia import Seen
from tests.vectors.types import Result


def judge(theirs: Result, ours: Result, seen: Seen) -> Verdict:
    verdict = Verdict()
    if ours.state == "waiting" and theirs.state in {"idle", "retrying"}:
        verdict.differences.add("driver-late" if theirs.state == "idle" else "mps-waits")
        return verdict
    if ours.state == "waiting" and any("cdi spec" in line.lower() for line in theirs.log_errors):
        verdict.differences.add("driver-late")  # without a GPU it exits if CDI is chosen, and waits otherwise
        return verdict
    if ours.state == "waiting" and any("cdi spec" in line.lower() for line in theirs.log_errors):
        verdict.differences.add("no-gpu-waits")
        return verdict
    if theirs.state != ours.state or (theirs.exit_code or 0) != (ours.exit_code or 0):
        verdict.faults.append(f"state {ours.state} ({ours.exit_code}), not {theirs.state} ({theirs.exit_code})")
        return verdict
    if sorted(theirs.sockets) != sorted(ours.sockets) or theirs.sockets_after_stop != ours.sockets_after_stop:
        verdict.faults.append(f"sockets {ours.sockets}, not {theirs.sockets}")
    registered = [
        sorted((it.resource_name, it.endpoint, it.version) for it in one.registrations) for one in (theirs, ours)
    ]
    if registered[0] != registered[1]:
        verdict.faults.append(f"registers {registered[1]}, not {registered[0]}")
    if theirs.cdi_specs.keys() != ours.cdi_specs.keys():
        verdict.faults.append(f"CDI files {sorted(ours.cdi_specs)}, not {sorted(theirs.cdi_specs)}")
    for name, recorded in theirs.resources.items():
        mine = ours.resources[name]
        if recorded.devices != mine.devices or recorded.options != mine.options:
            verdict.faults.append(f"{name}: lists {mine.devices}, not {recorded.devices}")
        resource = seen.resources.get(name)
        slots = [device["ID"] for device in mine.devices or ()]
        links = resource.inventory.links if resource else NO_LINKS
        offered = Offered(name, slots, links, packed=resource is not None and resource.terms.strategy is Strategy.PACK)
        for theirs_one, ours_one in zip(recorded.allocate or (), mine.allocate or (), strict=True):
            judge_allocation(verdict, offered, theirs_one, ours_one.response, str(ours_one.error))
        for theirs_two, ours_two in zip(recorded.preferred or (), mine.preferred or (), strict=True):
            judge_preference(verdict, offered, theirs_two, ours_two.response)
    return verdict
