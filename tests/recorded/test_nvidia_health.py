"""The events of every recording of health, told to ours: the daemon in this process, under the stand-in kubelet."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import msgspec
import pytest

from fairlead.backends.nvidia import NvidiaBackend, library
from fairlead.backends.nvidia.nvml import Nvml
from fairlead.dialects.nvidia.command import read_command_line
from fairlead.engine import source
from fairlead.standin._gen import deviceplugin_v1beta1_pb2 as dp
from fairlead.testing import Kubelet
from tests.nvml import Node as Machine
from tests.nvml import from_recording
from tests.nvml.node import XID
from tests.peers.nvidia.kubelet import Followed
from tests.recorded import health
from tests.recorded.differences import DIFFERENCES
from tests.recorded.nvidia import CONFIG
from tests.system.rig import PATIENCE_S, Node, running
from tests.vectors import Vector, drivers, nvidia

CASES = {name: case for name, case in nvidia().items() if re.match(r"\d+-health-(?!wsl|two-streams|late-stream)", name)}
TWO_STREAMS, LATE_STREAM = "481-health-two-streams", "482-health-late-stream"
WAIT_FAILS = "waiterror"
MARK = 62  # an XID that no recording has: when it has arrived, so has everything before it


@pytest.fixture(autouse=True)
def the_library_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """One copy of the simulated driver is loaded here. And a watch that failed is taken up again without a pause."""
    monkeypatch.setattr(library, "load", lambda _root: Nvml(library.NAME))
    monkeypatch.setattr(source, "RETRY_S", 0.01)


class Played:
    def __init__(self, vector: Vector, node: Node, machine: Machine) -> None:
        self.vector = vector
        self.node = node
        self.machine = machine
        self.order = health.natural(vector)

    @property
    def backend(self) -> NvidiaBackend:
        found = self.node.daemon.engine.sources.live["nvidia"].backend
        assert isinstance(found, NvidiaBackend)
        return found

    def lists(self) -> dict[str, str]:
        kubelet = self.node.kubelet
        return {name: health.as_text(ids, kubelet.devices(name)) for name, ids in self.order.items()}

    async def shows(self, lists: health.Lists) -> None:
        await eventually(lambda: self.lists() == lists, lambda: f"{self.lists()}, not {lists}")

    async def tell(self, event: str) -> None:
        word, *numbers = event.split()
        if word != WAIT_FAILS:
            self.machine.event(*map(int, numbers))
            return
        self.machine.fail_wait(int(numbers[0]))
        if int(numbers[0]) != 15:  # a set that failed for another reason is opened anew
            await self.node.until_fact("watch-failed")
            await eventually(lambda: not self.backend._renew and self.backend._listener.listening.is_set())

    def causes(self) -> list[tuple[str, str]]:
        """Which device was withdrawn, and why."""
        facts = [fact for fact in self.node.facts if fact.kind == "unhealthy"]
        return sorted((fact.keys["device"], fact.keys["cause"].partition(":")[0]) for fact in facts)


async def eventually(condition: Callable[[], bool], why: Callable[[], str] = lambda: "") -> None:
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():  # noqa: ASYNC110 - it may be the list, the journal or the driver; not all of them call
                await asyncio.sleep(0.005)
    except TimeoutError:
        pytest.fail(why() or "it did not happen")


@asynccontextmanager
async def playing(vector: Vector, kubelet: Kubelet, root: Path) -> AsyncIterator[Played]:
    directory = root / "played"
    directory.mkdir()
    (directory / "config.yaml").write_text(vector.config_file or "")
    args = [word.replace(CONFIG, f"{directory}/config.yaml") for word in vector.argv[1:]]
    config = dict(read_command_line(["--lenient", *args], vector.env).translate().config)
    with from_recording(drivers()[vector.driver]).installed(directory / "machine") as machine, machine.loaded():
        (backend,) = config["backends"]
        backend |= {"hostRoot": str(machine.root), "driverRootMount": str(machine.root)}
        backend["health"] = {**backend.get("health", {}), "eventWait": "100ms"}
        kept: dict[str, Any] = {key: config[key] for key in ("backends", "rules")}
        kept["health"] = {"hold": "1h"}  # nothing comes back while a test looks on
        text = "".join(f"{key}: {json.dumps(value)}\n" for key, value in kept.items())
        async with running(kubelet, root, text) as node:
            for name, ids in health.natural(vector).items():
                await kubelet.wait_for_allocatable(name, len(ids), PATIENCE_S)
            played = Played(vector, node, machine)
            listener = played.backend._listener.events
            yield played
        # Its thread ends its wait first: the driver is taken away next, and it holds it.
        await eventually(lambda: listener._nvml is None)


@pytest.mark.parametrize("name", CASES)
async def test_each_list_is_nvidias_or_a_better_one(name: str, kubelet: Kubelet, kubelet_root: Path) -> None:
    vector = CASES[name]
    async with playing(vector, kubelet, kubelet_root) as played:
        for event, lists in zip(health.events(vector), health.ours(vector), strict=True):
            await played.tell(event)
            await played.shows(lists)
        causes = sorted(expected_causes(vector))
        await eventually(lambda: played.causes() == causes, lambda: f"{played.causes()}, not {causes}")
        await nothing_is_on_its_way(played)
        assert played.causes() == causes


async def nothing_is_on_its_way(played: Played) -> None:
    """A last event, on a GPU that is healthy and heard, has come: whatever was told before it has come too."""
    if not played.backend._faults.watching:
        assert not played.backend._listener.listening.is_set(), "nobody wants to know, and somebody listens"
        return
    heard = set(played.backend._listener.events._uuids.values())
    ill = {device for device, _cause in played.causes()}
    for number, gpu in enumerate(played.machine.driver.gpus):
        devices = [one.id for one in played.node.daemon.engine.inventory.devices if gpu.uuid in {one.id, one.parent}]
        if gpu.uuid in heard and gpu.events & XID and not ill & set(devices):
            only = played.backend._options.health.watched_xids if not played.backend._faults.beyond_xids else ()
            played.machine.xid(number, code := only[0] if only else MARK)
            for device in devices:
                await played.node.until_fact("unhealthy", device=device)
            marked = [fact for fact in played.node.facts if fact.keys.get("device") in devices]
            assert all(f"xid-{code}" in fact.keys["cause"] for fact in marked if fact.kind == "unhealthy")
            played.node.facts[:] = [fact for fact in played.node.facts if fact not in marked]
            return


def expected_causes(vector: Vector) -> Iterator[tuple[str, str]]:
    """Of every device that turns unhealthy: the event that did it, and no earlier one."""
    order = health.natural(vector)
    before: health.Lists = {name: "+" * len(ids) for name, ids in order.items()}
    for event, lists in zip(health.events(vector), health.ours(vector), strict=True):
        _word, _gpu, kind, data, *_instance = event.split() if event.startswith("event") else ["", "", "", ""]
        code = "ecc-double-bit" if kind == "2" else f"xid-{data}"
        slots = [
            one
            for name, ids in order.items()
            for one, was, now in zip(ids, before[name], lists[name], strict=True)
            if (was, now) == ("+", "-")
        ]
        yield from dict.fromkeys((slot.partition("::")[0], code) for slot in slots)
        before = lists


@pytest.mark.parametrize("name", ["459-health-events-unsupported", "460-health-no-xid-support"])
async def test_gpus_without_events_are_told(name: str, kubelet: Kubelet, kubelet_root: Path) -> None:
    async with playing(CASES[name], kubelet, kubelet_root) as played:
        told = await played.node.until_fact("scan-problem")
        assert "only probes tell of its faults" in told.keys["reason"]
        assert "no-events" in DIFFERENCES


async def test_a_list_that_says_nothing_new_is_not_sent(kubelet: Kubelet, kubelet_root: Path) -> None:
    vector = CASES["437-health-default"]
    assert health.repeats(vector)
    assert "list-once" in DIFFERENCES
    async with playing(vector, kubelet, kubelet_root) as played, following(kubelet) as followed:
        for event in ("event 0 8 79", "event 0 8 79", "event 1 8 48"):
            played.machine.event(*map(int, event.split()[1:]))
        await eventually(lambda: "Unhealthy" in {one.health for one in followed.lists[-1].devices[1:2]})
        texts = [_text(played, message) for message in followed.lists]
        assert texts == list(dict.fromkeys(texts)), "a list was sent twice"
        assert texts[-1] == "--++"


async def test_what_is_unhealthy_is_not_handed_out(kubelet: Kubelet, kubelet_root: Path) -> None:
    assert "unhealthy-refused" in DIFFERENCES
    async with playing(CASES["437-health-default"], kubelet, kubelet_root) as played, following(kubelet) as followed:
        await played.tell("event 0 8 79")
        await played.shows({health.GPU: "-+++"})
        wanted = dp.ContainerAllocateRequest(devices_ids=played.order[health.GPU][:1])
        with pytest.raises(grpc.aio.AioRpcError, match="has fallen off the bus"):
            await followed.ask("Allocate", dp.AllocateRequest(container_requests=[wanted]), dp.AllocateResponse)


async def test_each_of_two_streams_hears_everything(kubelet: Kubelet, kubelet_root: Path) -> None:
    vector = nvidia()[TWO_STREAMS]
    assert [len(frames.frames) for frames in vector.result.resources[health.GPU].frames_after_event or ()] == [1, 0]
    assert "every-stream" in DIFFERENCES
    async with playing(_of_one_stream(vector), kubelet, kubelet_root) as played, following(kubelet) as followed:
        for event, text in (("event 0 8 79", "-+"), ("event 1 8 79", "--")):
            await played.tell(event)
            await played.shows({health.GPU: text})
            await eventually(lambda text=text: _text(played, followed.lists[-1]) == text)  # type: ignore[misc]  # bound


async def test_a_late_stream_begins_with_what_is_known(kubelet: Kubelet, kubelet_root: Path) -> None:
    vector = nvidia()[LATE_STREAM]
    async with playing(vector, kubelet, kubelet_root) as played:
        for event in vector.result.resources[health.GPU].events_before_the_stream or ():
            await played.tell(event)
        await played.shows({health.GPU: "--"})
        async with following(kubelet) as followed:
            assert _text(played, followed.lists[0]) == "--"


@asynccontextmanager
async def following(kubelet: Kubelet) -> AsyncIterator[Followed]:
    """A stream of our own, beside the stand-in's."""
    (path,) = kubelet.plugin_dir.glob("fairlead-*gpu*.sock")
    followed = Followed(path, asyncio.Event())
    try:
        await eventually(lambda: bool(followed.lists))
        yield followed
    finally:
        await followed.close()


def _text(played: Played, message: Any) -> str:
    return health.as_text(played.order[health.GPU], {one.ID: one.health for one in message.devices})


def _of_one_stream(vector: Vector) -> Vector:
    resources = {health.GPU: vector.result.resources[health.GPU]}
    return msgspec.structs.replace(vector, result=msgspec.structs.replace(vector.result, resources=resources))


def test_every_difference_is_of_a_recording_and_in_the_list() -> None:
    assert health.OTHERWISE.keys() <= CASES.keys()
    for name, lines in health.OTHERWISE.items():
        assert {line.difference for line in lines} <= DIFFERENCES.keys()
        assert health.ours(CASES[name]) != health.theirs(CASES[name]), f"{name} is not answered otherwise"
