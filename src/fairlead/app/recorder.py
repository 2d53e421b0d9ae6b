"""The recorder: tells the file of a recording what the daemon hears, decides and answers. See `observe.recording`.

Off unless `record.file` is set. On the loop it only notes what happened; a thread encodes and writes it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import msgspec
from msgspec import UNSET, UnsetType

from fairlead._version import __version__
from fairlead.app.backends import entries
from fairlead.app.taps import ASKING, Asking, ChosenTap, HoldersTap, Stamp
from fairlead.engine.allocator import Chosen
from fairlead.engine.recent import RecentGrants
from fairlead.engine.source import Source, is_well
from fairlead.fronts.deviceplugin.encoding import DeviceList
from fairlead.model.edits import Edits, Grant
from fairlead.model.health import Condition
from fairlead.model.holdings import Holder, Holdings
from fairlead.model.inventory import Findings
from fairlead.model.names import DeviceId, ResourceName, SlotId
from fairlead.model.resource import Resource
from fairlead.observe import recording as rec
from fairlead.observe.recordingfile import RecordingFile
from fairlead.policy.health import Track
from fairlead.wire import deviceplugin as dp
from fairlead.wire.proto import encode
from fairlead.wire.rpc import Call, Method, RpcError, Status

if TYPE_CHECKING:
    from fairlead.app.daemon import Daemon
    from fairlead.config.load import Loaded

RETRY_S = 10.0  # after a failure of the disk
_NAMES = {
    dp.GET_PREFERRED_ALLOCATION: "GetPreferredAllocation",
    dp.ALLOCATE: "Allocate",
    dp.PRE_START_CONTAINER: "PreStartContainer",
}
Handlers = Mapping[Method[Any, Any], Callable[..., Any]]
_Lists = dict[ResourceName, DeviceList]


class Recorder:
    def __init__(self, daemon: Daemon, path: Path, max_bytes: int) -> None:
        self._daemon = daemon
        self._file = RecordingFile(path, max_bytes)
        self.stamp = Stamp(daemon.clock)
        self.holders = HoldersTap(daemon.holders)
        self.recent = RecentGrants(self.stamp)
        self._calls = 0
        self._within: list[rec.Record | Callable[[], rec.Record]] | None = None  # what happens during a call
        self._tried_s = float("-inf")  # when a state was last given
        self._fresh = True
        self._lists: _Lists = {}  # as last recorded, and so below
        self._findings: WeakKeyDictionary[Source, Findings] = WeakKeyDictionary()
        self._keys: WeakKeyDictionary[Source, str] = WeakKeyDictionary()
        self._sources = 0
        self._overlay: Mapping[DeviceId, Condition] = {}
        self._held: rec.HeldTexts | UnsetType | None = UNSET
        self._pods: Holdings | None = None

    def close(self) -> None:
        self._file.close()

    # --- To the file ----------------------------------------------------------------------------------------------

    def _emit(self, record: rec.Record | Callable[[], rec.Record]) -> None:
        if self._within is not None:
            self._within.append(record)
        else:
            self._put(record)

    def _offer_state(self) -> None:
        """Where all that was recorded is all that there is: between two steps."""
        self._daemon.problems.note("record", self._file.problem)
        if not self._file.wants_state or not self._file.has_room or self._within is not None:
            return
        now_s = self._daemon.clock.monotonic()
        if not self._file.broken or now_s - self._tried_s >= RETRY_S:
            self._tried_s = now_s
            self._file.put(self._state(), is_state=True)
            self._fresh = False

    def _put(self, record: rec.Record | Callable[[], rec.Record]) -> None:
        self._file.put(record if callable(record) else partial(_itself, record))

    def _state(self) -> Callable[[], rec.Record]:
        """What is copied here is small; the rest does not change any more."""
        daemon, engine = self._daemon, self._daemon.engine
        listing, units = engine.listing, engine.listing.units
        now_s = daemon.clock.monotonic()
        speaking = dict(engine.sources.speaking)
        lists = dict(self._lists)
        problems = {name: each.problem for name, each in daemon.supervisor.endpoints.items() if each.problem}
        make = partial(
            rec.State,
            rec.VERSION,
            f"fairlead {__version__}",
            now_s,
            daemon.clock.now() - now_s,
            config_of(daemon.loaded),
            daemon.loaded.source,
            opened=tuple(_opened(key, source) for source, key in self._keys.items()),
            overlay=dict(self._overlay),
            units=dict(units.files.units),
            damaged=dict(units.files.damaged),
            chosen=units.chosen,
            units_granted_s=units.granted_s,
            allocated=listing.granted,
            held=None if self._held is UNSET else self._held,
            last_held=rec.texts(listing.last_held),
            recent=self.recent.copy(),
            refused=tuple(daemon.supervisor.refused),
            calls=self._calls,
            lost=0 if self._fresh else self._file.lost,
            fresh=self._fresh,
        )
        known = self._findings
        found = [(self._keys[source], known[source]) for source in speaking.values() if source in known]

        def made() -> rec.Record:
            return make(
                found=tuple(rec.found_of(key, each) for key, each in found),
                listed=tuple(_listed(each.resource, problems.get(name, "")) for name, each in lists.items()),
                lists={name: rec.digest(each.frame) for name, each in lists.items()},
            )

        return made

    # --- The engine's tap -----------------------------------------------------------------------------------------

    def opened(self, source: Source) -> None:
        self._sources += 1
        taken = {each.name for each in self._keys}
        self._keys[source] = key = f"{source.name}#{self._sources}" if source.name in taken else source.name
        self._emit(_opened(key, source))

    def judged(self, source: Source, device: DeviceId, verdict: Callable[..., Track], now_s: float) -> None:
        given = verdict.keywords if isinstance(verdict, partial) else {}
        verb = verdict.func.__name__ if isinstance(verdict, partial) else verdict.__name__
        signs = given.get("signs") or {}
        self._emit(
            rec.Judged(self._keys[source], device, verb, now_s, given.get("cause"), given.get("code"), dict(signs))
        )

    def probed(self, source: Source, now_s: float, silent: Collection[DeviceId]) -> None:
        self._emit(rec.Probed(self._keys[source], now_s, tuple(silent)))

    def edited(self, source: str, grant: Grant, edits: Edits | Exception) -> None:
        if (asking := ASKING.get()) is None:
            return
        devices = tuple(device.id for device in grant.devices)
        failed = isinstance(edits, Exception)
        asking.edits.append(
            rec.Edited(
                source,
                grant.slots,
                devices,
                grant.units,
                None if isinstance(edits, Exception) else edits,
                str(edits) if failed else "",
                type(edits).__name__ if failed else "",
            )
        )

    # --- The daemon's steps ---------------------------------------------------------------------------------------

    def configured(self) -> None:
        self._emit(rec.Configured(config_of(self._daemon.loaded), self._daemon.loaded.source))

    def settled(self) -> None:
        """After the lists were made anew."""
        daemon, engine, holders = self._daemon, self._daemon.engine, self.holders
        speaking = engine.sources.speaking.values()
        for source in speaking:
            if source.findings is not self._findings.get(source):
                self._findings[source] = findings = source.findings
                self._emit(partial(rec.found_of, self._keys[source], findings))
        self._tell_overlay()
        free, listed, on_disk = holders.take()
        held = rec.texts(daemon.holders.held)
        same = held == self._held
        self._held = held
        make = partial(
            rec.Settled,
            engine.settled_s,
            tuple(self._keys[source] for source in speaking),
            daemon.holders.asked_s,
            daemon.holders.known_s,
            held=UNSET if same else held,
            free=free,
            listed=listed,
            on_disk=on_disk,
        )
        changed = self._changes()
        self._emit(lambda: make(lists=_digests(changed)))
        self._tell_pods()
        self._offer_state()

    def settled_health(self) -> None:
        self._tell_overlay()
        if changed := self._changes():
            now_s = self._daemon.clock.monotonic()
            self._emit(lambda: rec.HealthSettled(now_s, _digests(changed)))
        self._offer_state()

    def _tell_overlay(self) -> None:
        if (overlay := self._daemon.engine.overlay) != self._overlay:
            self._overlay = overlay
            self._emit(rec.Overlaid({**overlay}))

    def _tell_pods(self) -> None:
        known = self._daemon.holders.known
        if known is not self._pods and isinstance(known, Holdings) and known != self._pods:
            now_s, slots = self._daemon.clock.monotonic(), known.by_slot
            before = self._pods.by_slot if isinstance(self._pods, Holdings) else {}
            self._emit(lambda: rec.Held(now_s, _new_holders(before, slots)))
        if isinstance(known, Holdings):
            self._pods = known

    def _changes(self) -> dict[ResourceName, bytes | None]:
        """The lists that are others than those last recorded."""
        now = {name: each.device_list for name, each in self._daemon.supervisor.endpoints.items()}
        before, self._lists = self._lists, now
        changed: dict[ResourceName, bytes | None] = dict.fromkeys(before.keys() - now.keys())
        for name, each in now.items():
            if (was := before.get(name)) is None or (was is not each and was.frame != each.frame):
                changed[name] = each.frame
        return changed

    # --- The kubelet's calls --------------------------------------------------------------------------------------

    def instrument(self, resource: ResourceName, handlers: Handlers) -> Handlers:
        return {
            method: partial(self._call, resource, method, handler) if method in _NAMES else handler
            for method, handler in handlers.items()
        }

    def _call(
        self, resource: ResourceName, method: Method[Any, Any], handler: Callable[..., Any], request: Any, call: Call
    ) -> Any:
        self._offer_state()
        self._calls = number = self._calls + 1
        now_s = self.stamp.set()
        asking = Asking(number)
        token = ASKING.set(asking)
        within: list[rec.Record | Callable[[], rec.Record]] = []
        self._within = within
        answer: Any = None
        failure: RpcError | None = None
        try:
            answer = handler(request, call)
        except RpcError as error:
            failure = error
        finally:
            self._within = None
            ASKING.reset(token)
        later = failure is None and isinstance(answer, Awaitable)
        edits = tuple(asking.edits)
        name = _NAMES[method]
        make = partial(_asked, number, now_s, resource, name, request, edits, later=later)
        self._file.put(make, weight=_weight(request))
        for record in within:
            self._put(record)
        if later:
            asking.edits.clear()
            return self._later(asking, answer)
        self._answered(asking, answer, failure, with_edits=False)
        if failure is not None:
            raise failure
        return answer

    async def _later(self, asking: Asking, answer: Awaitable[Any]) -> Any:
        token = ASKING.set(asking)
        failure: RpcError | None = None
        found: Any = None
        try:
            found = await answer
        except RpcError as error:
            failure = error
        finally:
            ASKING.reset(token)
        self._answered(asking, found, failure, with_edits=True)
        if failure is not None:
            raise failure
        return found

    def _answered(self, asking: Asking, answer: Any, failure: RpcError | None, *, with_edits: bool) -> None:
        now_s = self._daemon.clock.monotonic()
        edits, choices = tuple(asking.edits) if with_edits else (), tuple(asking.choices)
        status, message = (failure.status, failure.message) if failure is not None else (Status.OK, "")

        def made() -> rec.Record:
            content = b"" if failure is not None else encode(answer)
            return rec.Answered(
                asking.number, now_s, content, int(status), message, edits, choices, {**asking.node_env}
            )

        self._emit(made)

    # --- What a scheduler chose -----------------------------------------------------------------------------------

    def chosen(self, chosen: Chosen | None) -> Chosen | None:
        return ChosenTap(chosen) if chosen is not None else None

    def node_env(self, env: Mapping[str, str]) -> Mapping[str, str]:
        if (asking := ASKING.get()) is not None:
            asking.node_env = dict(env)
        return env


def config_of(loaded: Loaded) -> dict[str, Any]:
    """What a player needs of a configuration. Backends are not opened again: their options stay here."""
    plain = msgspec.to_builtins(loaded.config, enc_hook=rec.plain)
    backends = [{"kind": each["kind"], "name": name} for name, each in entries(loaded.config).items()]
    return {"backends": backends, **{key: plain[key] for key in ("rules", "health")}}


def _opened(key: str, source: Source) -> rec.Opened:
    tracks = {device: track for device, track in source.tracks.items() if not is_well(track)}
    return rec.Opened(key, source.name, source.probed, tracks)


def _itself(record: rec.Record) -> rec.Record:
    return record


def _asked(
    number: int,
    now_s: float,
    resource: ResourceName,
    method: str,
    request: Any,
    edits: tuple[rec.Edited, ...],
    *,
    later: bool,
) -> rec.Record:
    return rec.Asked(number, now_s, resource, method, encode(request), edits, later)


def _weight(request: Any) -> int:
    """How many ids a request has."""
    match request:
        case dp.AllocateRequest():
            return sum(len(each.device_ids) for each in request.container_requests)
        case dp.PreferredAllocationRequest():
            return sum(len(each.available_ids) for each in request.container_requests)
        case _:
            return 0


def _new_holders(
    before: Mapping[tuple[ResourceName, SlotId], Holder], now: Mapping[tuple[ResourceName, SlotId], Holder]
) -> tuple[tuple[ResourceName, SlotId, str], ...]:
    return tuple((*key, str(holder)) for key, holder in now.items() if before.get(key) != holder)


def _digests(changed: Mapping[ResourceName, bytes | None]) -> rec.Lists:
    return {name: None if frame is None else rec.digest(frame) for name, frame in changed.items()}


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
