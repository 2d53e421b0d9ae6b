"""A recording of AMD's plugin, played with ours in this process: its machine as files, its words, its kubelet's calls.

Knows how a recording is laid out flat, as `outcome` wants it: theirs by `recorded`, ours by `play`.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import combinations
from pathlib import Path
from typing import Any

import grpc.aio
from msgspec.structs import replace

from fairlead.app.daemon import Daemon
from fairlead.config.load import Loaded, build
from fairlead.dialects.amd.command import read_command_line
from fairlead.kit.clock import SystemClock
from fairlead.model.names import DeviceId
from fairlead.observe.journal import Journal
from fairlead.standin._gen import deviceplugin_v1beta1_pb2 as dp
from tests.amd.exporter import exporter
from tests.amd.machines import Machine, mi210, mi300x, mi308, unlinked, vegas
from tests.amd.tree import NODES, remove, write
from tests.peers.nvidia.kubelet import Followed, Kubelet, kubelet
from tests.recorded.outcome import Outcome, Says
from tests.vectors.amd import Case

FIXTURES = {
    "mi210": mi210(),
    "mi300cpx": mi300x("CPX", "NPS1", missing=("amdgpu_xcp_56",)),
    "mi308": mi308(),
    "vega": vegas(),
}
ALL = "all listed ids, sorted"
KFD = "class/kfd/kfd/topology/nodes"

# --- The machine ------------------------------------------------------------------------------------------------------


def machine_of(case: Case) -> Machine:
    """The recording's PCI functions and partitions on the KFD topology that it names."""
    sysfs = case.inputs["sysfs"]
    base = FIXTURES[sysfs["kfd_fixture"] or "mi210"]
    known = {gpu.address: gpu for gpu in base.gpus}
    renders = {one["render"] for one in sysfs.get("xcp", ())}
    gpus = []
    for one in sysfs.get("pci", ()):
        gpu = known[one["bdf"]]
        shown = (one["vendor"], one["device"], one["card"], one["render"])
        assert shown == ("0x1002", gpu.device, gpu.render - 127, gpu.render), one
        count = 1 + len(renders & set(range(gpu.render + 1, gpu.render + 8)))
        changes = {"numa": one["numa_node"], "compute": one["compute"], "memory": one["memory"]}
        gpus.append(replace(gpu, **changes, parts=count))
    made = replace(
        base,
        gpus=tuple(gpus),
        missing=(),
        driver=sysfs.get("driver", True),
        kfd=sysfs["kfd_fixture"] is not None,
    )
    parts = {part.xcp: (part.card, part.render) for part in made.parts() if part.xcp}
    assert {one["name"]: (one["card"], one["render"]) for one in sysfs.get("xcp", ())} == parts, case.case
    asked = (answer for one in case.outputs.get("resources", {}).values() for answer in one["answers"])
    return made if any(answer["rpc"] == "GetPreferredAllocation" for answer in asked) else unlinked(made)


def write_machine(case: Case, root: Path) -> None:
    write(root, machine_of(case))
    for edit in case.inputs["sysfs"].get("edits", ()):
        assert edit["op"] == "delete", edit
        remove(root, edit["path"].replace(KFD, NODES))


# --- Theirs, laid out flat --------------------------------------------------------------------------------------------


def recorded(case: Case) -> Outcome:
    outputs = case.outputs
    outcome: Outcome = {
        "register": registered(outputs["register"]),
        "runs on": outputs["alive_before_stop"],
        "exit": outputs["exit"]["returncode"],
        "files left": outputs["files_left_in_plugin_dir"],
    }
    outcome |= {f"score {' '.join(ids)}": score for ids, score in scores(case)}
    if "exporter_calls" in outputs:
        outcome["exporter asked"] = outputs["exporter_calls"] > 0
    for step in outputs.get("steps", ()):
        assert (step["alive"], step.get("returncode", 0)) == (outcome["runs on"], outcome["exit"])
        if "registered_again" in step:
            outcome["registered again"] = bool(step["registered_again"])
    for one in outputs["register"]:
        outcome[f"{one['resource_name'].partition('/')[2]} register options"] = _on(one["options"])
    for name, resource in outputs.get("resources", {}).items():
        here = name.partition("/")[2]
        outcome[f"{here} options"] = _on(resource["options"])
        devices = resource["first_list"]["devices"]
        assert resource["first_list"]["count"] == len(devices)
        outcome |= {f"{here} {one['ID']}": _numa(one) for one in devices}
        health = resource.get("last_devices") or {one["ID"]: one["health"] for one in devices}
        outcome |= {f"{here} {key} is": value for key, value in health.items()}
        if "later_health" in resource:
            assert resource["later_health"][-1] == Counter(health.values())
            sent = resource.get("lists_within_3s") or resource["lists_within_4s"]
            outcome[f"{here} list repeated"] = sent > 2
        for number, answer in enumerate(resource["answers"]):
            outcome[f"{here} {number}"] = _answer(answer)
    return outcome


def scores(case: Case) -> Iterator[tuple[list[str], int]]:
    """What AMD's plugin logged of each choice that it searched for: the weight of all pairs."""
    for line in case.outputs.get("best_scores_logged", ()):
        found = re.fullmatch(r"best device subset:\[(.*)\] best score:(\d+)", line)
        assert found, line
        yield found[1].split(), int(found[2])


def registered(requests: Iterable[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    return sorted({(one["resource_name"], one["endpoint"], one["version"]) for one in requests})


def _on(options: Mapping[str, bool]) -> list[str]:
    return sorted(name for name, value in options.items() if value)


def _numa(device: Mapping[str, Any]) -> list[int]:
    return [node["ID"] for node in device.get("topology", {}).get("nodes", ())]


def _answer(answer: Mapping[str, Any]) -> Any:
    if "error" in answer:
        return "error"
    containers = answer["response"].get("container_responses", [])
    if answer["rpc"] == "Allocate":
        return [sorted(_node(node) for node in one.get("devices", ())) for one in containers]
    return [sorted(one.get("deviceIDs", ())) for one in containers]


def _node(node: Mapping[str, Any]) -> str:
    return f"{node['host_path']} {node['container_path']} {node['permissions']}"


# --- Ours, of the same form -------------------------------------------------------------------------------------------


def words(case: Case, root: Path, *more: str) -> list[str]:
    """The recording's command line, with our places added."""
    return [
        *case.inputs["argv"][1:],
        f"--plugin-dir={root}/dp",
        f"--status-socket={root}/fl.sock",
        f"--pod-resources={root}/none.sock",
        f"--host-root={root}/machine",
        f"--exporter-socket={root}/exporter.sock",
        *more,
    ]


def load(case: Case, root: Path, *more: str) -> Loaded:
    return build(dict(read_command_line(words(case, root, *more), {}).translate().config), "recorded")


@asynccontextmanager
async def node_of(case: Case, root: Path) -> AsyncIterator[tuple[Kubelet, list[bytes]]]:
    """The machine of the recording; the kubelet's end, and the calls that its exporter gets."""
    (root / "dp").mkdir()
    write_machine(case, root / "machine")
    async with AsyncExitStack() as stack:
        end = await stack.enter_async_context(kubelet(root / "dp"))
        await end.serve()
        calls: list[bytes] = []
        if (reply := case.inputs["exporter_list_reply"]) is not None:
            states = None if reply == "no" else [(one["Device"], one["Health"], one["ID"]) for one in reply]
            calls = await stack.enter_async_context(exporter(root / "exporter.sock", states))
        yield end, calls


@asynccontextmanager
async def staged(case: Case, root: Path, *more: str) -> AsyncIterator[tuple[Daemon, Kubelet]]:
    """The daemon beside the kubelet's end, on the machine of the recording."""
    async with node_of(case, root) as (end, _), serving(case, root, end, *more) as daemon:
        yield daemon, end


@asynccontextmanager
async def serving(case: Case, root: Path, end: Kubelet, *more: str) -> AsyncIterator[Daemon]:
    clock = SystemClock()
    loaded = load(case, root, *more)
    daemon = Daemon(loaded, reload=lambda: loaded, clock=clock, journal=Journal(clock, lambda _facts: None))
    ready = asyncio.Event()
    daemon.on_ready = ready.set
    running = asyncio.create_task(daemon.run())
    await asyncio.wait_for(ready.wait(), 20)
    await end.until(lambda: all(one.lists for one in end.followed.values()) and _all_there(daemon, end))
    try:
        yield daemon
    finally:
        daemon.stop()
        await running


def _all_there(daemon: Daemon, end: Kubelet) -> bool:
    return {str(name) for name in daemon.supervisor.endpoints} == end.followed.keys()


async def play(case: Case, root: Path, *more: str) -> Outcome:
    outcome: Outcome = {}
    async with node_of(case, root) as (end, calls), serving(case, root, end, *more) as daemon:
        for name in list(end.followed):
            outcome |= await _resource(case, name, daemon, end)
        for step in case.outputs.get("steps", ()):
            outcome |= await take(step, end)
        (source,) = daemon.engine.sources.live.values()
        for ids, _ in scores(case):
            pairs = list(combinations(map(DeviceId, ids), 2))
            weights = (100 - source.findings.links.between(*pair) for pair in pairs)
            outcome[f"score {' '.join(ids)}"] = sum(weights)
        outcome["register"] = registered(
            {"resource_name": one.resource_name, "endpoint": one.endpoint, "version": one.version}
            for one in end.registrations
        )
        for one in end.registrations:
            here = one.resource_name.partition("/")[2]
            outcome[f"{here} register options"] = _set(one.options)
        if case.inputs["exporter_list_reply"] is not None:
            outcome["exporter asked"] = bool(calls)
    sockets = (path.name for path in (root / "dp").iterdir() if path.is_socket())
    outcome["files left"] = sorted(name for name in sockets if name != "kubelet.sock")
    return outcome


async def take(step: Mapping[str, Any], end: Kubelet) -> Outcome:
    """After each, the daemon lives and is followed anew."""
    before = len(end.registrations)
    if step["step"].startswith("kubelet.sock removed"):
        await end.restart()
    else:
        assert step["step"] == "ListAndWatch stream cancelled", step
        (followed,) = end.followed.values()
        await followed.close()
    await end.until(lambda: len(end.registrations) > before and all(one.lists for one in end.followed.values()))
    return {"registered again": True} if "registered_again" in step else {}


async def _resource(case: Case, name: str, daemon: Daemon, end: Kubelet) -> Outcome:
    here, followed = name.partition("/")[2], end.followed[name]
    options = followed.options
    assert options is not None
    outcome: Outcome = {f"{here} options": _set(options)}
    devices = followed.lists[0].devices
    outcome |= {f"{here} {one.ID}": [node.ID for node in one.topology.nodes] for one in devices}
    theirs = case.outputs.get("resources", {}).get(name, {})
    if "last_devices" in theirs:
        await _probe(daemon, followed, end)
        outcome[f"{here} list repeated"] = len(followed.lists) > 2
    outcome |= {f"{here} {one.ID} is": one.health for one in followed.lists[-1].devices}
    # What was granted a moment ago is not preferred: so preferences are asked for first.
    answers = sorted(enumerate(theirs.get("answers", ())), key=lambda one: one[1]["rpc"] == "Allocate")
    for number, answer in answers:
        outcome[f"{here} {number}"] = await ask(answer, sorted(one.ID for one in devices), followed)
    return outcome


def _set(options: dp.DevicePluginOptions) -> list[str]:
    return sorted(field.name for field, value in options.ListFields() if value)


async def _probe(daemon: Daemon, followed: Followed, end: Kubelet) -> None:
    """As a pulse does; until the list shows what came of it."""
    (source,) = daemon.engine.sources.live.values()
    await source.pulse()
    ill = {str(device) for device, condition in source.conditions.items() if not condition.health.usable}
    await end.until(lambda: {one.ID for one in followed.lists[-1].devices if one.health == "Unhealthy"} == ill)


async def ask(answer: Mapping[str, Any], ids: list[str], followed: Followed) -> Any:
    kinds = {
        "Allocate": (dp.AllocateRequest, dp.AllocateResponse),
        "GetPreferredAllocation": (dp.PreferredAllocationRequest, dp.PreferredAllocationResponse),
        "PreStartContainer": (dp.PreStartContainerRequest, dp.PreStartContainerResponse),
    }
    request, reply = kinds[answer["rpc"]]
    asked = dict(answer["request"])
    if "container_requests" in asked:
        every = {"available_deviceIDs": ids}
        asked["container_requests"] = [
            dict(one) | (every if one.get("available_deviceIDs") == ALL else {}) for one in asked["container_requests"]
        ]
    try:
        found = await followed.ask(answer["rpc"], request(**asked), reply)
    except grpc.aio.AioRpcError as error:
        return Says(f"{error.code().name}: {error.details()}")
    containers = getattr(found, "container_responses", ())
    if answer["rpc"] == "Allocate":
        keys = ("host_path", "container_path", "permissions")
        return [sorted(_node({key: getattr(node, key) for key in keys}) for node in one.devices) for one in containers]
    return [sorted(one.deviceIDs) for one in containers]
