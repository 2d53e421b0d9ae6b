"""AMD's allocator as a package: its weights of pairs and its answers, and ours for the same devices.

Our weights come from a scan of the machine that the recording names, by the numbers of KFD's nodes.
"""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

from fairlead.backends import registry
from fairlead.kit.clock import SystemClock
from fairlead.model.device import Device
from fairlead.model.errors import BadAsk
from fairlead.model.inventory import Inventory, Links
from fairlead.model.names import DeviceId, ResourceName, SlotId
from fairlead.model.resource import Strategy, Terms
from fairlead.policy.offering.rules import Rule, make_offering
from fairlead.policy.placement.place import place
from tests.amd.tree import write
from tests.recorded.amd import FIXTURES
from tests.recorded.outcome import Outcome, Says
from tests.vectors.amd import Case

Weights = dict[tuple[str, str], int]  # by KFD's nodes


def recorded_allocator(case: Case) -> Outcome:
    outputs = case.outputs
    assert outputs["init_error"] is None
    asked = [{key: one[key] for key in ("available", "must_include", "size")} for one in outputs["calls"]]
    assert asked == case.inputs["calls"]
    rows = outputs["pair_weights"].items()
    outcome: Outcome = {f"weight {one} {other}": value for one, row in rows for other, value in row.items()}
    for number, call in enumerate(outputs["calls"]):
        outcome[f"call {number}"] = "error" if "error" in call else sorted(call["answer"])
        if "error" not in call:
            outcome[f"call {number} weight"] = call["pair_weight_sum"]
    return outcome


async def play_allocator(case: Case, root: Path) -> Outcome:
    weights = await scan(case, root)
    devices = tuple(
        Device(DeviceId(row["Id"]), index=str(row["NodeId"]), parent=DeviceId(row["DevId"]))
        for row in case.inputs["devices"]
    )
    node = {device.id: device.index for device in devices}
    pairs = list(combinations(node, 2))
    links = Links({(one, other): 100 - weights[node[one], node[other]] for one, other in pairs})
    rule = Rule(resource=ResourceName("amd.com/gpu"), terms=Terms(strategy=Strategy.CLOSEST))
    (resource,) = make_offering(Inventory(devices, links), [rule]).resources
    every = [slot.id for slot in resource.slots]
    outcome: Outcome = {f"weight {one} {other}": weights[one, other] for one, other in weights if int(one) < int(other)}
    for number, call in enumerate(case.inputs["calls"]):
        available = every if call["available"] == "all" else [SlotId(one) for one in call["available"]]
        must = [SlotId(one) for one in call["must_include"] or ()]
        try:
            chosen = sorted(place(resource, available, must, call["size"]).slots)
        except BadAsk as error:
            outcome[f"call {number}"] = Says(f"INVALID_ARGUMENT: {error}")
            continue
        nodes = combinations((node[DeviceId(one)] for one in chosen), 2)
        outcome |= {f"call {number}": chosen, f"call {number} weight": sum(weights[pair] for pair in nodes)}
    return outcome


async def scan(case: Case, root: Path) -> Weights:
    machine = FIXTURES[case.inputs["kfd_fixture"]]
    write(root, machine)
    backend = registry.open("amd", {"hostRoot": str(root)}, SystemClock())
    try:
        links = (await backend.discover()).links
    finally:
        await backend.close()  # type: ignore[attr-defined]  # ours has it
    ids = {str(part.node): DeviceId(part.xcp or part.gpu.address) for part in machine.parts()}
    return {(one, other): 100 - links.between(ids[one], ids[other]) for one in ids for other in ids if one != other}
