"""The recorder: tells the file of a recording what the daemon hears, decides and answers. See `observe.recording`.

Off unless `record.file` is set. On the loop it only notes what happened; a thread encodes and writes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial, wraps
from pathlib import Path
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from msgspec import UNSET, UnsetType

from fairlead.app.recordedstate import (
    ID_BYTES,
    Told,
    answered_of,
    asked_of,
    called_of,
    config_of,
    digests,
    itself,
    new_holders,
    opened_of,
    resolved_of,
    state_of,
    weight_of_lists,
)
from fairlead.app.taps import ASKING, Asking, ChosenTap, HoldersTap, Stamp
from fairlead.engine.allocator import Chosen
from fairlead.engine.recent import RecentGrants
from fairlead.engine.source import Source
from fairlead.fronts.deviceplugin.encoding import DeviceList
from fairlead.model.edits import Edits, Grant
from fairlead.model.health import Condition
from fairlead.model.holdings import Holdings
from fairlead.model.inventory import Findings
from fairlead.model.names import DeviceId, ResourceName, SlotId
from fairlead.observe import recording as rec
from fairlead.observe.recordingfile import Make, RecordingFile
from fairlead.policy.health import Track
from fairlead.wire import deviceplugin as dp
from fairlead.wire.proto import encode
from fairlead.wire.rpc import Call, Method, RpcError

if TYPE_CHECKING:
    from fairlead.app.daemon import Daemon

RETRY_S = 10.0  # after a failure of the disk
LOOK_S = 3.0  # after a grant
GRANTED_MAX = 10_000  # slots, about
_NAMES = {
    dp.GET_PREFERRED_ALLOCATION: "GetPreferredAllocation",
    dp.ALLOCATE: "Allocate",
    dp.PRE_START_CONTAINER: "PreStartContainer",
}
P = ParamSpec("P")
R = TypeVar("R")
Handlers = Mapping[Method[Any, Any], Callable[..., Any]]
_Lists = dict[ResourceName, DeviceList]


def guarded(work: Callable[Concatenate[Recorder, P], R]) -> Callable[Concatenate[Recorder, P], R | None]:
    """A defect of the recorder costs records, and never a call of the kubelet."""

    @wraps(work)
    def guard(self: Recorder, /, *args: P.args, **keys: P.kwargs) -> R | None:
        try:
            return work(self, *args, **keys)
        except Exception as error:  # noqa: BLE001 - see above
            self.fail(error)
            return None

    return guard


class Recorder:
    def __init__(self, daemon: Daemon, path: Path, max_bytes: int) -> None:
        self._daemon = daemon
        self._file = RecordingFile(path, max_bytes)
        self.stamp = Stamp(daemon.clock)
        self.holders = HoldersTap(daemon.holders)
        self.recent = RecentGrants(self.stamp)
        self._calls = 0
        self._within: list[tuple[Make, int]] | None = None  # what happens during a call
        self._noted = ""  # the problem of the file, as last told
        self._waiting = 0  # calls that are not answered yet
        self._granted: set[tuple[ResourceName, SlotId]] = set()  # since it was last told who holds what
        self._look: Callable[[], object] | None = None
        self._looking: asyncio.Future[None] | None = None
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
        self._stop_look()
        self._file.close()

    def release(self) -> None:
        """Another daemon has taken over, and may record in the same file."""
        self._file.release()

    def resume(self) -> None:
        self._fresh, self._tried_s = True, float("-inf")
        self._file.resume()

    def fail(self, error: Exception) -> None:
        self._within = None
        self._file.fail(f"record.file: records are left out, which is a defect: {type(error).__name__}: {error}")

    # --- To the file ----------------------------------------------------------------------------------------------

    def _emit(self, record: rec.Record | Make, weight: int = 0) -> None:
        made = record if callable(record) else partial(itself, record)
        if self._within is not None:
            self._within.append((made, weight))
        else:
            self._file.put(made, weight)

    @guarded
    def _offer_state(self) -> None:
        """Where all that was recorded is all that there is: between two steps, with no call under way."""
        daemon = self._daemon
        if self._file.problem != self._noted:
            self._noted = self._file.problem
            daemon.problems.note("record", self._noted)
        if not self._file.wants_state or not self._file.has_room or not daemon.is_settled:
            return
        if self._within is not None or self._waiting:
            return
        now_s = daemon.clock.monotonic()
        if not self._file.broken or now_s - self._tried_s >= RETRY_S:
            self._tried_s = now_s
            held = None if self._held is UNSET else self._held
            told = Told(
                self._keys,
                self._findings,
                self._lists,
                self._overlay,
                held,
                self._pods,
                self.recent,
                self._calls,
                self._fresh,
            )
            self._file.put_state(state_of(daemon, told))
            self._fresh = False

    # --- The engine's tap -----------------------------------------------------------------------------------------

    @guarded
    def opened(self, source: Source) -> None:
        self._sources += 1
        taken = {each.name for each in self._keys}
        self._keys[source] = key = f"{source.name}#{self._sources}" if source.name in taken else source.name
        self._emit(opened_of(key, source))

    @guarded
    def judged(self, source: Source, device: DeviceId, verdict: Callable[..., Track], now_s: float) -> None:
        given = verdict.keywords if isinstance(verdict, partial) else {}
        verb = verdict.func.__name__ if isinstance(verdict, partial) else verdict.__name__
        signs = given.get("signs") or {}
        self._emit(
            rec.Judged(self._keys[source], device, verb, now_s, given.get("cause"), given.get("code"), dict(signs))
        )

    @guarded
    def probed(self, source: Source, now_s: float, silent: Collection[DeviceId]) -> None:
        self._emit(rec.Probed(self._keys[source], now_s, tuple(silent)))
        self._offer_state()

    def edited(self, source: str, grant: Grant, edits: Edits | Exception) -> None:
        if (asking := ASKING.get()) is not None:
            asking.edits.append((source, grant, edits))

    # --- The daemon's steps ---------------------------------------------------------------------------------------

    @guarded
    def configured(self) -> None:
        self._emit(rec.Configured(config_of(self._daemon.loaded), self._daemon.loaded.source))

    @guarded
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
        self._emit(lambda: make(lists=digests(changed)), weight_of_lists(changed))
        self.told_holders()
        self._offer_state()

    @guarded
    def settled_health(self) -> None:
        self._tell_overlay()
        changed = self._changes()  # perhaps none: what is told of a device that is refused may be another
        now_s = self._daemon.clock.monotonic()
        self._emit(lambda: rec.HealthSettled(now_s, digests(changed)), weight_of_lists(changed))
        self._offer_state()

    def _tell_overlay(self) -> None:
        if (overlay := self._daemon.engine.overlay) != self._overlay:
            self._overlay = overlay
            self._emit(rec.Overlaid({**overlay}))

    @guarded
    def told_holders(self) -> None:
        """The kubelet has said who holds what."""
        known = self._daemon.holders.known
        if not isinstance(known, Holdings):
            return
        granted, self._granted = self._granted, set()
        if granted or known != self._pods:
            before = {} if self._pods is None else self._pods.by_slot
            now_s, slots = self._daemon.clock.monotonic(), known.by_slot
            self._emit(lambda: rec.Held(now_s, new_holders(before, slots, granted)), len(slots))
        self._pods = known

    def _ask_holders(self) -> None:
        self._look = None
        if self._granted and not self._daemon.stopped.is_set():
            self._looking = asyncio.ensure_future(self._daemon.read_holders())

    def _stop_look(self) -> None:
        if self._look is not None:
            self._look()
            self._look = None
        if self._looking is not None:
            self._looking.cancel()

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
        calls = {
            method: partial(self._call, resource, _NAMES[method], handler) if method in _NAMES else handler
            for method, handler in handlers.items()
        }
        return {**calls, dp.GET_OPTIONS: partial(self._options, resource, handlers[dp.GET_OPTIONS])}

    def _options(self, resource: ResourceName, handler: Callable[..., Any], request: Any, call: Call) -> bytes:
        answer = encode(handler(request, call))
        self._framed(resource, "GetDevicePluginOptions", call.body, answer)
        return answer

    @guarded
    def registered(self, request: dp.RegisterRequest, problem: str) -> None:
        self._framed(ResourceName(request.resource_name), rec.REGISTER, encode(request), problem=problem)

    @guarded
    def _framed(
        self, resource: ResourceName, method: str, request: bytes, answer: bytes = b"", problem: str = ""
    ) -> None:
        self._emit(rec.Framed(self._daemon.clock.monotonic(), resource, method, request, answer, problem))

    def _call(self, resource: ResourceName, method: str, handler: Callable[..., Any], request: Any, call: Call) -> Any:
        """Each microsecond here is one of every Allocate: what can be left to the thread is left to it."""
        file = self._file
        if file.wants_state or file.problem is not self._noted:
            self._offer_state()
        self._calls += 1
        asking = Asking(self._calls, resource, self.stamp.set())
        body = call.body
        failure: RpcError | None = None
        answer: Any = b""
        within: list[tuple[Make, int]] = []
        self._within = within
        token = ASKING.set(asking)
        try:
            answer = handler(request, call)
            if type(answer) is CoroutineType:
                asking.later = True
            else:
                answer = encode(answer)
        except RpcError as error:
            failure = error
        finally:
            self._within = None
            ASKING.reset(token)
        weight = len(body) // ID_BYTES
        if asking.later or within:  # what happened in between has its place between question and answer
            self._waiting += 1
            file.put(partial(asked_of, asking, method, body, tuple(asking.edits)), weight)
            for made, its_weight in within:
                file.put(made, its_weight)
            if asking.later:
                asking.edits.clear()
                return self._later(asking, answer)
            self._answered(asking, answer, failure)
        else:
            file.put(partial(called_of, asking, method, body, answer, failure), weight)
        if failure is not None:
            raise failure
        return answer

    async def _later(self, asking: Asking, answer: Awaitable[Any]) -> bytes:
        token = ASKING.set(asking)
        try:
            found = encode(await answer)
        except RpcError as error:
            self._answered(asking, b"", error)
            raise
        except BaseException:
            self._waiting -= 1
            raise
        finally:
            ASKING.reset(token)
        self._answered(asking, found, None)
        return found

    def granted(self, resource: ResourceName, slots: tuple[SlotId, ...]) -> None:
        """Slots are given to a container. What comes of it is recorded after what it comes from."""
        if len(self._granted) < GRANTED_MAX:
            for slot in slots:
                self._granted.add((resource, slot))
        if self._look is None:
            self._look = self._daemon.clock.alarm(LOOK_S, self._ask_holders)
        asking = ASKING.get()
        if asking is not None and asking.later and not asking.resolved:
            asking.resolved = True
            self.stamp.use(asking.now_s)
            self._emit(partial(resolved_of, asking, tuple(asking.edits), asking.choices))

    @guarded
    def _answered(self, asking: Asking, answer: bytes, failure: RpcError | None) -> None:
        self._waiting -= 1
        known = asking.resolved or not asking.later
        edits, choices = ((), ()) if known else (tuple(asking.edits), asking.choices)
        now_s = self._daemon.clock.monotonic()
        self._emit(partial(answered_of, asking, now_s, answer, failure, edits, choices))

    # --- What a scheduler chose -----------------------------------------------------------------------------------

    def chosen(self, chosen: Chosen | None) -> Chosen | None:
        return ChosenTap(chosen) if chosen is not None else None

    def node_env(self, env: Mapping[str, str]) -> Mapping[str, str]:
        if (asking := ASKING.get()) is not None:
            asking.node_env = {**env}
        return env
