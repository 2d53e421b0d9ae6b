"""The device-plugin service of one resource: what the kubelet may ask, answered from the latest snapshot.

Owns the rules of the five calls. No hardware call, file or network in any of them but PreStartContainer: the
kubelet's main loop waits for the others without a deadline.
"""

from __future__ import annotations

import asyncio
import operator
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from fairlead.kubelet.frames import Pieces, container_response, encode_devices, join
from fairlead.model.edits import Edits, Grant
from fairlead.model.errors import (
    AskRefused,
    BadAsk,
    ClusterAway,
    Elsewhere,
    FairleadError,
    NotAssigned,
    Straddles,
    UnfitSlots,
    UnknownSlots,
    some,
)
from fairlead.model.latest import Latest
from fairlead.model.names import DeviceId, SlotId
from fairlead.model.resource import Resource, Slot
from fairlead.policy import budget
from fairlead.wire import deviceplugin as dp
from fairlead.wire.rpc import Call, Method, Peer, RpcError, Status

if TYPE_CHECKING:
    from fairlead.policy.placement import Choice

# The kubelet gives PreStartContainer 30 s; answering a little earlier lets our own message through.
PREPARE_DEADLINE_S = 25.0

Record = Callable[..., None]  # journal: (kind, **keys)


class Offer(Struct, frozen=True):
    """What is published: a resource and its encoded list, computed once for all streams."""

    resource: Resource
    pieces: Pieces
    frame: bytes
    repeats: int = 0  # how often the kubelet was sent a list that had not changed


def make_offer(resource: Resource, before: Offer | None = None) -> Offer:
    """Encodes the list, after checking that the kubelet would take it. What an earlier offer has is used again."""
    if before is None or not _as_long(resource, before.resource):
        budget.check(resource)
    pieces = encode_devices(resource, before.pieces if before is not None else {})
    return Offer(resource, pieces, join(pieces))


def _as_long(one: Resource, other: Resource) -> bool:
    """Whether both lists take the same room on their worst day. Health, which changes most, does not count."""
    if one.slots != other.slots:
        return False
    mine, theirs = one.inventory.by_id, other.inventory.by_id
    return all(
        (here := mine.get(name)) is (there := theirs.get(name))
        or (here is not None and there is not None and here.numa_nodes == there.numa_nodes)
        for name in one.slots_of
    )


async def _nothing(_resource: Resource) -> str:
    return ""


class Assigns(Protocol):
    """Knows which devices a scheduler has chosen for the pod that a question is for. Both raise AskRefused."""

    async def prefer(
        self, resource: Resource, available: Sequence[str], must: Sequence[str], size: int
    ) -> tuple[SlotId, ...]: ...

    async def confirm(self, resource: Resource, ids: Sequence[str]) -> Grant: ...

    def forget(self, resource: Resource, ids: Sequence[str]) -> None:
        """An admission is refused. These ids, which were confirmed, are not given after all."""
        ...


class Outfit(Struct, frozen=True):
    """How grants become containers, and whether they may yet: supplied by whoever knows the backends."""

    edits: Callable[[Resource, Grant], Edits]
    prepare: Callable[[Resource, Grant], Awaitable[None]]
    granted: Callable[[Resource, Grant], None] = lambda _resource, _grant: None
    wait_for: Callable[[Resource], Awaitable[str]] = _nothing  # what a registration waits for
    assigns: Callable[[], Assigns | None] = lambda: None


class Callers(Protocol):
    """Wants to know who calls: the kubelet, or another program that found our socket."""

    def asked_options(self, peer: Peer) -> None: ...

    def opened_stream(self, peer: Peer) -> Callable[[], None]:
        """A stream is open. What is returned is called when it has ended."""
        ...


class Service:
    """Serves one resource. `offers` is followed by every stream with its own cursor."""

    def __init__(self, offers: Latest[Offer], outfit: Outfit, record: Record, callers: Callers) -> None:
        self._offers = offers
        self._outfit = outfit
        self._record = record
        self._callers = callers

    def handlers(self) -> Mapping[Method[Any, Any], Callable[..., Any]]:
        return {
            dp.GET_OPTIONS: self.options,
            dp.LIST_AND_WATCH: self.list_and_watch,
            dp.GET_PREFERRED_ALLOCATION: self.prefer,
            dp.ALLOCATE: self.allocate,
            dp.PRE_START_CONTAINER: self.prepare,
        }

    def options(self, _request: dp.Empty | None = None, call: Call | None = None) -> dp.DevicePluginOptions:
        if call is not None:
            self._callers.asked_options(call.peer)
        # Asked once per registration. Preferences are always available: devices may join a list of one later.
        prepare = self._offers.value.resource.prepare
        return dp.DevicePluginOptions(pre_start_required=prepare, get_preferred_allocation_available=True)

    async def list_and_watch(self, _request: dp.Empty, call: Call) -> AsyncIterator[bytes]:
        closed = self._callers.opened_stream(call.peer)
        sent: tuple[bytes, int] | None = None
        try:
            async for offer in self._offers.follow():
                # Each message makes the kubelet write its checkpoint to disk: send changes only.
                if (offer.frame, offer.repeats) != sent:
                    sent = offer.frame, offer.repeats
                    yield offer.frame
        finally:
            closed()

    def prefer(
        self, request: dp.PreferredAllocationRequest, _call: Call
    ) -> dp.PreferredAllocationResponse | Awaitable[dp.PreferredAllocationResponse]:
        """Never an error: the kubelet would reject the pod for it. An empty answer means "as you like"."""
        resource = self._offers.value.resource
        if resource.assign is not None and (assigns := self._outfit.assigns()) is not None:
            return self._prefer_assigned(assigns, resource, request)
        answers = []
        for ask in request.container_requests:
            try:
                chosen = _choose(resource, ask)
            except FairleadError as refusal:
                self._record("preference-declined", resource=resource.name, reason=str(refusal))
                chosen = ()
            answers.append(dp.ContainerPreferredAllocationResponse(device_ids=chosen))
        return dp.PreferredAllocationResponse(container_responses=tuple(answers))

    async def _prefer_assigned(
        self, assigns: Assigns, resource: Resource, request: dp.PreferredAllocationRequest
    ) -> dp.PreferredAllocationResponse:
        answers = []
        for ask in request.container_requests:
            chosen: tuple[SlotId, ...] = ()
            try:
                check_ask(resource, ask.available_ids, ask.must_include_ids, ask.allocation_size)
                chosen = await assigns.prefer(resource, ask.available_ids, ask.must_include_ids, ask.allocation_size)
            except AskRefused as refusal:
                self._record("preference-declined", resource=resource.name, reason=str(refusal))
            answers.append(dp.ContainerPreferredAllocationResponse(device_ids=chosen))
        return dp.PreferredAllocationResponse(container_responses=tuple(answers))

    def allocate(
        self, request: dp.AllocateRequest, _call: Call
    ) -> dp.AllocateResponse | Awaitable[dp.AllocateResponse]:
        resource = self._offers.value.resource
        if resource.assign is not None and (assigns := self._outfit.assigns()) is not None:
            return self._allocate_assigned(assigns, resource, request)
        try:
            if not request.container_requests:
                raise BadAsk(f"{resource.name}: the request names no container")
            answers, grants = [], []
            for ask in request.container_requests:
                grant = make_grant(resource, ask.device_ids)
                answers.append(container_response(self._outfit.edits(resource, grant)))
                grants.append(grant)
        except AskRefused as refusal:
            self._record("allocate-refused", resource=resource.name, reason=str(refusal))
            raise _as_rpc(refusal) from refusal
        for ask, grant in zip(request.container_requests, grants, strict=True):
            self._outfit.granted(resource, grant)
            self._record("allocated", resource=resource.name, slots=ask.device_ids)
        return dp.AllocateResponse(container_responses=tuple(answers))

    async def _allocate_assigned(
        self, assigns: Assigns, resource: Resource, request: dp.AllocateRequest
    ) -> dp.AllocateResponse:
        answers, grants = [], []
        try:
            if not request.container_requests:
                raise BadAsk(f"{resource.name}: the request names no container")
            for ask in request.container_requests:
                check_ids(resource, ask.device_ids)
                grant = await assigns.confirm(resource, ask.device_ids)
                grants.append(grant)
                answers.append(container_response(self._outfit.edits(resource, grant)))
        except AskRefused as refusal:
            assigns.forget(resource, [slot for grant in grants for slot in grant.slots])
            self._record("allocate-refused", resource=resource.name, reason=str(refusal))
            raise _as_rpc(refusal) from refusal
        for grant in grants:
            self._outfit.granted(resource, grant)
            self._record("allocated", resource=resource.name, slots=grant.slots)
        return dp.AllocateResponse(container_responses=tuple(answers))

    async def prepare(self, request: dp.PreStartContainerRequest, _call: Call) -> dp.PreStartContainerResponse:
        resource = self._offers.value.resource
        try:
            # A container restarts on whatever it holds, so health is not asked here.
            grant = _grant(resource, _slots(resource, request.device_ids))
            async with asyncio.timeout(PREPARE_DEADLINE_S):
                await self._outfit.prepare(resource, grant)
        except TimeoutError as late:
            message = f"{resource.name}: preparing {some(request.device_ids)} took over {PREPARE_DEADLINE_S:g} s"
            self._record("prepare-failed", resource=resource.name, slots=request.device_ids, reason=message)
            raise RpcError(Status.DEADLINE_EXCEEDED, message) from late
        except FairleadError as failure:
            self._record("prepare-failed", resource=resource.name, slots=request.device_ids, reason=str(failure))
            raise _as_rpc(failure) from failure
        self._record("prepared", resource=resource.name, slots=grant.slots)
        return dp.PreStartContainerResponse()


def check_ids(resource: Resource, ids: Sequence[str]) -> list[Slot]:
    """The slots of one container, each known and named once, and not more than it may have."""
    if not ids:
        raise BadAsk(f"{resource.name}: the request names no device")
    slots = _slots(resource, ids)
    if any(map(operator.is_, slots, slots[1:])):
        raise BadAsk(f"{resource.name}: the request names a device twice")
    if 0 < resource.per_container < len(ids):
        most = resource.per_container
        reason = "the pod's status holds every id, and must not outgrow it. Use a larger memory.unit"
        why = reason if resource.unit_bytes else "more would give no more"
        raise BadAsk(f"{resource.name}: one container may have {most} of it, not {len(ids)}: {why}")
    return slots


def check_ask(resource: Resource, available: Sequence[str], must: Sequence[str], size: int) -> None:
    """A question that makes no sense, or names what is not known, is not worth waiting for anybody."""
    known: Mapping[Any, int] = resource.order
    unknown = [slot for slot in must if slot not in known]
    if unknown:
        raise UnknownSlots(resource.name, unknown)
    if not 0 < size <= len(available) or len(must) > size:
        raise BadAsk(f"{resource.name}: {size} of {len(available)} devices, {len(must)} of them given, make no choice")


def grant_on(
    resource: Resource, ids: Sequence[str], shares: Mapping[DeviceId, int], words: Mapping[str, str], *, strict: bool
) -> Grant:
    """The grant of slots that stand for devices chosen elsewhere, so many units of each.

    Only with `strict` must the slots be of these.
    """
    slots = check_ids(resource, ids)
    _check_fit(resource, slots)
    condition, by_id = resource.inventory.condition, resource.inventory.by_id
    unfit = [(d, f"{c.health}: {c.cause}") for d in shares if not (c := condition(d)).health.usable or d not in by_id]
    if unfit:
        raise UnfitSlots(resource.name, unfit)
    lie_on = {slot.device for slot in slots}
    if strict and lie_on != set(shares):
        raise Elsewhere(resource.name, sorted(lie_on), list(shares))
    units = tuple(shares.values()) if resource.unit_bytes else ()
    found = tuple(by_id[device] for device in shares)
    return Grant(resource.name, tuple([slot.id for slot in slots]), found, resource.unit_bytes, units, words)


def make_grant(resource: Resource, ids: Sequence[str]) -> Grant:
    """Resolves and admits the ids of one container, or says which of them it cannot have, and why."""
    slots = check_ids(resource, ids)
    _check_fit(resource, slots)
    grant = _grant(resource, slots)
    if resource.unit_bytes and not resource.straddle and len(grant.devices) > 1:
        raise Straddles(resource.name, zip((device.id for device in grant.devices), grant.units, strict=True))
    return grant


def _check_fit(resource: Resource, slots: Sequence[Slot]) -> None:
    sick = resource.inventory.sick
    unfit = [
        (slot.id, _why(resource, slot))
        for slot in slots
        if slot.retired_s is not None or slot.withheld or slot.device in sick
    ]
    if unfit:
        raise UnfitSlots(resource.name, unfit)


def _slots(resource: Resource, ids: Sequence[str]) -> list[Slot]:
    """In our order: the kubelet sends ids at random; people and programs get them sorted."""
    order: Mapping[Any, int] = resource.order
    try:
        places = [order[slot] for slot in ids]
    except KeyError:
        raise UnknownSlots(resource.name, [slot for slot in ids if slot not in order]) from None
    places.sort()
    known = resource.slots
    return [known[place] for place in places]


def _grant(resource: Resource, slots: Sequence[Slot]) -> Grant:
    devices = resource.inventory.by_id
    ids = tuple([slot.id for slot in slots])
    owners = [slot.device for slot in slots]  # what follows is in their order
    if not resource.unit_bytes:
        return Grant(
            resource.name, ids, tuple([devices[device] for device in dict.fromkeys(owners) if device in devices])
        )
    counts = Counter(owners)
    found = tuple(devices[device] for device in counts if device in devices)
    return Grant(resource.name, ids, found, resource.unit_bytes, tuple(counts[device.id] for device in found))


def _why(resource: Resource, slot: Slot) -> str:
    condition = resource.condition(slot)
    return f"{condition.health}: {condition.cause}" if condition.cause else str(condition.health)


def _choose(resource: Resource, ask: dp.ContainerPreferredAllocationRequest) -> tuple[SlotId, ...]:
    available: Sequence[str] = ask.available_ids
    must: Sequence[str] = ask.must_include_ids
    try:
        return chooser()(resource, available, must, ask.allocation_size).slots
    except UnknownSlots:
        # A list may have changed between the kubelet's look and its question: what we no longer know is left out.
        known: Mapping[Any, int] = resource.order
        available = [slot for slot in available if slot in known]
        must = [slot for slot in must if slot in known]
        return chooser()(resource, available, must, ask.allocation_size).slots


def chooser() -> Callable[..., Choice]:
    """Placement, loaded when first needed: a daemon registers before anyone asks it to choose, and warms it up then."""
    from fairlead.policy.placement import place  # noqa: PLC0415 - see above

    return place


def _as_rpc(error: FairleadError) -> RpcError:
    """The one place where our errors become gRPC status codes."""
    match error:
        case UnknownSlots() | BadAsk():
            return RpcError(Status.INVALID_ARGUMENT, str(error))
        case UnfitSlots() | Straddles() | NotAssigned() | Elsewhere():
            return RpcError(Status.FAILED_PRECONDITION, str(error))
        case ClusterAway():
            return RpcError(Status.UNAVAILABLE, str(error))
        case _:
            return RpcError(Status.INTERNAL, str(error))
