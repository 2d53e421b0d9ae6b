"""The RPC surface: every call the kubelet can make, with right and wrong messages, through the real wire in memory.

A message either is answered or gets a documented status; a handler never raises what it did not mean to.
"""

from __future__ import annotations

import asyncio
import random
import weakref
from pathlib import Path
from typing import Any

from hpack import Decoder
from tests.clock import FakeClock
from tests.fuzz.mutate import damage_bytes
from tests.fuzz.targets import promise
from tests.fuzz.wire import Sink

from fairlead.engine.allocator import Allocator
from fairlead.fronts.deviceplugin.caller import Caller
from fairlead.fronts.deviceplugin.encoding import DeviceList, make_device_list
from fairlead.fronts.deviceplugin.endpoint import Endpoint, EndpointContext
from fairlead.fronts.deviceplugin.service import Service
from fairlead.fronts.sockets import SocketWatch
from fairlead.kit.latest import Latest
from fairlead.model.device import Device
from fairlead.model.edits import Edits, Grant
from fairlead.model.errors import BackendError
from fairlead.model.health import Cause, CauseKind, Condition, Health
from fairlead.model.inventory import Conditions, Inventory, Links
from fairlead.model.names import DeviceId, ResourceName, SlotId
from fairlead.model.resource import Resource, Slot, Strategy, Terms
from fairlead.wire import deviceplugin as dp
from fairlead.wire import frames as f
from fairlead.wire import pluginregistration as pr
from fairlead.wire.grpc import length_prefixed, request_block
from fairlead.wire.proto import DecodeError, decode, encode
from fairlead.wire.rpc import Method, Server, Status
from fairlead.wire.server_protocol import ServerProtocol

NAME = ResourceName("example.com/gpu")
# OK, and what we say when we mean no. INTERNAL: does not decode, or preparing failed.
DOCUMENTED = {Status.OK, Status.INVALID_ARGUMENT, Status.FAILED_PRECONDITION, Status.INTERNAL, Status.UNIMPLEMENTED}
UNKNOWN = ("", "nobody", "é", "gpu0::9", "gpu0 ", "x" * 100, "\x00")
METHODS: tuple[Method[Any, Any], ...] = (
    dp.ALLOCATE,
    dp.ALLOCATE,
    dp.GET_PREFERRED_ALLOCATION,
    dp.GET_PREFERRED_ALLOCATION,
    dp.GET_OPTIONS,
    dp.PRE_START_CONTAINER,
    dp.LIST_AND_WATCH,
    pr.GET_INFO,
    pr.NOTIFY_REGISTRATION_STATUS,
    Method("/v1beta1.DevicePlugin/Nothing", dp.Empty, dp.Empty),
)


def some_resource(rng: random.Random) -> tuple[Resource, Conditions, bool]:
    count, replicas = rng.randint(1, 6), rng.choice((1, 1, 3))
    devices = tuple(Device(DeviceId(f"gpu{n}"), numa_nodes=(n % 2,)) for n in range(count))
    scores = {(one.id, other.id): rng.randrange(50) for one in devices for other in devices if one.id < other.id}
    names = [
        (device.id, device.id if replicas == 1 else f"{device.id}::{k}") for device in devices for k in range(replicas)
    ]
    slots = tuple(Slot(SlotId(slot), device, 1.0 if rng.random() < 0.1 else None) for device, slot in names)
    sick = Condition(Health.UNHEALTHY, Cause("ecc", CauseKind.PERMANENT), 1.0)
    conditions = {device.id: sick for device in devices if rng.random() < 0.2}
    strategy = rng.choice(list(Strategy))
    resource = Resource(NAME, slots, Inventory(devices, Links(scores)), Terms(strategy=strategy))
    return resource, Conditions(conditions), rng.random() < 0.5


def _edits(resource: Resource, grant: Grant) -> Edits:
    return Edits(env={"IDS": ",".join(grant.slots)}, annotations={"n": str(len(grant.slots))})


async def _prepare(_resource: Resource, grant: Grant) -> None:
    if len(grant.slots) > 3:
        raise BackendError("too many to prepare")


class RpcTarget:
    block = 200

    async def start(self) -> None:
        self.unexpected: list[str] = []
        self.streams = 0
        self.protocols: weakref.WeakSet[ServerProtocol] = weakref.WeakSet()
        self._resource: Resource | None = None

    def _begin(self, rng: random.Random) -> None:
        """Another resource: a new server, as a unit makes one."""
        self._resource, self._conditions, prepares = some_resource(rng)
        clock = FakeClock()
        allocator = Allocator(_edits, _prepare, lambda *_args, **_keys: None, prepares=lambda _resource: prepares)
        directory = Path("/nowhere")
        place = EndpointContext(
            directory=directory,
            kubelet_socket=None,
            watch=SocketWatch(directory, clock),
            clock=clock,
            record=lambda *_args, **_keys: None,
        )
        self._unit = Endpoint(self._resource, self._conditions, allocator, place)
        self.device_lists: Latest[DeviceList] = Latest(make_device_list(self._resource, self._conditions))
        caller = Caller(self._on_stream)
        service = Service(self.device_lists, allocator, lambda *_args, **_keys: None, caller)
        handlers = {**service.handlers(), **self._unit._watched_handlers(caller)}
        self._server = Server(handlers, on_error=lambda path, error: self.unexpected.append(f"{path}: {error!r}"))

    def _on_stream(self, change: int) -> None:
        self.streams += change

    async def case(self, rng: random.Random) -> None:
        if self._resource is None or rng.random() < 0.02:
            self._begin(rng)
        resource = self._resource
        assert resource is not None
        protocol, sink = ServerProtocol(self._server), Sink()
        self.protocols.add(protocol)
        protocol.connection_made(sink)
        protocol.data_received(f.PREFACE + f.settings({}))
        client = _Reader()
        for number in range(rng.randint(1, 3)):
            stream = 2 * number + 1
            method = rng.choice(METHODS)
            body = encode(self._message(rng, method, resource))
            if rng.random() < 0.3:
                body = damage_bytes(rng, body)
            block = request_block(method.path, "localhost", None)
            protocol.data_received(
                f.frame(f.HEADERS, f.END_HEADERS, stream, block)
                + f.frame(f.DATA, f.END_STREAM, stream, length_prefixed(body))
            )
            for _ in range(4):  # a handler that takes a turn or two
                await asyncio.sleep(0)
            client.feed(bytes(sink.written))
            sink.written.clear()
            self._judge(method, body, client, stream, resource)
        protocol.connection_lost(None)
        promise(not protocol.calls, "a call outlived its connection")
        promise(not self.unexpected, f"a handler raised: {self.unexpected[:1]}")

    def _message(self, rng: random.Random, method: Method[Any, Any], resource: Resource) -> Any:
        known = [str(slot.id) for slot in resource.slots]

        def ids(most: int = 6) -> tuple[str, ...]:
            few = rng.sample(known, min(len(known), rng.randint(0, most)))
            if rng.random() < 0.2:
                few.append(rng.choice((*UNKNOWN, *known)))
            return tuple(few)

        some = range(rng.choice((0, 1, 1, 1, 2)))
        if method is dp.ALLOCATE:
            return dp.AllocateRequest(tuple(dp.ContainerAllocateRequest(ids()) for _ in some))
        if method is dp.GET_PREFERRED_ALLOCATION:
            size = rng.choice((0, -1, 1, 2, 3, 4, 100, (1 << 31) - 1, -(1 << 31)))
            asks = (dp.ContainerPreferredAllocationRequest(ids(20), ids(2), size) for _ in some)
            return dp.PreferredAllocationRequest(tuple(asks))
        if method is dp.PRE_START_CONTAINER:
            return dp.PreStartContainerRequest(ids())
        if method is pr.NOTIFY_REGISTRATION_STATUS:
            return pr.RegistrationStatus(rng.random() < 0.5, rng.choice(("", "no", "é" * 50)))
        return dp.Empty()

    def _judge(self, method: Method[Any, Any], body: bytes, client: _Reader, stream: int, resource: Resource) -> None:
        status, answer = client.outcome(stream)
        if status is None:
            promise(method.streaming and answer, f"{method.path} was not answered")
            return
        promise(status in DOCUMENTED, f"{method.path}: {status.name}")
        try:
            request = decode(method.request, body)
        except DecodeError:
            promise(status in {Status.INTERNAL, Status.UNIMPLEMENTED}, f"{method.path}: nonsense got {status.name}")
            return
        if method is dp.ALLOCATE:
            promise(status is _expected(resource, self._conditions, request), f"Allocate {request}: {status.name}")
        elif method is dp.GET_PREFERRED_ALLOCATION:
            promise(status is Status.OK, f"a preference got {status.name}")
            _judge_preference(request, decode(method.response, answer[0]))

    async def stop(self) -> None:
        self._resource = None
        for _ in range(20):
            await asyncio.sleep(0)
        promise(not self.streams, f"{self.streams} streams are still counted")


def _expected(resource: Resource, conditions: Conditions, request: dp.AllocateRequest) -> Status:
    """What Allocate must say, by the rule itself."""
    if not request.container_requests:
        return Status.INVALID_ARGUMENT
    for ask in request.container_requests:
        ids = ask.device_ids
        known = resource.by_id
        if not ids or len(set(ids)) < len(ids) or any(SlotId(slot) not in known for slot in ids):
            return Status.INVALID_ARGUMENT
        if not all(known[SlotId(slot)].usable(conditions) for slot in ids):
            return Status.FAILED_PRECONDITION
    return Status.OK


def _judge_preference(request: dp.PreferredAllocationRequest, answer: dp.PreferredAllocationResponse) -> None:
    promise(len(answer.container_responses) == len(request.container_requests), "a container has no answer")
    for ask, chosen in zip(request.container_requests, answer.container_responses, strict=True):
        ids = chosen.device_ids
        promise(set(ids) <= set(ask.available_ids), f"chosen out of nowhere: {ids} for {ask}")
        promise(len(ids) in {0, ask.allocation_size} and len(set(ids)) == len(ids), f"wrong number: {ids} for {ask}")


class _Reader:
    """Reads the server's frames: the messages and the status of each stream."""

    def __init__(self) -> None:
        self._data: dict[int, bytearray] = {}
        self._status: dict[int, Status] = {}

    def feed(self, out: bytes) -> None:
        at = 0
        while at < len(out):
            high, low, kind, flags, stream = f.FRAME_HEADER.unpack_from(out, at)
            at += f.HEADER_BYTES
            payload = out[at : at + (high << 8 | low)]
            at += len(payload)
            if kind == f.DATA:
                self._data.setdefault(stream, bytearray()).extend(payload)
            elif kind == f.HEADERS and flags & f.END_STREAM:
                self._status[stream] = _status(payload)

    def outcome(self, stream: int) -> tuple[Status | None, list[bytes]]:
        data, found, at = bytes(self._data.get(stream, b"")), [], 0
        while at < len(data):
            size = int.from_bytes(data[at + 1 : at + 5])
            found.append(data[at + 5 : at + 5 + size])
            at += 5 + size
        return self._status.get(stream), found


def _status(block: bytes) -> Status:
    fields = dict(Decoder().decode(block, raw=True))
    return Status(int(fields[b"grpc-status"]))
