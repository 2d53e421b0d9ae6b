"""Units and their supervisor against a kubelet: what one does never reaches another."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from fairlead.engine.allocator import Allocator
from fairlead.fronts.deviceplugin import endpoint as endpoint_module
from fairlead.fronts.deviceplugin import supervisor as supervisor_module
from fairlead.fronts.deviceplugin.endpoint import Endpoint, EndpointContext
from fairlead.fronts.deviceplugin.lifecycle import Phase
from fairlead.fronts.deviceplugin.service import Service
from fairlead.fronts.deviceplugin.supervisor import Supervisor
from fairlead.fronts.podresources import read_holdings
from fairlead.fronts.sockets import SocketWatch, identity
from fairlead.kit.clock import SystemClock
from fairlead.model.device import Device
from fairlead.model.edits import Edits, Grant
from fairlead.model.health import Cause, CauseKind, Condition, Health
from fairlead.model.holdings import Holder, Holdings, Unknown
from fairlead.model.inventory import ALL_HEALTHY, Conditions, Inventory
from fairlead.model.names import DeviceId, ResourceName, SlotId
from fairlead.model.resource import Resource, Slot
from fairlead.standin.conformance.client import Client, connect
from fairlead.standin.conformance.timing import LoadAwareTimer
from fairlead.testing import Kubelet
from fairlead.wire.rpc import Server
from fairlead.wire.unix import listen

GPU = ResourceName("example.com/gpu")
NIC = ResourceName("example.com/nic")


def resource(name: ResourceName = GPU, count: int = 2, *, replicas: int = 1) -> Resource:
    prefix = name.partition("/")[2]
    devices = tuple(Device(DeviceId(f"{prefix}{n}")) for n in range(count))
    slots = tuple(Slot(SlotId(f"{device.id}::{r}"), device.id) for device in devices for r in range(replicas))
    return Resource(name, slots, Inventory(devices))


class Rig:
    def __init__(self, kubelet: Kubelet) -> None:
        self.kubelet = kubelet
        self.facts: list[tuple[str, dict[str, Any]]] = []
        self._more = asyncio.Event()
        self.edits: Callable[[Resource, Grant], Edits] = lambda _r, grant: Edits(env={"N": str(len(grant.slots))})
        clock = SystemClock()
        self.watch = SocketWatch(kubelet.plugin_dir, clock)
        self.place = EndpointContext(
            directory=kubelet.plugin_dir,
            kubelet_socket=kubelet.plugin_dir / "kubelet.sock",
            watch=self.watch,
            clock=clock,
            record=self.record,
            jitter=lambda: 0.0,
        )
        self.prepares = False
        allocator = Allocator(
            lambda *args: self.edits(*args), _prepare, self.record, prepares=lambda _resource: self.prepares
        )
        self.supervisor = Supervisor(allocator, self.place)

    def record(self, kind: str, **keys: Any) -> None:
        self.facts.append((kind, keys))
        self._more.set()

    async def fact(self, kind: str, **keys: Any) -> dict[str, Any]:
        async with asyncio.timeout(10):
            while True:
                for found, having in self.facts:
                    if found == kind and keys.items() <= having.items():
                        return having
                self._more.clear()
                await self._more.wait()


async def _prepare(_resource: Resource, _grant: Grant) -> None:
    pass


@pytest.fixture
async def rig(kubelet: Kubelet) -> AsyncIterator[Rig]:
    rig = Rig(kubelet)
    watching = asyncio.create_task(rig.watch.run())
    yield rig
    await rig.supervisor.stop()
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


async def test_resources_come_change_and_go_by_difference(rig: Rig):
    rig.supervisor.apply([resource(GPU), resource(NIC)], ALL_HEALTHY)
    await rig.kubelet.wait_for_allocatable(GPU, 2)
    await rig.kubelet.wait_for_allocatable(NIC, 2)
    kept = rig.supervisor.endpoints[NIC]
    rig.supervisor.apply([resource(GPU, 3), resource(NIC)], ALL_HEALTHY)
    await rig.kubelet.wait_for_allocatable(GPU, 3)
    rig.supervisor.apply([resource(NIC)], ALL_HEALTHY)
    await rig.kubelet.wait_for_allocatable(GPU, 0)
    assert rig.supervisor.endpoints[NIC] is kept
    assert rig.kubelet.node().allocatable[NIC] == 2
    assert sum(call.method == "Register" and call.resource == NIC for call in rig.kubelet.calls) == 1


async def test_a_resource_that_is_dropped_and_comes_back_serves_again(rig: Rig):
    rig.supervisor.apply([resource(GPU)], ALL_HEALTHY)
    await rig.kubelet.wait_for_allocatable(GPU, 2)
    rig.supervisor.apply([], ALL_HEALTHY)
    rig.supervisor.apply([resource(GPU)], ALL_HEALTHY)
    registered = lambda: sum(call.method == "Register" for call in rig.kubelet.calls) >= 2  # noqa: E731 - a predicate
    await rig.kubelet.wait_for(registered)
    await rig.kubelet.wait_for_allocatable(GPU, 2)


async def test_a_late_notice_of_the_kubelet_that_accepted_it_changes_nothing(rig: Rig, monkeypatch: pytest.MonkeyPatch):
    """A retry may register before the notice of the new kubelet.sock is read. The stream must not end for it."""
    notice = kubelet_notice(rig, monkeypatch)
    rig.supervisor.apply([resource()], ALL_HEALTHY)
    await rig.kubelet.wait_for_allocatable(GPU, 2)
    notice()
    rig.supervisor.apply([resource(count=3)], ALL_HEALTHY)
    await rig.kubelet.wait_for_allocatable(GPU, 3)
    assert not [keys for _kind, keys in rig.facts if keys.get("reason") == "kubelet socket replaced"]


async def test_a_notice_of_the_kubelet_that_is_being_called_does_not_call_it_twice(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
):
    """Two calls would make two streams, and the kubelet ends the first."""
    notice, asked, go_on = kubelet_notice(rig, monkeypatch), asyncio.Event(), asyncio.Event()

    async def on_register(_request: Any) -> None:
        asked.set()
        await go_on.wait()

    rig.kubelet.callbacks.on_register = on_register
    rig.supervisor.apply([resource()], ALL_HEALTHY)
    await asked.wait()
    notice()
    await asyncio.sleep(0)
    go_on.set()
    await rig.kubelet.wait_for_allocatable(GPU, 2)
    assert sum(call.method == "Register" for call in rig.kubelet.calls) == 1
    assert not [keys for _kind, keys in rig.facts if keys.get("reason") == "kubelet socket replaced"]


async def test_a_socket_that_a_starting_kubelet_removes_at_once_is_made_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
):
    """Between the bind and the first look at the file. The kubelet could never call back."""
    made = []

    def listen_and_lose(path: Path) -> socket.socket:
        made.append(path)
        listening = listen(path)
        if len(made) == 1:
            path.unlink()
        return listening

    monkeypatch.setattr(endpoint_module, "listen", listen_and_lose)
    rig.supervisor.apply([resource()], ALL_HEALTHY)
    await rig.kubelet.wait_for_allocatable(GPU, 2)
    assert len(made) == 2


def kubelet_notice(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """What says that kubelet.sock has changed, at a moment that the test chooses."""
    watchers: dict[str, Any] = {}

    def follow(name: str, watcher: Any) -> Callable[[], None]:
        watchers[name] = watcher
        return lambda: None

    monkeypatch.setattr(rig.watch, "follow", follow)
    socket = rig.kubelet.plugin_dir / "kubelet.sock"
    return lambda: watchers[str(socket)](identity(socket))


async def test_an_oversize_resource_is_refused_and_the_others_serve(rig: Rig):
    huge = resource(GPU, 2, replicas=100_000)
    rig.supervisor.apply([huge, resource(NIC)], ALL_HEALTHY)
    rig.supervisor.apply([huge, resource(NIC)], ALL_HEALTHY)
    await rig.kubelet.wait_for_allocatable(NIC, 2)
    assert "4,194,304" in rig.supervisor.refused[GPU]
    assert [kind for kind, keys in rig.facts if keys.get("resource") == GPU] == ["list-refused"]  # told once
    rig.supervisor.apply([resource(GPU), resource(NIC)], ALL_HEALTHY)
    await rig.kubelet.wait_for_allocatable(GPU, 2)
    assert not rig.supervisor.refused


async def test_a_list_that_grows_too_large_keeps_the_old_one(rig: Rig):
    rig.supervisor.apply([resource(GPU)], ALL_HEALTHY)
    await rig.kubelet.wait_for_allocatable(GPU, 2)
    huge = resource(GPU, 2, replicas=100_000)
    rig.supervisor.apply([huge], ALL_HEALTHY)
    rig.supervisor.apply([huge], ALL_HEALTHY)
    unit = rig.supervisor.endpoints[GPU]
    assert "4,194,304" in unit.problem
    assert len(unit.resource.slots) == 2
    assert sum(kind == "list-refused" for kind, _ in rig.facts) == 1
    rig.supervisor.apply([resource(GPU, 3)], ALL_HEALTHY)
    await rig.kubelet.wait_for_allocatable(GPU, 3)
    assert not unit.problem


async def test_a_unit_that_crashes_is_told_and_started_again(rig: Rig, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(supervisor_module, "CRASH_BACKOFF_S", 0.01)
    real = Endpoint._bind
    crashes: list[int] = []

    async def bind(self: Endpoint) -> None:
        if self.name == GPU and len(crashes) < 2:
            crashes.append(1)
            raise RuntimeError("out of luck")
        await real(self)

    monkeypatch.setattr(Endpoint, "_bind", bind)
    rig.supervisor.apply([resource(GPU), resource(NIC)], ALL_HEALTHY)
    await rig.kubelet.wait_for_allocatable(NIC, 2)
    await rig.kubelet.wait_for_allocatable(GPU, 2)
    assert (await rig.fact("endpoint-crashed", resource=GPU))["reason"] == "RuntimeError: out of luck"


async def test_a_list_that_is_too_long_does_not_hide_a_fault(rig: Rig):
    rig.supervisor.apply([resource(GPU)], ALL_HEALTHY)
    await rig.kubelet.wait_for_allocatable(GPU, 2)
    huge = resource(GPU, 1, replicas=100_000)  # and the second device is gone
    broken = Condition(Health.UNHEALTHY, Cause("xid-79", CauseKind.PERMANENT), 1.0)
    rig.supervisor.apply([huge], Conditions({DeviceId("gpu0"): broken}))
    await rig.kubelet.wait_for_allocatable(GPU, 0)
    assert set(rig.kubelet.devices(GPU).values()) == {"Unhealthy"}


async def test_a_list_published_while_the_socket_is_made_is_not_lost(rig: Rig, monkeypatch: pytest.MonkeyPatch):
    real = Server.start

    async def start(self: Server, sock: socket.socket) -> None:
        rig.supervisor.apply([resource(GPU, 5)], ALL_HEALTHY)
        await real(self, sock)

    monkeypatch.setattr(Server, "start", start)
    rig.supervisor.apply([resource(GPU, 2)], ALL_HEALTHY)
    await rig.kubelet.wait_for_allocatable(GPU, 5)


async def test_a_second_server_of_a_resource_waits_and_says_who_has_it(rig: Rig):
    rig.supervisor.apply([resource(GPU)], ALL_HEALTHY)
    await rig.kubelet.wait_for_allocatable(GPU, 2)
    second = Supervisor(Allocator(lambda *_: Edits(), _prepare, rig.record), rig.place)
    second.apply([resource(GPU, 7)], ALL_HEALTHY)
    fact = await rig.fact("backoff", resource=GPU)
    assert f"already served by pid {os.getpid()}" in fact["reason"]
    assert rig.kubelet.node().allocatable[GPU] == 2
    rig.supervisor.apply([], ALL_HEALTHY)
    await rig.kubelet.wait_for_allocatable(GPU, 7)
    await second.stop()


def stranger(rig: Rig) -> AbstractAsyncContextManager[Client]:
    """A connection of its own to our socket."""
    return connect(rig.supervisor.endpoints[GPU].socket, 5.0, LoadAwareTimer(), 0.0)


async def test_a_stranger_on_the_socket_cannot_hide_the_kubelets_end(rig: Rig):
    rig.supervisor.apply([resource(GPU)], ALL_HEALTHY)
    await rig.kubelet.wait_for_allocatable(GPU, 2)
    async with stranger(rig) as client, client.lists() as stream:
        await stream.read()
        registered = registrations(rig)
        rig.kubelet.close_stream(GPU)
        await rig.kubelet.wait_for(lambda: registrations(rig) > registered)
        await rig.kubelet.wait_for_allocatable(GPU, 2)


def registrations(rig: Rig) -> int:
    return sum(call.method == "Register" for call in rig.kubelet.calls)


async def test_a_stranger_that_opens_a_stream_and_leaves_does_not_cost_the_kubelets(rig: Rig):
    rig.supervisor.apply([resource(GPU)], ALL_HEALTHY)
    await rig.kubelet.wait_for_allocatable(GPU, 2)
    unit = rig.supervisor.endpoints[GPU]
    async with stranger(rig) as client:
        await client.options()  # as the kubelet does, but not when it does
        async with client.lists() as stream:
            assert len((await stream.read()).devices) == 2  # it is served
    # Two lists later the daemon has long seen the stream's end.
    for count in (3, 2):
        rig.supervisor.apply([resource(GPU, count)], ALL_HEALTHY)
        await rig.kubelet.wait_for_allocatable(GPU, count)
    assert unit.life.phase is Phase.STREAMING
    assert unit.life.streams == 1
    assert registrations(rig) == 1


async def test_a_strangers_stream_does_not_pass_for_that_of_a_kubelet_which_has_gone(rig: Rig):
    rig.supervisor.apply([resource(GPU)], ALL_HEALTHY)
    await rig.kubelet.wait_for_allocatable(GPU, 2)
    await rig.kubelet.stop()
    await rig.fact("backoff", resource=GPU)
    unit = rig.supervisor.endpoints[GPU]
    async with stranger(rig) as client, client.lists() as stream:
        await stream.read()
        assert unit.life.phase is not Phase.STREAMING
    await rig.kubelet.start()
    await rig.kubelet.wait_for_allocatable(GPU, 2)


async def test_a_change_of_options_registers_again(rig: Rig):
    rig.supervisor.apply([resource(GPU)], ALL_HEALTHY)
    await rig.kubelet.wait_for_allocatable(GPU, 2)
    rig.prepares = True
    rig.supervisor.apply([resource(GPU)], ALL_HEALTHY)
    await rig.kubelet.wait_for(lambda: sum(call.method == "Register" for call in rig.kubelet.calls) == 2)
    await rig.kubelet.wait_for_allocatable(GPU, 2)
    pod = await rig.kubelet.run_pod("p", {"main": {GPU: 1}})
    assert pod.phase == "Running"
    assert any(call.method == "PreStartContainer" for call in rig.kubelet.calls)


async def test_a_registration_that_cannot_be_written_is_tried_again(rig: Rig, monkeypatch: pytest.MonkeyPatch):
    whole = Service.options
    faults = [ZeroDivisionError("theirs")]

    def options(self: Service, *args: Any) -> Any:
        if faults:
            raise faults.pop()
        return whole(self, *args)

    monkeypatch.setattr(Service, "options", options)
    rig.supervisor.apply([resource(GPU)], ALL_HEALTHY)
    assert "theirs" in (await rig.fact(Phase.BACKOFF.value))["reason"]
    await rig.kubelet.wait_for_allocatable(GPU, 2)


async def test_code_of_others_that_raises_fails_one_call_and_is_told(rig: Rig):
    def broken(_resource: Resource, _grant: Grant) -> Edits:
        raise ZeroDivisionError("theirs")

    rig.edits = broken
    rig.supervisor.apply([resource(GPU)], ALL_HEALTHY)
    await rig.kubelet.wait_for_allocatable(GPU, 2)
    pod = await rig.kubelet.run_pod("p", {"main": {GPU: 1}})
    assert pod.phase == "Failed"
    assert "theirs" in pod.message
    assert "Traceback" not in pod.message
    assert (await rig.fact("call-failed"))["reason"] == "ZeroDivisionError: theirs"
    assert rig.supervisor.endpoints[GPU].life.phase is Phase.STREAMING


async def test_a_file_in_the_way_of_our_socket_is_not_removed_but_told(rig: Rig):
    unit_socket = rig.kubelet.plugin_dir / rig.place.socket_name(GPU)
    unit_socket.write_text("precious")
    rig.supervisor.apply([resource(GPU)], ALL_HEALTHY)
    fact = await rig.fact("backoff", resource=GPU)
    assert "cannot serve" in fact["reason"]
    assert unit_socket.read_text() == "precious"
    unit_socket.unlink()
    await rig.kubelet.wait_for_allocatable(GPU, 2)


async def test_who_holds_what_is_read_from_the_kubelet(rig: Rig):
    rig.supervisor.apply([resource(GPU)], ALL_HEALTHY)
    await rig.kubelet.wait_for_allocatable(GPU, 2)
    pod = await rig.kubelet.run_pod("p", {"main": {GPU: 1}})
    (held,) = pod.containers["main"].devices[GPU]
    found = await read_holdings(rig.kubelet.podresources_socket)
    assert isinstance(found, Holdings)
    assert found.by_slot == {(GPU, held): Holder("default", "p", "main")}
    assert found.of(GPU) == {held}
    assert found.of(NIC) == frozenset()
    assert str(found.by_slot[GPU, SlotId(held)]) == "default/p/main"


async def test_an_absent_or_deaf_pod_resources_socket_is_no_answer_and_no_error(kubelet: Kubelet, tmp_path: Path):
    assert isinstance(await read_holdings(tmp_path / "none.sock"), Unknown)
    path = kubelet.podresources_socket
    await kubelet.stop()
    found = await read_holdings(path)
    assert isinstance(found, Unknown)
    assert str(path) in found.reason
