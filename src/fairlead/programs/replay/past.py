"""Decisions of the past: what the kubelet asked, what it was told and why, by time, pod or slot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from fairlead.engine.allocator import placement
from fairlead.fronts.deviceplugin.encoding import DeviceList
from fairlead.model.errors import FairleadError, UsageError
from fairlead.model.names import ResourceName, SlotId
from fairlead.observe import recording as rec
from fairlead.programs.replay.compare import answer_in, loaded_of, records
from fairlead.programs.replay.player import ALLOCATE, PREFER, Player
from fairlead.wire import deviceplugin as dp
from fairlead.wire.proto import decode
from fairlead.wire.rpc import Status
from fairlead.wire.varint import DecodeError

DECISIONS_MAX = 1000  # the newest
NEAR_S = 1.0  # a time means this much before and after it


class Reason(Struct, frozen=True):
    device: str
    picked: int
    score: int
    why: str


class Decision(Struct, frozen=True, kw_only=True):
    at_s: float
    call: str
    resource: str
    asked: str
    slots: tuple[str, ...]  # given, or preferred
    pod: str = ""  # namespace/pod/container, as the kubelet said afterwards
    refused: str = ""
    free: int = 0  # slots that could be had
    listed: int = 0
    unusable: tuple[str, ...] = ()  # devices, and why
    reasons: tuple[Reason, ...] = ()


class Wanted(Struct, frozen=True):
    """Empty: any."""

    at_s: float | None = None
    pod: str = ""
    slot: str = ""


def decisions(path: Path, wanted: Wanted, notes: list[str]) -> list[Decision]:
    """Those that are wanted, by time. UsageError for a file that cannot be read."""
    found: list[Decision] = []
    waiting: dict[tuple[ResourceName, SlotId], int] = {}  # allocated, and not yet named: the place in `found`
    clock_s = 0.0
    player: Player | None = None
    for record in records(path, notes):
        if isinstance(record, rec.State):
            clock_s = record.clock_s
            _name(found, waiting, record.pods)
            loaded = loaded_of(record.config, record.source, path)
            if player is None or record.fresh or record.lost:
                player = player or Player(loaded)
                player.restore(record, loaded)
        elif player is None:
            continue
        elif isinstance(record, rec.Configured):
            player.configure(loaded_of(record.config, record.source, path))
        elif isinstance(record, rec.Held):
            _name(found, waiting, record.slots)
        elif isinstance(record, rec.Answered) or (isinstance(record, rec.Asked) and record.answered):
            if isinstance(record, rec.Asked):
                player.take(record)
                record = answer_in(record)  # noqa: PLW2901 - the second half of it
            played = player.answer(record)
            if played is not None and played[0].method in {ALLOCATE, PREFER}:
                for decision in _decided(played[0], played[1], record, clock_s, wanted):
                    if decision.call == ALLOCATE and not decision.refused:
                        waiting |= {(ResourceName(decision.resource), SlotId(s)): len(found) for s in decision.slots}
                    found.append(decision)
        else:
            player.take(record)
    if player is None:
        raise UsageError(f"{path}: it has no state to begin with. {' '.join(notes)}".strip())
    return [decision for decision in found if _is_wanted(decision, wanted)][-DECISIONS_MAX:]


def _name(
    found: list[Decision],
    waiting: dict[tuple[ResourceName, SlotId], int],
    holders: tuple[tuple[ResourceName, SlotId, str], ...],
) -> None:
    """For whom slots were given is known when it is told who holds them."""
    for name, slot, holder in holders:
        if (place := waiting.pop((name, slot), None)) is not None:
            found[place] = replace(found[place], pod=holder)


def _is_wanted(decision: Decision, wanted: Wanted) -> bool:
    if wanted.at_s is not None and abs(decision.at_s - wanted.at_s) > NEAR_S:
        return False
    if wanted.slot and not any(slot.startswith(wanted.slot) for slot in decision.slots):
        return False
    namespace, _, rest = decision.pod.partition("/")
    pod = rest.partition("/")[0]
    return not wanted.pod or wanted.pod in {pod, f"{namespace}/{pod}", decision.pod}


def _decided(
    asked: rec.Asked, device_list: DeviceList | None, record: rec.Answered, clock_s: float, wanted: Wanted
) -> Iterator[Decision]:
    """One for each container. What is not wanted for certain is not worked out: it costs a placement."""
    at_s, refused = asked.now_s + clock_s, ""
    if wanted.at_s is not None and abs(at_s - wanted.at_s) > NEAR_S:
        return
    if asked.method == PREFER and wanted.pod:  # the kubelet does not say for whom it asks
        return
    if record.status:
        names = {int(status): status.name for status in Status}
        refused = f"{names.get(record.status, record.status)}: {record.message}"
    try:
        if asked.method == ALLOCATE:
            for container in decode(dp.AllocateRequest, asked.request).container_requests:
                yield _allocated(at_s, asked.resource, device_list, container.device_ids, refused)
            return
        asks = decode(dp.PreferredAllocationRequest, asked.request).container_requests
        answers = () if refused else decode(dp.PreferredAllocationResponse, record.answer).container_responses
    except DecodeError:
        return
    for number, ask in enumerate(asks):
        slots = tuple(answers[number].device_ids) if number < len(answers) else ()
        if not wanted.slot or any(slot.startswith(wanted.slot) for slot in slots):
            yield _preferred(at_s, asked.resource, device_list, ask, slots, refused)


def _allocated(
    at_s: float, resource: str, device_list: DeviceList | None, ids: Sequence[str], refused: str
) -> Decision:
    decision = Decision(
        at_s=at_s,
        call=ALLOCATE,
        resource=resource,
        asked=f"{len(ids)} slot{'' if len(ids) == 1 else 's'} by name",
        slots=tuple(ids),
        refused=refused,
    )
    return _listed(decision, device_list)


def _preferred(
    at_s: float,
    resource: str,
    device_list: DeviceList | None,
    ask: dp.ContainerPreferredAllocationRequest,
    slots: tuple[str, ...],
    refused: str,
) -> Decision:
    reasons: tuple[Reason, ...] = ()
    if device_list is not None and slots and device_list.resource.terms.assign is None:
        known = device_list.resource.order
        available = [slot for slot in ask.available_ids if slot in known]
        try:
            choice = placement()(
                device_list.resource, available, list(ask.must_include_ids), ask.allocation_size, explain=True
            )
            picked = {device_list.resource.by_id[SlotId(slot)].device for slot in slots if slot in known}
            reasons = tuple(
                Reason(each.device, each.picked, each.score, each.why)
                for each in choice.reasons
                if set(choice.slots) == set(slots) or each.device in picked
            )
        except FairleadError:
            reasons = ()
    must = f", {len(ask.must_include_ids)} of them given" if ask.must_include_ids else ""
    decision = Decision(
        at_s=at_s,
        call=PREFER,
        resource=resource,
        asked=f"{ask.allocation_size} of {len(ask.available_ids)} slots that were free{must}",
        slots=slots,
        refused=refused,
        reasons=reasons,
        free=len(ask.available_ids),
    )
    return _listed(decision, device_list)


def _listed(decision: Decision, device_list: DeviceList | None) -> Decision:
    """With what was listed then."""
    if device_list is None:
        return decision
    resource, conditions = device_list.resource, device_list.conditions
    ill = [device for device in resource.slots_of if device in conditions.unhealthy]
    unusable = tuple(f"{device}: {conditions.of(device).cause or 'no cause given'}" for device in ill)
    return replace(decision, listed=len(resource.slots), unusable=unusable)
