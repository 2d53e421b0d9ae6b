"""Recordings of squat's generic-device-plugin: what came of them, laid out flat, and the same asked of ours.

The host is a directory whose files pass for device nodes. Theirs hands out USB nodes that it never looked at; ours
looks, so they are there.
"""

from __future__ import annotations

import asyncio
import re
import urllib.request
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from fairlead.app.daemon import Daemon
from fairlead.backends import paths
from fairlead.config.load import build
from fairlead.dialects.generic.command import read_command_line
from fairlead.kit.clock import SystemClock
from fairlead.model.errors import ConfigError
from fairlead.observe.journal import Journal
from fairlead.standin._gen import deviceplugin_v1beta1_pb2 as dp
from tests.peers.nvidia.kubelet import Kubelet, kubelet
from tests.recorded.outcome import Outcome
from tests.unit.backends.host import Host
from tests.vectors.read import HERE, lines

Case = Mapping[str, Any]
CASES: dict[str, Case] = {one["case"]: one for one in lines(HERE / "generic" / "cases.jsonl.gz", dict[str, Any])}
SERVED = [name for name, case in CASES.items() if case["outputs"]["alive"]]
NAMES = {"037-name-31": "037b-name-31"}  # two recordings have one number


# --- Theirs -----------------------------------------------------------------------------------------------------------


def theirs(case: Case) -> Outcome:
    outputs = case["outputs"]
    found: Outcome = {
        "exit": outputs["exit"]["returncode"],
        "runs on": outputs["alive"],
        "files left": outputs["files_left_in_plugin_dir"],
    }
    if not outputs["alive"]:
        return found
    resources = outputs["resources"]
    found["/health"] = outputs["health_status"]
    found |= _metrics("\n".join(outputs["metrics"]), {name: _answered(one) for name, one in resources.items()})
    found["registered"] = sorted({f"{one['resource_name']} {one['version']}" for one in outputs["register"]})
    found["registrations"] = outputs["registrations"]
    if outputs["register"]:
        (found["endpoint"],) = {_prefix(one["endpoint"]) for one in outputs["register"]}
        found["preference"] = any(one["options"] for one in resources.values())
    for name, resource in resources.items():
        if "list_error" in resource:
            found["list"] = "refused"
            continue
        found[f"{name} list"] = {one["ID"]: one["health"] for one in resource["list"]["devices"]}
        assert resource["list"]["count"] == len(resource["list"]["devices"])
        for id_, answer in resource["allocate_each"].items():
            found[f"{name} {id_}"] = [_container(one) for one in answer["container_responses"]]
        for answer in resource["answers"]:
            found[_title(name, answer)] = _answer(answer)
    for number, step in enumerate(outputs.get("steps", ())):
        found[f"step {number} lists"] = [{"Healthy": count} for (counts) in step["counts"].values() for count in counts]
        assert [len(counts) for counts in step["counts"].values()] == list(step["lists_sent"].values())
        (found[f"step {number} ids seen"],) = step["ids_seen"].values()
        found[f"step {number} registrations"] = step["registrations_so_far"]
    return found


def _prefix(endpoint: str) -> str:
    return re.split("[-_]", endpoint)[0]


def comparable(theirs: Outcome, ours: Outcome) -> Outcome:
    """Theirs, without what was asked of resources that ours does not have: that it has them not says it all."""
    names = {name.split()[0] for name in theirs.get("registered", ())}
    mine = {name.split()[0] for name in ours.get("registered", ())}
    of_all = {"registered", "registrations", "files left", "/health", "metrics"}
    left = {key: value for key, value in theirs.items() if key in of_all or key.split()[0] not in names - mine}
    if not mine:
        left = {key: value for key, value in left.items() if key in of_all and ("registered" in ours or key in ours)}
    return left


def _title(resource: str, answer: Case) -> str:
    """What was asked, without the ids. Of requests that are odd, every resource makes the same."""
    if answer["rpc"] != "Allocate":
        return str(answer["rpc"])
    containers = [one["devices_ids"] for one in answer["request"]["container_requests"]]
    if any("nope" in ids for ids in containers):
        return "unknown id"
    if not any(containers):
        return "no id" if containers else "no container"
    return f"{resource} in two containers" if len(containers) > 1 else f"{resource} in one container"


def _answer(answer: Case) -> Any:
    if "error" in answer:
        return "refused"
    if answer["rpc"] != "Allocate":
        return "ok"
    return [_container(one) for one in answer["response"].get("container_responses", ())]


def _answered(resource: Case) -> int:
    """Containers of all calls to Allocate."""
    answers = [one.get("response", {}) for one in resource.get("answers", ())]
    given = [*resource.get("allocate_each", {}).values(), *answers]
    return sum(len(one.get("container_responses", ())) for one in given)


def _container(one: Case) -> list[str]:
    nodes = [f"{node['host_path']} {node['container_path']} {node['permissions']}" for node in one.get("devices", ())]
    mounts = [
        f"{mount['host_path']} {mount['container_path']} {'ro' if mount.get('read_only') else 'rw'}"
        for mount in one.get("mounts", ())
    ]
    return sorted([*nodes, *mounts])


# --- Ours -------------------------------------------------------------------------------------------------------------


def make_host(case: Case, root: Path) -> Host:
    host = Host(root)
    inputs = case["inputs"]
    (root / "dev").mkdir(parents=True)
    for file in inputs["dev_files"]:
        if file.endswith("/"):
            (root / "dev" / file).mkdir(parents=True)
        else:
            host.put(f"/dev/{file}")
    for port, files in (inputs["sys_bus_usb_devices"] or {}).items():
        for name, text in files.items():
            host.put(f"/sys/bus/usb/devices/{port}/{name}", f"{text}\n")
        if "devnum" in files:
            host.put(f"/dev/bus/usb/{files['busnum']:0>3}/{files['devnum']:0>3}", "char 189:0")
    return host


def words(case: Case, root: Path) -> list[str]:
    config = root / "config.yaml"
    if case["inputs"]["config_text"] is not None:
        config.write_text(case["inputs"]["config_text"])
    said = [
        word.replace("/recorded/etc/config.yaml", str(config)).replace("PORT", "0")
        for word in case["inputs"]["argv"][1:]
    ]
    places = {"plugin-directory": "dp", "status-socket": "fl.sock", "pod-resources": "pr.sock", "host-root": "host"}
    return [*said, *(f"--{flag}={root / place}" for flag, place in places.items())]


class Ours:
    """Our daemon in this process, and the kubelet's end of its sockets."""

    def __init__(self, case: Case, root: Path, end: Kubelet) -> None:
        clock = SystemClock()
        loaded = build(dict(read_command_line(words(case, root), case["inputs"]["env"]).translate().config), "recorded")
        self.end = end
        self.answered: Counter[str] = Counter()
        self.daemon = Daemon(loaded, reload=lambda: loaded, clock=clock, journal=Journal(clock))
        self.task = asyncio.ensure_future(self.daemon.run())

    async def stop(self) -> None:
        self.daemon.stop()
        await asyncio.wait_for(self.task, 20)

    async def ask(self, resource: str, method: str, request: Any, reply: type[Any]) -> Any:
        try:
            return await self.end.followed[resource].ask(method, request, reply)
        except grpc.aio.AioRpcError as error:
            meant = error.code().name in {"INVALID_ARGUMENT", "NOT_FOUND"} or "would be set twice" in str(
                error.details()
            )
            assert meant, error
            return "refused"

    async def allocate(self, resource: str, containers: list[list[str]]) -> Any:
        wanted = [dp.ContainerAllocateRequest(devices_ids=one) for one in containers]
        request = dp.AllocateRequest(container_requests=wanted)
        answer = await self.ask(resource, "Allocate", request, dp.AllocateResponse)
        if answer == "refused":
            return answer
        self.answered[resource] += len(answer.container_responses)
        return [_given(one) for one in answer.container_responses]


def _given(one: Any) -> list[str]:
    nodes = [f"{node.host_path} {node.container_path} {node.permissions}" for node in one.devices]
    mounts = [f"{item.host_path} {item.container_path} {'ro' if item.read_only else 'rw'}" for item in one.mounts]
    assert not one.envs
    assert not one.annotations
    return sorted([*nodes, *mounts])


async def served(case: Case, root: Path, monkeypatch: pytest.MonkeyPatch) -> Outcome:
    """One that serves, or should."""
    host = make_host(case, root / "host")
    monkeypatch.setattr(paths, "HostRoot", lambda _root: host)
    (root / "dp").mkdir()
    async with kubelet(root / "dp") as end:
        await end.serve()
        try:
            ours = Ours(case, root, end)
        except ConfigError:
            return {"files left": end.sockets()}
        try:
            found = await _served(case, ours, host)
        finally:
            await ours.stop()
        found["files left"] = end.sockets()
    return found


async def _served(case: Case, ours: Ours, host: Host) -> Outcome:
    end, engine, journal = ours.end, ours.daemon.engine, ours.daemon.journal
    await _until(lambda: bool(engine.resources) or any(fact.kind == "nothing-offered" for fact in journal.tail(1000)))
    names = {resource.name for resource in engine.resources}
    await _until(lambda: all(name in end.followed and end.followed[name].lists for name in names))
    found: Outcome = {"registered": sorted(f"{one.resource_name} {one.version}" for one in end.registrations)}
    if end.registrations:
        (found["endpoint"],) = {_prefix(one.endpoint) for one in end.registrations}
        options = [followed.options for followed in end.followed.values()]
        found["preference"] = any(one is not None and one.get_preferred_allocation_available for one in options)
    for name, followed in end.followed.items():
        listed = {one.ID: one.health for one in followed.lists[-1].devices}
        assert not any(one.topology.nodes for one in followed.lists[-1].devices)
        found[f"{name} list"] = listed
        for slot in listed:
            found[f"{name} {slot}"] = await ours.allocate(name, [[slot]])
        found |= await _asked(case, ours, name, sorted(listed))
    for number, step in enumerate(case["outputs"].get("steps", ())):
        found[f"step {number} lists"] = await _step(step["step"], ours, host)
        (followed,) = end.followed.values()
        found[f"step {number} ids seen"] = len({one.ID for listed in followed.lists for one in listed.devices})
        found[f"step {number} registrations"] = len(end.registrations)
    for path, key in (("/health", "/health"), ("/metrics", "metrics")):
        port = ours.daemon.web.port if ours.daemon.web is not None else 0
        reply = await asyncio.to_thread(urllib.request.urlopen, f"http://127.0.0.1:{port}{path}")
        found |= _metrics(reply.read().decode(), ours.answered) if key == "metrics" else {key: reply.status}
    found["registrations"] = len(end.registrations)
    found["registered"] = sorted(set(found["registered"]))
    return found


def _metrics(text: str, answered: Mapping[str, int]) -> Outcome:
    """Those that are about devices. Allocations: whether the containers that were `answered` are counted."""
    own = [line for line in text.splitlines() if re.match("(# HELP )?generic_device_plugin_", line)]
    found: Outcome = {"metrics": sorted(line.split()[2] for line in own if line.startswith("#"))}
    pattern = r'^generic_device_plugin_(\w+){resource="(.*?)"} (\S+)$'
    for name, resource, value in re.findall(pattern, text, re.MULTILINE):
        number = int(float(value))
        found[f"{resource} {name}"] = number == answered.get(resource, 0) if name == "allocations_total" else number
    return found


async def _asked(case: Case, ours: Ours, name: str, ids: list[str]) -> Outcome:
    found: Outcome = {}
    recorded = case["outputs"]["resources"].get(name, {}).get("answers", ())
    for answer in recorded:
        title = _title(name, answer)
        if answer["rpc"] == "Allocate":
            containers = [one["devices_ids"] for one in answer["request"]["container_requests"]]
            found[title] = await ours.allocate(name, containers)
        elif answer["rpc"] == "PreStartContainer":
            start = dp.PreStartContainerRequest(devices_ids=answer["request"]["devices_ids"])
            answered = await ours.ask(name, "PreStartContainer", start, dp.PreStartContainerResponse)
            found[title] = answered if answered == "refused" else "ok"
        else:
            (asked,) = answer["request"]["container_requests"]
            wanted = dp.ContainerPreferredAllocationRequest(**(dict(asked) | {"available_deviceIDs": ids}))
            request = dp.PreferredAllocationRequest(container_requests=[wanted])
            response = await ours.ask(name, "GetPreferredAllocation", request, dp.PreferredAllocationResponse)
            (container,) = response.container_responses
            assert set(container.deviceIDs) <= set(ids)
            assert len(container.deviceIDs) == asked["allocation_size"]
            found[title] = "ok"
    return found


async def _step(step: str, ours: Ours, host: Host) -> list[Any]:
    """The lists that came of it, as counts of their health."""
    (followed,) = ours.end.followed.values()
    before = len(followed.lists)
    if step == "socket file removed":
        (socket,) = ours.end.plugins.glob("fairlead-*.sock")
        socket.unlink()
        await _until(lambda: len(ours.end.registrations) == 2 and all(one.lists for one in ours.end.followed.values()))
        return []
    if step == "nothing":
        return []
    path = f"/dev/{step.split(maxsplit=1)[0]}"
    host.put(path) if step.endswith("created") else host.drop(path)
    unhealthy = step.endswith("removed")
    await _until(lambda: len(followed.lists) > before and (not unhealthy or len(_health(followed.lists[-1])) > 1))
    return [_health(followed.lists[-1])]


def _health(listed: Any) -> dict[str, int]:
    found = [one.health for one in listed.devices]
    return {health: found.count(health) for health in dict.fromkeys(sorted(found))}


async def _until(what: Any) -> None:
    async with asyncio.timeout(20):
        while not what():  # noqa: ASYNC110 - lists, a journal and an engine: not all of them call
            await asyncio.sleep(0.005)
