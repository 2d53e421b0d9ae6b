"""Records of a daemon: the state in which a recording begins, with all that its answers depend on; and the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from fairlead._version import __version__
from fairlead.app.backends import entries
from fairlead.app.taps import Asking, Given
from fairlead.engine.recent import RecentGrants
from fairlead.engine.source import Source
from fairlead.fronts.deviceplugin.encoding import DeviceList
from fairlead.model.edits import Edits, Grant
from fairlead.model.health import Condition
from fairlead.model.holdings import Holder, Holdings
from fairlead.model.inventory import Findings
from fairlead.model.names import DeviceId, ResourceName, SlotId
from fairlead.model.resource import Resource
from fairlead.observe import recording as rec
from fairlead.policy.health import is_well
from fairlead.wire.rpc import RpcError

if TYPE_CHECKING:
    from fairlead.app.daemon import Daemon
    from fairlead.config.load import Loaded

ID_BYTES = 40  # of a slot in a list
LEFT_OUT = ["/left-out"]  # in the place of a command


class Told(Struct, frozen=True):
    """What the recording says so far."""

    sources: Mapping[Source, str]  # by which name
    findings: Mapping[Source, Findings]
    lists: Mapping[ResourceName, DeviceList]
    overlay: Mapping[DeviceId, Condition]
    held: rec.HeldTexts | None
    pods: Holdings | None
    recent: RecentGrants
    calls: int
    fresh: bool


def state_of(daemon: Daemon, told: Told) -> Callable[[int], rec.Record]:
    """To be made on another thread. What is copied here is small; the rest does not change any more."""
    engine = daemon.engine
    listing, units = engine.listing, engine.listing.units
    now_s = daemon.clock.monotonic()
    lists, pods, fresh = dict(told.lists), told.pods, told.fresh
    problems = {name: each.problem for name, each in daemon.supervisor.endpoints.items() if each.problem}
    speaking = [source for source in engine.sources.speaking.values() if source in told.findings]
    found = [(told.sources[source], told.findings[source]) for source in speaking]
    make = partial(
        rec.State,
        rec.VERSION,
        f"fairlead {__version__}",
        now_s,
        daemon.clock.now() - now_s,
        config_of(daemon.loaded),
        daemon.loaded.source,
        opened=tuple(opened_of(key, source) for source, key in told.sources.items()),
        overlay=dict(told.overlay),
        units=dict(units.files.units),
        damaged=dict(units.files.damaged),
        chosen=units.chosen,
        units_granted_s=units.granted_s,
        allocated=listing.granted,
        held=told.held,
        last_held=rec.texts(listing.last_held),
        recent=told.recent.copy(),
        refused=tuple(daemon.supervisor.refused),
        calls=told.calls,
        fresh=fresh,
    )

    def made(lost: int) -> rec.Record:
        return make(
            found=tuple(rec.found_of(key, each) for key, each in found),
            listed=tuple(_listed(each.resource, problems.get(name, "")) for name, each in lists.items()),
            lists={name: rec.digest(each.frame) for name, each in lists.items()},
            pods=tuple((*key, str(holder)) for key, holder in pods.by_slot.items()) if pods is not None else (),
            lost=0 if fresh else lost,
        )

    return made


def opened_of(key: str, source: Source) -> rec.Opened:
    tracks = {device: track for device, track in source.tracks.items() if not is_well(track)}
    return rec.Opened(key, source.name, source.probed, tracks)


def config_of(loaded: Loaded) -> str:
    """What a player needs of a configuration: rules, and how faults are judged.

    Backends are not opened again, and commands not run: options and commands stay here.
    """
    plain = msgspec.to_builtins(loaded.config, enc_hook=rec.plain)
    backends = [{"kind": each["kind"], "name": name} for name, each in entries(loaded.config).items()]
    _leave_out_commands(plain["rules"])
    chosen = {"backends": backends, "rules": plain["rules"], "health": plain["health"]}
    return msgspec.json.encode(chosen).decode()


def _leave_out_commands(value: Any) -> None:
    if isinstance(value, dict):
        if isinstance(clean := value.get("cleanup"), dict) and "command" in clean:
            clean["command"] = LEFT_OUT
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            _leave_out_commands(each)


def _listed(resource: Resource, problem: str) -> rec.ListedResource:
    return rec.ListedResource(
        resource.name,
        resource.slots,
        resource.unit_bytes,
        resource.wanted_unit_bytes,
        resource.note,
        resource.compact,
        problem,
    )


def itself(record: rec.Record) -> rec.Record:
    return record


def asked_of(asking: Asking, method: str, request: bytes, edits: Iterable[Given]) -> rec.Record:
    known = () if asking.later else tuple(edited_of(*each) for each in edits)
    return rec.Asked(asking.number, asking.now_s, asking.resource, method, request, known, later=asking.later)


def called_of(asking: Asking, method: str, request: bytes, answer: bytes, failure: RpcError | None) -> rec.Record:
    """Question and answer in one: nothing happened in between."""
    status, message = (int(failure.status), failure.message) if failure is not None else (0, "")
    return rec.Asked(
        asking.number,
        asking.now_s,
        asking.resource,
        method,
        request,
        tuple(edited_of(*each) for each in asking.edits),
        answered=True,
        answer=answer,
        status=status,
        message=message,
    )


def resolved_of(asking: Asking, edits: Iterable[Given], choices: tuple[rec.Choice, ...]) -> rec.Record:
    given = tuple(edited_of(*each) for each in edits)
    return rec.Resolved(asking.number, asking.now_s, given, choices, dict(asking.node_env))


def answered_of(
    asking: Asking,
    now_s: float,
    answer: bytes,
    failure: RpcError | None,
    edits: Iterable[Given],
    choices: tuple[rec.Choice, ...],
) -> rec.Record:
    status, message = (int(failure.status), failure.message) if failure is not None else (0, "")
    given = tuple(edited_of(*each) for each in edits)
    node_env = {} if asking.resolved else dict(asking.node_env)
    return rec.Answered(asking.number, now_s, answer, status, message, given, choices, node_env)


def edited_of(source: str, grant: Grant, edits: Edits | Exception) -> rec.Edited:
    devices = tuple(device.id for device in grant.devices)
    if isinstance(edits, Exception):
        return rec.Edited(source, grant.slots, devices, grant.units, None, str(edits), type(edits).__name__)
    return rec.Edited(source, grant.slots, devices, grant.units, edits)


def new_holders(
    before: Mapping[tuple[ResourceName, SlotId], Holder],
    now: Mapping[tuple[ResourceName, SlotId], Holder],
    granted: AbstractSet[tuple[ResourceName, str]],
) -> tuple[tuple[ResourceName, SlotId, str], ...]:
    """Who holds slots that had another holder, or that were granted since: a pod may come back under its name."""
    return tuple((*key, str(holder)) for key, holder in now.items() if key in granted or before.get(key) != holder)


def weight_of_lists(changed: Mapping[ResourceName, bytes | None]) -> int:
    return sum(len(frame) // ID_BYTES for frame in changed.values() if frame is not None)


def digests(changed: Mapping[ResourceName, bytes | None]) -> rec.Lists:
    return {name: None if frame is None else rec.digest(frame) for name, frame in changed.items()}
