"""NVIDIA, AMD, files and simulated devices in one daemon: side by side, twice, in each other's way, and by reload."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from tests.amd import machines
from tests.amd.tree import write
from tests.nvml import Driver, gpus
from tests.nvml import Node as Machine
from tests.system import hostile
from tests.system.rig import PATIENCE_S, Node, running
from tests.unit.backends.nvidia.drivers import installed, options

from fairlead.app.daemon import Daemon
from fairlead.backends import registry
from fairlead.model.errors import FairleadError
from fairlead.testing import Kubelet

NVIDIA, AMD, FILE, SIM, BAD = "nvidia.com/gpu", "amd.com/gpu", "example.com/file", "example.com/sim", "example.com/bad"
RESOURCES = {"gpus": NVIDIA, "cards": AMD, "files": FILE, "sim": SIM, "bad*": BAD}
RULES = [{"match": {"backend": name}, "resource": resource} for name, resource in RESOURCES.items()]
HEALTH = {"probeInterval": "20ms", "hold": "20ms", "probation": "20ms", "cleanProbes": 1, "probeDeadline": "10s"}
TWO = {"devices": [{"count": 2, "vendor": "acme"}]}
Entries = Mapping[str, Mapping[str, Any]]


def config_of(entries: Entries, rules: list[dict[str, Any]] = RULES) -> str:
    backends = [{"name": name, **entry} for name, entry in entries.items()]
    config = {"backends": backends, "rules": rules, "health": HEALTH}
    return "".join(f"{key}: {json.dumps(value)}\n" for key, value in config.items())  # JSON is YAML


def files_at(directory: Path, glob: str = "*") -> dict[str, Any]:
    return {"kind": "paths", "devices": [{"paths": [f"{directory}/{glob}"], "allow": ["file"]}]}


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Machine]:
    with installed(Driver(gpus=gpus("A100", 3)), tmp_path / "nvidia") as node:
        yield node


@pytest.fixture
def entries(driver: Machine, tmp_path: Path) -> Entries:
    files = tmp_path / "files"
    files.mkdir()
    for name in ("a", "b"):
        (files / name).touch()
    return {
        "gpus": {"kind": "nvidia", **options(driver)},
        "cards": {"kind": "amd", "hostRoot": str(write(tmp_path / "amd", machines.mi210()))},
        "files": files_at(files),
        "sim": {"kind": "sim", "fleet": TWO},
    }


async def test_every_kind_serves_beside_the_others(
    entries: Entries, driver: Machine, tmp_path: Path, kubelet: Kubelet, kubelet_root: Path
):
    async with running(kubelet, kubelet_root, config_of(entries)) as node:
        for resource, count in ((NVIDIA, 3), (AMD, 8), (FILE, 2), (SIM, 2)):
            await node.ready(resource, count)
        assert node.status().problems == ()
        pod = await kubelet.run_pod("all", {"main": {NVIDIA: 1, AMD: 2, FILE: 1, SIM: 1}})
        assert pod.phase == "Running", pod.message
        assert "NVIDIA_VISIBLE_DEVICES" in pod.containers["main"].env
        assert "/dev/kfd" in str(pod.containers["main"].nodes)
        # A fault of one kind is a fault of that kind alone.
        (tmp_path / "files" / "b").unlink()
        await kubelet.wait_for_allocatable(FILE, 1, PATIENCE_S)
        await node.steer(do="fail", device="1", xid=79)
        await kubelet.wait_for_allocatable(SIM, 1, PATIENCE_S)
        assert kubelet.node().allocatable == {NVIDIA: 3, AMD: 8, FILE: 1, SIM: 1}


async def test_two_of_one_kind_have_options_of_their_own(tmp_path: Path, kubelet: Kubelet, kubelet_root: Path):
    for name in ("tty0", "tty1", "cam0"):
        (tmp_path / name).touch()
    entries = {"files": files_at(tmp_path, "tty*"), "bad": files_at(tmp_path, "cam*")}
    async with running(kubelet, kubelet_root, config_of(entries)) as node:
        await node.ready(FILE, 2)
        await node.ready(BAD, 1)
        assert [backend.name for backend in node.status().backends] == ["files", "bad"]


async def test_one_resource_may_be_fed_by_two_backends(tmp_path: Path, kubelet: Kubelet, kubelet_root: Path):
    (tmp_path / "a").touch()
    entries: Entries = {"files": files_at(tmp_path, "a"), "sim": {"kind": "sim", "fleet": TWO}}
    async with running(kubelet, kubelet_root, config_of(entries, [{"resource": SIM}])) as node:
        await node.ready(SIM, 3)
        pod = await kubelet.run_pod("all", {"main": {SIM: 3}})
        assert pod.phase == "Running", pod.message
        assert f"{tmp_path}/a" in str(pod.containers["main"].mounts)


async def test_a_device_that_two_backends_find_is_offered_once(kubelet: Kubelet, kubelet_root: Path):
    entries = {"sim": {"kind": "sim", "fleet": TWO}, "bad": {"kind": "sim", "fleet": TWO}}
    async with running(kubelet, kubelet_root, config_of(entries)) as node:
        await node.ready(SIM, 2)
        assert BAD not in kubelet.node().capacity
        (problem,) = node.status().problems
        assert problem.startswith("backends sim and bad both found ")


async def test_a_backend_that_a_reload_removes_keeps_what_pods_hold(
    entries: Entries, kubelet: Kubelet, kubelet_root: Path
):
    async with running(kubelet, kubelet_root, config_of(entries)) as node:
        await node.ready(NVIDIA, 3)
        await node.ready(FILE, 2)
        pod = await kubelet.run_pod("train", {"main": {FILE: 1, NVIDIA: 1}})
        (held,) = pod.containers["main"].devices[FILE]
        registered = _registrations(kubelet)
        node.write(config_of({name: entry for name, entry in entries.items() if name != "files"}))
        await node.reload()
        await kubelet.wait_for_allocatable(FILE, 0, PATIENCE_S)
        assert kubelet.devices(FILE)[held] == "Unhealthy"
        assert (await kubelet.run_pod("late", {"main": {FILE: 1}})).phase == "Failed"
        assert (await kubelet.run_pod("other", {"main": {NVIDIA: 1}})).phase == "Running"
        node.write(config_of(entries))
        await node.reload()
        await kubelet.wait_for_allocatable(FILE, 2, PATIENCE_S)
        assert pod.phase == "Running"
        assert held not in (await kubelet.run_pod("next", {"main": {FILE: 1}})).containers["main"].devices[FILE]
        assert _registrations(kubelet) == registered  # the kubelet heard of a list, and of no new endpoint


@pytest.fixture
def kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [EntryPoint(name, f"tests.system.test_several_backends:{name}", registry.ENTRY_POINTS) for name in OPENERS]
    monkeypatch.setattr(registry, "_points", lambda: iter(points))


def hangs(_options: Mapping[str, Any], _clock: object) -> Any:
    return hostile.Hangs()


class Counted(hostile.Quiet):
    opened = closed = 0

    def __init__(self) -> None:
        Counted.opened += 1

    async def close(self) -> None:
        Counted.closed += 1


def counted(_options: Mapping[str, Any], _clock: object) -> Any:
    return Counted()


def breaks(_options: Mapping[str, Any], _clock: object) -> Any:
    raise OSError("no bus")


OPENERS = ("hangs", "counted", "breaks")


@pytest.mark.usefixtures("kinds")
async def test_a_new_backend_is_served_beside_another_new_one_that_hangs(
    tmp_path: Path, kubelet: Kubelet, kubelet_root: Path
):
    (tmp_path / "a").touch()
    entries: dict[str, Any] = {"sim": {"kind": "sim", "fleet": TWO}}
    async with running(kubelet, kubelet_root, config_of(entries)) as node:
        await node.ready(SIM, 2)
        entries |= {"bad": {"kind": "hangs"}, "files": files_at(tmp_path, "a")}
        node.write(config_of(entries))
        await node.reload()
        await node.ready(FILE, 1)
        assert any("backend bad: it has not answered yet" in problem for problem in node.status().problems)
        # One that is replaced by itself waits for all new ones: devices may move from one to another.
        entries["sim"] = {"kind": "sim", "fleet": TWO, "speed": 2}
        node.write(config_of(entries))
        await node.reload()
        node.daemon.settle()
        pod = await kubelet.run_pod("train", {"main": {SIM: 2, FILE: 1}})
        assert pod.phase == "Running", pod.message


@pytest.mark.usefixtures("kinds")
@pytest.mark.parametrize("failing", ["the cluster", "another backend"])
async def test_a_reload_that_fails_closes_what_it_had_opened(
    failing: str, kubelet: Kubelet, kubelet_root: Path, monkeypatch: pytest.MonkeyPatch
):
    entries: dict[str, Any] = {"sim": {"kind": "sim", "fleet": TWO}}
    async with running(kubelet, kubelet_root, config_of(entries)) as node:
        await node.ready(SIM, 2)
        Counted.opened = Counted.closed = 0
        entries["bad"] = {"kind": "counted"}
        if failing == "the cluster":
            monkeypatch.setattr(Daemon, "_open_cluster", hostile.throw(FairleadError("no credentials")))
        else:
            entries["bad-2"] = {"kind": "breaks"}
        node.write(config_of(entries))
        await node.reload()
        assert (Counted.opened, Counted.closed) == (1, 1)
        assert ("no credentials" if failing == "the cluster" else "no bus") in node.daemon.problems["config"]
        assert (await kubelet.run_pod("train", {"main": {SIM: 1}})).phase == "Running"


@pytest.mark.usefixtures("kinds")
async def test_a_start_that_fails_closes_what_it_had_opened(kubelet: Kubelet, kubelet_root: Path):
    Counted.opened = Counted.closed = 0
    async with running(
        kubelet, kubelet_root, config_of({"bad": {"kind": "counted"}, "bad-2": {"kind": "breaks"}})
    ) as it:
        ended = it.kill()
        assert ended is not None
        with pytest.raises(
            FairleadError, match=r"backends\[1\]: backend 'breaks' could not be opened: OSError: no bus"
        ):
            await ended
    assert (Counted.opened, Counted.closed) == (1, 1)


def _registrations(kubelet: Kubelet) -> int:
    return sum(call.method == "Register" for call in kubelet.calls)


async def test_status_shows_each_backend(entries: Entries, kubelet: Kubelet, kubelet_root: Path):
    async with running(kubelet, kubelet_root, config_of(entries)) as node:
        await node.ready(NVIDIA, 3)
        shown = {backend.name: backend.devices for backend in node.status().backends}
        assert shown == {"gpus": 3, "cards": 8, "files": 2, "sim": 2}
        assert _of(node, AMD) == "cards"


def _of(node: Node, resource: str) -> str:
    return next(device.backend for device in node.status().devices if device.resource == resource)
