"""The player: an engine and an allocator as a daemon has them, fed by records instead of hardware, kubelet and clock.

Opens no backend and no socket, and writes nothing. What a backend gave for a grant, and what a scheduler had chosen,
is taken from the recording; everything else is decided again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct

from fairlead.config.load import Loaded
from fairlead.engine.allocator import Allocator
from fairlead.engine.edits import make_allocator
from fairlead.engine.engine import Engine
from fairlead.engine.listing import Listing
from fairlead.engine.recent import RecentGrants
from fairlead.engine.sources import inventory_of
from fairlead.engine.unitfile import UnitFiles
from fairlead.engine.units import Units
from fairlead.fronts.deviceplugin.caller import Caller
from fairlead.fronts.deviceplugin.encoding import (
    DeviceList,
    encode_devices,
    make_device_list,
    published,
    with_conditions,
)
from fairlead.fronts.deviceplugin.service import Service
from fairlead.kit.latest import Latest
from fairlead.model.edits import Grant
from fairlead.model.errors import Oversize
from fairlead.model.inventory import Conditions
from fairlead.model.names import DeviceId, ResourceName
from fairlead.model.resource import Resource, Terms
from fairlead.observe import recording as rec
from fairlead.policy import health
from fairlead.policy.offering.rules import rule_of
from fairlead.programs.replay.recorded import (
    NotRecorded,
    RecordedChoices,
    RecordedClock,
    RecordedHolders,
    RecordedSource,
    RecordedSources,
)
from fairlead.wire import deviceplugin as dp
from fairlead.wire.proto import decode, encode
from fairlead.wire.rpc import Call, Peer, RpcError, Status
from fairlead.wire.varint import DecodeError

VERBS: Mapping[str, Callable[..., health.Track]] = {
    "fault": health.fault,
    "clean": health.clean,
    "cleared": health.cleared,
    "seen": health.seen,
    "tick": health.tick,
}
ALLOCATE, PREFER = "Allocate", "GetPreferredAllocation"
GRANTED = -1  # the status of a call that is granted, and for which the recording has no answer
CALLS_MAX = 256  # that wait for an answer; a kubelet makes one after the other


class Answer(Struct, frozen=True):
    content: bytes = b""
    status: int = 0
    message: str = ""


class Player:
    """`given`: the configuration to play with. None: the one of the recording, as it changes."""

    def __init__(self, loaded: Loaded, *, given: bool = False) -> None:
        self._clock = RecordedClock()
        self._holders = RecordedHolders()
        self._sources = RecordedSources()
        self._given = given
        self._begin(loaded)

    def _begin(self, loaded: Loaded) -> None:
        self.loaded = loaded
        self._tuning = loaded.config.health.tuning()
        self._sources = RecordedSources()
        self._recent = RecentGrants(self._clock)
        self.engine = Engine(
            Path(), self._clock, _ignore, _ignore_two, self._holders, on_change=_nothing, on_health=_nothing
        )
        self.engine.sources = self._sources  # type: ignore[assignment]  # the part of Sources that the engine reads
        self.engine.listing = Listing(Units(UnitFiles(), self._holders.on_disk, self._holders.listed))
        self._chosen = RecordedChoices(lambda: self.engine.inventory.by_id)
        self._allocator: Allocator = make_allocator(
            lambda: self._sources.speaking,  # type: ignore[arg-type, return-value]  # as above
            _ignore,
            granted=self._granted,
            chosen=lambda: self._chosen,
            node_env=lambda _resource: self._chosen.node_env,
            recent=self._recent,
        )
        self.lists: dict[ResourceName, DeviceList] = {}
        self._problems: dict[ResourceName, str] = {}
        self._refused: dict[ResourceName, str] = {}
        self._waiting: dict[int, tuple[rec.Asked, DeviceList | None]] = {}
        self._answers: dict[int, Answer] = {}
        self.stirred = False  # a condition is another since the lists were made

    def _granted(self, resource: Resource, grant: Grant) -> None:
        self.engine.granted(resource, grant)  # what is settled for it is a record of its own

    # --- States ---------------------------------------------------------------------------------------------------

    def restore(self, state: rec.State, loaded: Loaded) -> None:
        """As the daemon was. With a configuration of our own, as it would be if it started now, where it was."""
        self._begin(self.loaded if self._given else loaded)
        self._clock.now_s = state.now_s
        for opened in state.opened:
            self._sources.open(opened)
        for found in state.found:
            self._sources.take(found)
        self._sources.order = tuple(found.source for found in state.found)
        self.engine.held_back = state.overlay
        self._holders.now_held = rec.sets(state.held)
        self._recent.restore(state.recent)
        units = self.engine.listing.units
        if self._given:
            self._settle()
            return
        units.files.units, units.files.damaged = dict(state.units), dict(state.damaged)
        rules = self.loaded.rules
        memory = {name: rule.terms.memory for name in state.chosen if (rule := rule_of(name, rules)) is not None}
        chosen = {name: (share, state.chosen[name]) for name, share in memory.items() if share is not None}
        units.restore(chosen, state.units_granted_s)
        self.engine.inventory = inventory = inventory_of(self._sources.speaking.values())  # type: ignore[arg-type]  # as above
        self.engine.settle_health()
        listed = [
            Resource(
                each.name,
                each.slots,
                inventory,
                rule.terms if (rule := rule_of(each.name, rules)) is not None else Terms(),
                each.unit_bytes,
                each.wanted_unit_bytes,
                each.note,
                each.compact,
            )
            for each in state.listed
        ]
        self.engine.listing.exclusive = any(rule.also for rule in rules)
        self.engine.resources = self.engine.listing.restore(listed, state.allocated, rec.sets(state.last_held))
        self.lists = {each.name: encode_devices(each, self.engine.conditions) for each in listed}
        self._problems = {each.name: each.problem for each in state.listed if each.problem}
        self._refused = dict.fromkeys(state.refused, "")

    def configure(self, loaded: Loaded) -> None:
        if not self._given:
            self.loaded = loaded
            self._tuning = loaded.config.health.tuning()

    # --- What the engine is told ----------------------------------------------------------------------------------

    def take(self, record: rec.Record) -> None:
        """Anything but a state, a configuration and an answer."""
        match record:
            case rec.Opened():
                self._sources.open(record)
            case rec.Found():
                self._sources.take(record)
            case rec.Judged():
                self._judge(record)
            case rec.Probed():
                self._probed(record)
            case rec.Overlaid():
                self.engine.held_back = record.conditions
            case rec.Settled():
                self._clock.now_s = record.now_s
                self._sources.order = record.sources
                self._holders.take(record)
                self._settle()
            case rec.HealthSettled():
                self._clock.now_s = record.now_s
                self.settle_health()
            case rec.Asked():
                self._asked(record)
            case rec.Resolved():
                self._resolved(record)
            case _:
                pass

    def settle_health(self) -> None:
        self.stirred = False
        self.engine.settle_health()
        conditions = self.engine.conditions
        self.lists = {name: with_conditions(each, conditions) for name, each in self.lists.items()}

    def _judge(self, record: rec.Judged) -> None:
        source = self._sources.of(record.source)
        verb = VERBS.get(record.verb)
        if verb is None:
            return
        keys: dict[str, Any] = {}
        if record.verb == "fault":
            if record.cause is None:
                return
            keys = {"cause": record.cause}
        elif record.verb == "cleared":
            keys = {"code": record.code}
        elif record.verb == "seen":
            keys = {"signs": record.signs}
        self._apply_verdict(source, record.device, partial(verb, **keys), record.now_s)
        source.heard.add(record.device)

    def _probed(self, record: rec.Probed) -> None:
        """Devices that were well have no record of a clean probe. Under other rules of health they may be ill now."""
        source = self._sources.of(record.source)
        if self._given:
            for device in source.findings.devices:
                if device.id not in source.heard and device.id not in record.silent:
                    self._apply_verdict(source, device.id, health.clean, record.now_s)
        source.heard.clear()

    def _apply_verdict(
        self, source: RecordedSource, device: DeviceId, verb: Callable[..., health.Track], now_s: float
    ) -> None:
        track = source.tracks.get(device) or health.Track(probed=source.probed)
        source.tracks[device] = judged = verb(track, now_s=now_s, tuning=self._tuning)
        self.stirred = self.stirred or judged.condition != track.condition

    def _settle(self) -> None:
        unsent: dict[ResourceName, Resource | None] = dict.fromkeys(self._refused)
        unsent |= {name: self.lists[name].resource for name, why in self._problems.items() if why}
        self.engine.settle(self.loaded.rules, unsent)
        self._publish(self.engine.resources, self.engine.conditions)

    def _publish(self, resources: Sequence[Resource], conditions: Conditions) -> None:
        """As the supervisor and its endpoints do."""
        wanted = {resource.name: resource for resource in resources}
        self.lists = {name: each for name, each in self.lists.items() if name in wanted}
        self._problems = {name: why for name, why in self._problems.items() if name in wanted}
        self._refused = {name: why for name, why in self._refused.items() if name in wanted}
        for name, resource in wanted.items():
            known = self.lists.get(name)
            if known is not None:
                self.lists[name], problem = published(known, resource, conditions, self._clock.now_s)
                if problem is not None:
                    self._problems[name] = problem
                continue
            try:
                self.lists[name] = make_device_list(resource, conditions)
                self._refused.pop(name, None)
            except Oversize as error:
                self._refused[name] = str(error)

    # --- Calls ----------------------------------------------------------------------------------------------------

    def _asked(self, record: rec.Asked) -> None:
        self._clock.now_s = record.now_s
        device_list = self.lists.get(record.resource)
        self._waiting[record.number] = record, device_list
        while len(self._waiting) > CALLS_MAX:
            oldest = next(iter(self._waiting))
            del self._waiting[oldest]
            self._answers.pop(oldest, None)
        if not record.later:
            self._answers[record.number] = self._ask(record, device_list, record.edits, (), {})

    def _resolved(self, record: rec.Resolved) -> None:
        asked, device_list = self._waiting.get(record.number, (None, None))
        if asked is not None:
            self._clock.now_s = record.now_s
            answer = self._ask(asked, device_list, record.edits, record.choices, record.node_env)
            self._answers[record.number] = answer

    def answer(self, record: rec.Answered) -> tuple[rec.Asked, DeviceList | None, Answer | None] | None:
        """The call, the list that it was about, and what the answer is now.

        None: the call came before the recording. No answer: it acts on hardware, or waited for some.
        """
        asked, device_list = self._waiting.pop(record.number, (None, None))
        if asked is None:
            return None
        self._clock.now_s = record.now_s
        if asked.method not in {ALLOCATE, PREFER}:
            return asked, device_list, None
        known = self._answers.pop(record.number, None)
        if known is not None:
            return asked, device_list, known
        answer = self._ask(asked, device_list, record.edits, record.choices, record.node_env)
        assigned = device_list is not None and device_list.resource.terms.assign is not None
        if record.status and not assigned and answer != Answer(b"", record.status, record.message):
            return asked, device_list, None  # it was refused for a scan that came too late
        return asked, device_list, answer

    def _ask(
        self,
        asked: rec.Asked,
        device_list: DeviceList | None,
        edits: Sequence[rec.Edited],
        choices: Sequence[rec.Choice],
        node_env: Mapping[str, str],
    ) -> Answer:
        if asked.method not in {ALLOCATE, PREFER}:
            return Answer()
        if device_list is None:
            return Answer(status=Status.UNAVAILABLE, message=f"{asked.resource} is not served")
        self._sources.memory.remember(edits)
        self._chosen.choices, self._chosen.node_env = list(choices), node_env
        service = Service(Latest(device_list), self._allocator, _ignore, Caller(_ignore))
        call = Call(Peer())
        try:
            if asked.method == ALLOCATE:
                return Answer(encode(_drive(service.allocate(decode(dp.AllocateRequest, asked.request), call))))
            return Answer(encode(_drive(service.prefer(decode(dp.PreferredAllocationRequest, asked.request), call))))
        except RpcError as error:
            if isinstance(error.__cause__, NotRecorded):
                return Answer(status=GRANTED, message=str(error.__cause__))
            return Answer(status=int(error.status), message=error.message)
        except DecodeError as error:
            return Answer(status=int(Status.INTERNAL), message=f"the request cannot be read: {error}")


def _drive(answer: Any) -> Any:
    """The result of a handler that has nothing to wait for."""
    if not isinstance(answer, Awaitable):
        return answer
    steps = answer.__await__()
    try:
        next(steps)
    except StopIteration as end:
        return end.value
    raise RpcError(Status.INTERNAL, "a call waits for something that is not in the recording")


def _ignore(*_args: object, **_keys: object) -> None:
    pass


def _ignore_two(_topic: str, _problem: str) -> None:
    pass


def _nothing() -> None:
    pass
