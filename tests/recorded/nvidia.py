"""One recording of NVIDIA's plugin, asked of ours in this process: the dialect, the backend, the rules, the service."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from fairlead.app.outfit import make_outfit
from fairlead.app.source import Source, Tempo
from fairlead.backends import registry
from fairlead.config.load import build
from fairlead.dialects.nvidia.meaning import read
from fairlead.kubelet.service import Service, make_offer
from fairlead.model.clock import SystemClock
from fairlead.model.inventory import Inventory
from fairlead.model.latest import Latest
from fairlead.model.resource import Resource
from fairlead.policy.rules import assign
from fairlead.wire import deviceplugin as dp
from fairlead.wire.rpc import RpcError
from tests.nvml import from_recording
from tests.recorded import judge
from tests.vectors import drivers
from tests.vectors.types import Allocation, Preference, Vector
from tests.vectors.types import Resource as Recorded

CONFIG = "/config/config.yaml"
ANNOTATION = "nvidia-device-plugin_"


class Seen(msgspec.Struct):
    """What came of it."""

    problem: str = ""  # the scan's
    resources: dict[str, Resource] = {}
    differences: set[str] = msgspec.field(default_factory=set)
    faults: list[str] = []  # differences that nobody meant
    counts: Counter[str] = msgspec.field(default_factory=Counter)


async def replay(vector: Vector, directory: Path) -> Seen:
    """Needs nothing but this process: machines whose library is elsewhere are another test's."""
    driver = from_recording(drivers()[vector.driver])
    (directory / "config.yaml").write_text(vector.config_file or "")
    args = [word.replace(CONFIG, f"{directory}/config.yaml") for word in vector.argv[1:]]
    env = {key: value.replace(CONFIG, f"{directory}/config.yaml") for key, value in vector.env.items()}
    config = read(["--lenient", *args], env).meant().config
    with driver.installed(directory / "machine") as node, node.loaded():
        backend = config["backends"][0]
        mount = backend.get("driverRootMount", "/driver-root")
        backend |= {"hostRoot": str(node.root), "driverRootMount": f"{node.root}{mount}".rstrip("/")}
        backend["cdi"] = {**backend.get("cdi", {}), "directory": f"{directory}/cdi"}
        backend.pop("mps", None)  # no control daemon answers here
        rules = build(config, "recorded").rules
        options = {key: value for key, value in backend.items() if key != "kind"}
        opened = registry.open("nvidia", options, SystemClock())
        source = Source("nvidia", opened, Tempo(), SystemClock(), lambda *_args, **_keys: None, lambda: None)
        try:
            await source.scan()
            seen = Seen(problem=source.problem)
            if not source.problem:
                inventory = Inventory(source.findings.devices, source.findings.links)
                seen.resources = {resource.name: resource for resource in assign(inventory, rules).resources}
                for name, recorded in vector.result.resources.items():
                    if name in seen.resources:
                        _compare(seen, seen.resources[name], recorded, source)
            return seen
        finally:
            await opened.close()  # type: ignore[attr-defined]  # ours has it


def _compare(seen: Seen, resource: Resource, recorded: Recorded, source: Source) -> None:
    ours = sorted((slot.id, list(_numa(resource, slot.id))) for slot in resource.slots)
    theirs = sorted((device["ID"], device.get("topology") or []) for device in recorded.devices or ())
    if recorded.devices is not None and ours != theirs:
        seen.faults.append(f"{resource.name}: lists {ours[:3]}…, not {theirs[:3]}…")
    outfit = make_outfit(lambda: {"nvidia": source})
    service = Service(Latest(make_offer(resource)), outfit, lambda *_args, **_keys: None, lambda _change: None)
    if recorded.options is not None:
        options = service.options()
        told = {
            "pre_start_required": options.pre_start_required,
            "get_preferred_allocation_available": options.get_preferred_allocation_available,
        }
        if told != recorded.options:
            seen.faults.append(f"{resource.name}: options {told}, not {recorded.options}")
    for allocation in recorded.allocate or ():
        _allocate(seen, resource, service, allocation)
    for preference in recorded.preferred or ():
        _prefer(seen, resource, service, preference)


def _numa(resource: Resource, slot: Any) -> Iterator[int]:
    device = resource.device(resource.by_id[slot])
    yield from device.numa_nodes if device is not None else ()


# --- Allocate ---------------------------------------------------------------------------------------------------------


def _allocate(seen: Seen, resource: Resource, service: Service, recorded: Allocation) -> None:
    containers = tuple(dp.ContainerAllocateRequest(device_ids=tuple(ids)) for ids in recorded.request)
    seen.counts["allocations"] += 1
    try:
        answer = service.allocate(dp.AllocateRequest(container_requests=containers), None)  # type: ignore[arg-type]  # unused
    except RpcError as error:
        if recorded.error is not None:
            return
        if not recorded.request or not all(recorded.request):
            seen.differences.add("allocate-nothing")
        elif any(len(set(ids)) != len(ids) for ids in recorded.request):
            seen.differences.add("allocate-twice")
        else:
            seen.faults.append(f"{resource.name}: refuses {recorded.request}: {error}")
        return
    if recorded.error is not None:
        seen.faults.append(f"{resource.name}: takes {recorded.request}, which NVIDIA's refuses: {recorded.error}")
        return
    ours = [msgspec.to_builtins(container) for container in answer.container_responses]
    answers = [recorded.response, *(variant.get("response") for variant in recorded.variants or ())]
    verdicts = [_unlike(ours, theirs) for theirs in answers if theirs is not None]
    best = min(verdicts, key=lambda verdict: (verdict[0] is not None, len(verdict[1])))
    seen.differences |= best[1]
    if best[0] is not None:
        seen.faults.append(f"{resource.name}: {recorded.request}: {best[0]}")


def _unlike(ours: list[Any], theirs: list[Any]) -> tuple[str | None, set[str]]:
    """What differs beyond what is meant, and which of what is meant."""
    meant: set[str] = set()
    for mine, other in zip(ours, theirs, strict=True):
        keys = mine["annotations"].keys() | other["annotations"].keys()
        if keys and all(ANNOTATION in key for key in keys):
            prefixes = {key.partition(ANNOTATION)[0] for key in keys}
            values = {_words(value) for part in (mine, other) for value in part["annotations"].values()}
            if len(prefixes) != 1 or len(values) != 1:
                return f"annotations {mine['annotations']} and {other['annotations']}", meant
            meant.add("annotation-key")
        elif mine["annotations"] != other["annotations"]:
            return f"annotations {mine['annotations']} and {other['annotations']}", meant
        fault = _unlike_envs(mine["envs"], other["envs"], meant)
        if fault:
            return fault, meant
        for key in ("devices", "mounts", "cdi_devices"):
            one, two = _sorted(mine[key]), _sorted(other[key])
            if one != two and one == sorted(set(two)):
                meant.add("device-once")
            elif one != two and key == "mounts" and not one and all("mps" in text or "shm" in text for text in two):
                meant.add("mps-only-shared")
            elif one != two:
                return f"{key} {one} and {two}", meant
    return None, meant


def _unlike_envs(ours: dict[str, str], theirs: dict[str, str], meant: set[str]) -> str:
    if "CUDA_MPS_PIPE_DIRECTORY" in theirs and "CUDA_MPS_PIPE_DIRECTORY" not in ours:
        meant.add("mps-only-shared")
        theirs = {key: value for key, value in theirs.items() if key != "CUDA_MPS_PIPE_DIRECTORY"}
    if ours == theirs:
        return ""
    if {key: _words(value) for key, value in ours.items()} == {key: _words(value) for key, value in theirs.items()}:
        meant.add("allocate-order")
        return ""
    return f"variables {ours} and {theirs}"


def _words(text: str) -> tuple[str, ...]:
    return tuple(sorted(text.split(",")))


def _sorted(items: list[Any]) -> list[str]:
    texts = []
    for item in items:
        plain = {"name": item} if isinstance(item, str) else item
        texts.append(str(sorted((key, value) for key, value in plain.items() if value not in (False, None, ""))))
    return sorted(texts)


# --- GetPreferredAllocation -------------------------------------------------------------------------------------------


def _prefer(seen: Seen, resource: Resource, service: Service, recorded: Preference) -> None:
    asks = tuple(
        dp.ContainerPreferredAllocationRequest(
            available_ids=tuple(wanted.available),
            must_include_ids=tuple(wanted.must_include),
            allocation_size=wanted.size,
        )
        for wanted in recorded.request
    )
    seen.counts["preferences"] += 1
    answer = service.prefer(dp.PreferredAllocationRequest(container_requests=asks), None)  # type: ignore[arg-type]  # unused
    for number, wanted in enumerate(recorded.request):
        ours = list(answer.container_responses[number].device_ids)
        known = [slot for slot in wanted.available if slot in resource.by_id]
        must = [slot for slot in wanted.must_include if slot in resource.by_id]
        if judge.is_satisfiable(known, must, wanted.size):
            if not judge.is_lawful(ours, known, must, wanted.size):
                seen.faults.append(f"{resource.name}: {wanted} is answered with {ours}")
        elif ours:
            seen.faults.append(f"{resource.name}: {wanted} cannot be met and is answered with {ours}")
        if recorded.response is None:
            seen.differences.add("prefer-crash" if recorded.crash else "prefer-error")
        elif sorted(ours) != sorted(recorded.response[number]):
            theirs = recorded.response[number]
            if not judge.is_lawful(theirs, wanted.available, wanted.must_include, wanted.size):
                seen.differences.add("prefer-unmet" if not ours else "prefer-large")
            else:
                _as_good(seen, resource, known, must, wanted.size, ours, theirs)


def _as_good(
    seen: Seen, resource: Resource, known: list[str], must: list[str], size: int, ours: list[str], theirs: list[str]
) -> None:
    """Another set than NVIDIA's must be as good as it."""
    whole = not any("::" in slot or slot.startswith("MIG") for slot in known)
    if whole and len(known) > judge.EXACT_MAX:
        seen.differences.add("prefer-large")
    elif whole:
        links = resource.inventory.links
        mine, other = (judge.node_value(links, known, size, group) for group in (ours, theirs))
        if mine < other:
            seen.faults.append(f"{resource.name}: {size} of {known}: {ours} is worth {mine}, {theirs} is worth {other}")
        seen.differences.add("prefer-tie")
    elif resource.strategy.value == "pack":
        seen.differences.add("prefer-pack")
    elif judge.is_spread(ours, known, must, [slot.id for slot in resource.slots]):
        seen.differences.add("prefer-spread")
    else:
        seen.faults.append(f"{resource.name}: {size} of {known} with {must}: {ours} does not spread")
