"""What people are told: the status of a daemon, the plan of a configuration, the reasons of a placement.

Plain data, ready for JSON; `cli` draws tables from it. Reads, never changes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fairlead._version import __version__
from fairlead.app.holders import cure
from fairlead.backends.strict import did_you_mean
from fairlead.kubelet.podresources import Holder, Holdings, Unknown
from fairlead.kubelet.service import chooser
from fairlead.model.device import Device
from fairlead.model.errors import Oversize, UsageError
from fairlead.model.inventory import Inventory
from fairlead.model.names import DeviceId, ResourceName, SlotId
from fairlead.model.resource import Resource
from fairlead.policy import budget
from fairlead.policy.amounts import Amount, count
from fairlead.policy.rules import Assignment, Hit
from fairlead.policy.stall import Stall, explain_stall, stalls

if TYPE_CHECKING:
    from fairlead.app.daemon import Daemon
    from fairlead.kubelet.unit import Unit


def status(daemon: Daemon, holdings: Holdings | Unknown) -> Callable[[], dict[str, Any]]:
    """What is true now; counted and written out by whoever calls the answer, on a thread of its own if it likes."""
    holders = holdings.by_slot if isinstance(holdings, Holdings) else {}
    units = [(unit.resource, _unit(unit)) for unit in daemon.supervisor.units.values()]
    inventory, assignment = daemon.inventory, daemon.ledger.assignment
    wall_s = daemon.clock.now() - daemon.clock.monotonic()
    prices = stalls(resource for resource, _ in units)
    found = {
        "version": __version__,
        "pid": os.getpid(),
        "instance": daemon.loaded.config.instance,
        "started_s": daemon.started_s,
        "now_s": daemon.clock.now(),
        "config": daemon.loaded.source,
        "directory": str(daemon.directory),
        "holders_known": isinstance(holdings, Holdings),
        "holders_problem": "" if isinstance(holdings, Holdings) else cure(daemon.loaded.config) or holdings.reason,
        "backends": [
            {
                "name": source.name,
                "devices": len(source.findings.devices),
                "scanned_s": source.scanned_s,
                "problem": source.problem,
            }
            for source in daemon.sources.speaking.values()
        ],
    }
    problems, told = _problems(daemon), daemon.told()

    def write_out() -> dict[str, Any]:
        return {
            **found,
            "devices": _devices(inventory, assignment, [resource for resource, _ in units], holders, told, wall_s),
            "resources": [
                _resource(resource, holders) | facts | _price(resource, prices[resource.name])
                for resource, facts in units
            ],
            "problems": problems,
        }

    return write_out


def _problems(daemon: Daemon) -> list[str]:
    problems = list(daemon.problems.values())
    problems += [
        f"backend {source.name}: {problem}"
        for source in daemon.sources.speaking.values()
        for problem in (source.problem, *source.findings.problems)
        if problem
    ]
    problems += list(daemon.supervisor.refused.values())
    problems += [unit.problem for unit in daemon.supervisor.units.values() if unit.problem]
    return problems or [why for why in [daemon.why_nothing()] if why]


def _resource(resource: Resource, holders: Mapping[tuple[ResourceName, SlotId], Holder]) -> dict[str, Any]:
    retired = sum(slot.retired_s is not None for slot in resource.slots)
    return {
        "name": resource.name,
        "slots": len(resource.slots) - retired,
        "healthy": sum(resource.usable(slot) for slot in resource.slots),
        "held": sum((resource.name, slot.id) in holders for slot in resource.slots),
        "retired": retired,
        "unit_bytes": resource.unit_bytes,
        "wish_bytes": resource.wish_bytes,
        "note": resource.note,
        "placement": resource.strategy.value,
    }


def _unit(unit: Unit) -> dict[str, Any]:
    return {
        "list_bytes": len(unit.offer.frame),
        "socket": str(unit.socket),
        "phase": unit.life.phase.value,
        "since_s": unit.since_s,
        "reason": unit.waits_for or unit.life.reason,
        "attempt": unit.life.attempt,
        "problem": unit.problem,
    }


def _price(resource: Resource, stall: Stall) -> dict[str, Any]:
    """What the list costs the kubelet when all of it is held."""
    told = explain_stall(stall, memory=bool(resource.unit_bytes))
    return {"stall_s": stall.seconds, "stall_long": stall.long, "stall": told}


def _devices(
    inventory: Inventory,
    assignment: Assignment,
    resources: Iterable[Resource],
    holders: Mapping[tuple[ResourceName, SlotId], Holder],
    told: Mapping[tuple[ResourceName, SlotId], DeviceId],
    wall_s: float,
) -> list[dict[str, Any]]:
    """`told`: slots whose container was told another device. `wall_s`: makes wall time out of a condition's."""
    hits = {hit.device: hit for hit in assignment.hits}
    served = {resource.name: resource for resource in resources}
    rows = []
    for device in inventory.devices:
        hit = hits.get(device.id)
        resource = served.get(hit.resource) if hit and hit.resource else None
        slots = resource.slots_of.get(device.id, ()) if resource else ()
        holding = [
            (slot.id, holders[resource.name, slot.id])
            for slot in slots
            if resource and (resource.name, slot.id) in holders and (resource.name, slot.id) not in told
        ]
        holding += [(key[1], holders[key]) for key, where in told.items() if where == device.id and key in holders]
        condition = inventory.condition(device.id)
        rows.append(
            device_facts(device)
            | {
                "health": condition.health.value,
                "cause": str(condition.cause) if condition.cause else "",
                "cured_by": condition.cause.cured_by if condition.cause else (),
                "since_s": condition.since_s + wall_s if condition.since_s else 0.0,
                "resource": hit.resource if hit else None,
                "rule": hit.label if hit else "",
                "slots": len(slots),
                "held": len(holding),
                "holders": sorted({str(holder) for _, holder in holding}),
            }
        )
    return rows


def device_facts(device: Device) -> dict[str, Any]:
    return {
        "id": device.id,
        "index": device.index,
        "vendor": device.vendor,
        "model": device.model,
        "memory_bytes": device.memory_bytes,
        "pci_address": device.pci_address,
        "numa_nodes": list(device.numa_nodes),
        "nodes": [node.path for node in device.nodes],
        "parent": device.parent,
        "backend": device.backend,
    }


def device_line(inventory: Inventory, device: str) -> str:
    found = find_device(inventory, device)
    condition = inventory.condition(found.id)
    return f"{found.id} is {condition.health.value}" + (f" ({condition.cause})" if condition.cause else "")


def find_device(inventory: Inventory, text: str) -> Device:
    """A device by id, index, or the unique beginning of an id."""
    exact = [device for device in inventory.devices if text in {device.id, device.index}]
    close = exact or [device for device in inventory.devices if text and device.id.startswith(text)]
    if len(close) == 1:
        return close[0]
    if close:
        raise UsageError(f"device {text!r} could be any of: {', '.join(device.id for device in close[:8])}")
    known = {device.id for device in inventory.devices} | {device.index for device in inventory.devices if device.index}
    raise UsageError(f"no device {text!r}{did_you_mean(text, known)}")


# --- Plans and explanations -------------------------------------------------------------------------------------------


def plan(
    inventory: Inventory, assignment: Assignment, problems: Sequence[str], amounts: Sequence[Amount] = ()
) -> dict[str, Any]:
    """What would be advertised, and which rule every device hit."""
    resources = []
    refused = []
    prices = stalls(assignment.resources)
    for resource in assignment.resources:
        try:
            budget.check(resource)
        except Oversize as error:
            refused.append(str(error))
        resources.append(
            {
                "name": resource.name,
                "devices": len(resource.slots_of),
                "slots": len(resource.slots),
                "unit_bytes": resource.unit_bytes,
                "wish_bytes": resource.wish_bytes,
                "note": resource.note,
                "placement": resource.strategy.value,
                "list_bytes": budget.list_bytes(resource),
                "worst_bytes": budget.worst_bytes(resource),
                "limit_bytes": budget.KUBELET_MESSAGE_MAX_BYTES,
                **_price(resource, prices[resource.name]),
            }
        )
    devices = {device.id: device for device in inventory.devices}
    return {
        "resources": resources,
        "amounts": [{"name": name, "amount": amount} for name, amount in count(inventory, amounts).items()],
        "devices": [device_facts(devices[hit.device]) | _hit(hit) for hit in assignment.hits],
        "problems": [*problems, *assignment.problems, *refused],
    }


def _hit(hit: Hit) -> dict[str, Any]:
    return {"resource": hit.resource, "rule": hit.label if hit.rule is not None else None, "reason": hit.reason}


def explain_live(daemon: Daemon, name: str, count: int, holdings: Holdings | Unknown) -> Callable[[], dict[str, Any]]:
    """The choice for a request that came now: free slots only, as the kubelet would offer them. As `status`."""
    resource = pick_resource([unit.resource for unit in daemon.supervisor.units.values()], name)

    def write_out() -> dict[str, Any]:
        held = holdings.of(resource.name) if isinstance(holdings, Holdings) else frozenset()
        answer = explain(resource, count, held)
        if not isinstance(holdings, Holdings):
            answer["notes"].append(f"who holds what is unknown ({holdings.reason}): every slot counts as free")
        return answer

    return write_out


def pick_resource(resources: Sequence[Resource], name: str) -> Resource:
    for resource in resources:
        if resource.name == name:
            return resource
    raise UsageError(f"no resource {name!r}{did_you_mean(name, [resource.name for resource in resources])}")


def explain(resource: Resource, count: int, held: frozenset[SlotId] = frozenset()) -> dict[str, Any]:
    available = [slot for slot in resource.slots if resource.usable(slot) and slot.id not in held]
    choice = chooser()(resource, [slot.id for slot in available], [], count, explain=True)
    free = {slot.id for slot in available}
    left_out = []
    for slot in resource.slots:
        if slot.id in free:
            continue
        condition = resource.condition(slot)
        why = "in use" if slot.id in held else f"{condition.health.value}: {condition.cause or 'no cause given'}"
        left_out.append({"slot": slot.id, "why": why})
    return {
        "resource": resource.name,
        "count": count,
        "placement": resource.strategy.value,
        "unit_bytes": resource.unit_bytes,
        "available": len(available),
        "slots": list(choice.slots),
        "fallback": choice.fallback,
        "devices": [
            {
                "device": reason.device,
                "index": _index(resource, reason.device),
                "picked": reason.picked,
                "score": reason.score,
                "why": reason.why,
            }
            for reason in choice.reasons
        ],
        "left_out": left_out,
        "notes": [],
    }


def _index(resource: Resource, device: str) -> str:
    found = next((known for known in resource.inventory.devices if known.id == device), None)
    return found.index if found else ""
