"""One recording of NVIDIA's plugin, asked of ours in this process: the dialect, the backend, the rules, the service."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from fairlead.backends import registry
from fairlead.config.load import build
from fairlead.dialects.nvidia.command import read_command_line
from fairlead.engine.edits import make_allocator
from fairlead.engine.source import Source, Tempo
from fairlead.fronts.deviceplugin.caller import Caller
from fairlead.fronts.deviceplugin.encoding import make_device_list
from fairlead.fronts.deviceplugin.service import Service
from fairlead.kit.clock import SystemClock
from fairlead.kit.latest import Latest
from fairlead.model.inventory import ALL_HEALTHY, Inventory
from fairlead.model.resource import Resource, Strategy
from fairlead.policy.offering.rules import make_offering
from fairlead.wire import deviceplugin as dp
from fairlead.wire.rpc import RpcError
from tests.nvml import from_recording
from tests.recorded.answers import Offered, Verdict, judge_allocation, judge_preference
from tests.vectors import drivers
from tests.vectors.types import Allocation, Preference, Vector
from tests.vectors.types import Resource as Recorded

CONFIG = "/config/config.yaml"


class Seen(msgspec.Struct):
    """What came of it."""

    problem: str = ""  # the scan's
    resources: dict[str, Resource] = {}
    verdict: Verdict = msgspec.field(default_factory=Verdict)


async def replay(vector: Vector, directory: Path) -> Seen:
    """Needs nothing but this process: machines whose library is elsewhere are another test's."""
    driver = from_recording(drivers()[vector.driver])
    (directory / "config.yaml").write_text(vector.config_file or "")
    args = [word.replace(CONFIG, f"{directory}/config.yaml") for word in vector.argv[1:]]
    env = {key: value.replace(CONFIG, f"{directory}/config.yaml") for key, value in vector.env.items()}
    config = read_command_line(["--lenient", *args], env).translate().config
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
                seen.resources = {resource.name: resource for resource in make_offering(inventory, rules).resources}
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
        seen.verdict.faults.append(f"{resource.name}: lists {ours[:3]}…, not {theirs[:3]}…")
    allocator = make_allocator(lambda: {"nvidia": source}, lambda *_args, **_keys: None)
    service = Service(
        Latest(make_device_list(resource, ALL_HEALTHY)),
        allocator,
        lambda *_args, **_keys: None,
        Caller(lambda _change: None),
    )
    if recorded.options is not None:
        options = service.options()
        told = {
            "pre_start_required": options.pre_start_required,
            "get_preferred_allocation_available": options.get_preferred_allocation_available,
        }
        if told != recorded.options:
            seen.verdict.faults.append(f"{resource.name}: options {told}, not {recorded.options}")
    packed = resource.terms.strategy is Strategy.PACK
    offered = Offered(resource.name, [slot.id for slot in resource.slots], resource.inventory.links, packed)
    for allocation in recorded.allocate or ():
        judge_allocation(seen.verdict, offered, allocation, *_allocate(service, allocation))
    for preference in recorded.preferred or ():
        judge_preference(seen.verdict, offered, preference, _prefer(service, preference))


def _numa(resource: Resource, slot: Any) -> Iterator[int]:
    device = resource.device(resource.by_id[slot])
    yield from device.numa_nodes if device is not None else ()


def _allocate(service: Service, recorded: Allocation) -> tuple[list[Any] | None, str]:
    containers = tuple(dp.ContainerAllocateRequest(device_ids=tuple(ids)) for ids in recorded.request)
    try:
        answer = service.allocate(dp.AllocateRequest(container_requests=containers), None)  # type: ignore[arg-type]  # unused
    except RpcError as error:
        return None, str(error)
    assert isinstance(answer, dp.AllocateResponse), "nothing here is assigned by others"
    return [msgspec.to_builtins(container) for container in answer.container_responses], ""


def _prefer(service: Service, recorded: Preference) -> list[list[str]]:
    asks = tuple(
        dp.ContainerPreferredAllocationRequest(
            available_ids=tuple(wanted.available),
            must_include_ids=tuple(wanted.must_include),
            allocation_size=wanted.size,
        )
        for wanted in recorded.request
    )
    answer = service.prefer(dp.PreferredAllocationRequest(container_requests=asks), None)  # type: ignore[arg-type]  # unused
    assert isinstance(answer, dp.PreferredAllocationResponse), "nothing here is assigned by others"
    return [list(container.device_ids) for container in answer.container_responses]


# What these machines have depends on where the loader finds libraries: they are replayed by a process of their own.
BY_PROCESS = re.compile(r"\d+-(wsl|health-wsl|tegra|no-library|libpath|life|kubelet|cli|env-KUBELET_SOCKET)")
