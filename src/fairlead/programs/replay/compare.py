"""Plays a recording and compares: with what was recorded, or with what another configuration would have done."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from fairlead.config.load import Loaded, parse
from fairlead.fronts.deviceplugin.encoding import DeviceList
from fairlead.kit import files
from fairlead.model.errors import ConfigError, UsageError
from fairlead.model.names import ResourceName
from fairlead.observe import recording as rec
from fairlead.observe.recordingfile import files_of, read
from fairlead.programs.replay.player import ALLOCATE, GRANTED, Answer, Player
from fairlead.wire import deviceplugin as dp
from fairlead.wire.proto import decode
from fairlead.wire.rpc import Status
from fairlead.wire.varint import DecodeError

DIFFERENCES_MAX = 1000  # that are told; further ones are counted
SHOWN_MAX = 300  # characters of one side of a difference


class Difference(Struct, frozen=True):
    at_s: float
    what: str
    recorded: str
    now: str


class Report(Struct, frozen=True, kw_only=True):
    """`same`: nothing differs. `not_replayed`: calls that act on hardware, or waited for it."""

    program: str
    began_s: float
    ended_s: float
    records: int
    lists: int
    calls: int
    not_replayed: int
    registered: int  # with the kubelet
    refused: int  # registrations
    same: bool
    config: str  # the other configuration; empty: the recorded one
    differences: tuple[Difference, ...]
    untold: int  # differences beyond those
    notes: tuple[str, ...]


class Comparison:
    """`other`: a configuration to compare with. None: what was recorded must come out again."""

    def __init__(self, path: Path, other: Loaded | None = None) -> None:
        self._path, self._other = path, other
        self.notes: list[str] = []
        self.differences: list[Difference] = []
        self._untold = self._lists = self._calls = self._acted = self._records = 0
        self._registered = self._refused = 0
        self._clock_s = self._began_s = self._ended_s = 0.0
        self._program = ""
        self._player: Player | None = None
        self._second: Player | None = None
        self._known: rec.Lists = {}  # digests, as recorded
        self._last: dict[ResourceName, tuple[str, str]] = {}  # lists that differ, as last told

    def run(self) -> Report:
        """UsageError for a file that cannot be read, or that holds nothing."""
        for record in records(self._path, self.notes):
            self._records += 1
            self._play(record)
        if self._player is None:
            raise UsageError(f"{self._path}: it has no state to begin with. {' '.join(self.notes)}".strip())
        return Report(
            program=self._program,
            began_s=self._began_s,
            ended_s=self._ended_s,
            records=self._records,
            lists=self._lists,
            calls=self._calls,
            not_replayed=self._acted,
            registered=self._registered,
            refused=self._refused,
            same=not self.differences,
            config=self._other.source if self._other is not None else "",
            differences=tuple(self.differences),
            untold=self._untold,
            notes=tuple(self.notes),
        )

    def _play(self, record: rec.Record) -> None:
        if isinstance(record, rec.State):
            self._state(record)
            return
        if self._player is None:
            return
        if not isinstance(record, rec.Opened | rec.Found | rec.Overlaid | rec.Configured):
            self._ended_s = record.now_s + self._clock_s
        if isinstance(record, rec.Configured):
            self._player.configure(loaded_of(record.config, record.source, self._path))
            return
        if isinstance(record, rec.Answered):
            self._answered(record)
            return
        if isinstance(record, rec.Framed):
            self._registered += record.method == rec.REGISTER and not record.problem
            self._refused += record.method == rec.REGISTER and bool(record.problem)
            return
        for player in filter(None, (self._player, self._second)):
            player.take(record)
        if isinstance(record, rec.Asked) and record.answered:
            self._answered(answer_in(record))
        if isinstance(record, rec.Settled | rec.HealthSettled):
            self._settled(record.lists)
        elif self._second is not None and self._second.stirred:
            # Under other rules of health a device falls or comes back where the recorded daemon saw no change.
            self._second.settle_health()
            if not self._player.stirred:
                self._compare_lists(self._player.lists, self._second.lists)

    def _state(self, state: rec.State) -> None:
        if state.version != rec.VERSION:
            raise UsageError(f"{self._path}: its version is {state.version}, and {rec.VERSION} is known")
        self._clock_s, self._program = state.clock_s, state.program
        self._ended_s = state.now_s + state.clock_s
        loaded = loaded_of(state.config, state.source, self._path)
        first = self._player is None
        if first:
            self._began_s = self._ended_s
            self._player = Player(loaded)
            if self._other is not None:
                self._second = Player(self._other, given=True)
        assert self._player is not None
        if first or state.fresh or state.lost:
            if state.lost:
                self.notes.append(f"{state.lost:,} records are missing before {self._ended_s:.3f}: played from there")
            self._player.restore(state, loaded)
            if self._second is not None:
                self._second.restore(state, loaded)
            self._known = {}
        self._settled(state.lists)

    def _settled(self, lists: rec.Lists) -> None:
        assert self._player is not None
        self._lists += sum(each is not None for each in lists.values())
        self._known |= lists
        now = {name: rec.digest(each.frame) for name, each in self._player.lists.items()}
        for name in {**self._known, **now}:
            was, is_now = self._known.get(name), now.get(name)
            if was != is_now and self._last.get(name) != (told := (_digest(was), _digest(is_now))):
                self._last[name] = told
                self._tell(f"the list of {name}", *told)
            elif was == is_now and self._second is None:
                self._last.pop(name, None)
        if self._second is not None:
            self._compare_lists(self._player.lists, self._second.lists)

    def _compare_lists(
        self, before: Mapping[ResourceName, DeviceList], after: Mapping[ResourceName, DeviceList]
    ) -> None:
        for name in {**before, **after}:
            one, other = before.get(name), after.get(name)
            if one is not None and other is not None and one.frame == other.frame:
                self._last.pop(name, None)
            elif self._last.get(name) != (told := (_listed(one), _listed(other))):
                self._last[name] = told
                self._tell(f"the list of {name}", *told)

    def _answered(self, record: rec.Answered) -> None:
        assert self._player is not None
        played = self._player.answer(record)
        other = self._second.answer(record) if self._second is not None else None
        if played is None:
            return
        asked, _, answer = played
        if answer is None:
            self._acted += 1
            return
        self._calls += 1
        recorded = Answer(record.answer, record.status, record.message)
        what = f"{asked.method} of {asked.resource}"
        if answer != recorded:
            self._tell(what, *_sides(asked.method, recorded, answer))
        elif other is not None and other[2] is not None and other[2] != answer:
            self._tell(what, *_sides(asked.method, answer, other[2]))

    def _tell(self, what: str, recorded: str, now: str) -> None:
        if len(self.differences) >= DIFFERENCES_MAX:
            self._untold += 1
            return
        self.differences.append(Difference(self._ended_s, what, recorded[:SHOWN_MAX], now[:SHOWN_MAX]))


def records(path: Path, notes: list[str]) -> Iterator[rec.Record]:
    try:
        for each in files_of(path):
            yield from read(each, notes)
    except OSError as error:
        raise UsageError(f"{error.filename or path}: {error.strerror or error}") from None


def answer_in(asked: rec.Asked) -> rec.Answered:
    return rec.Answered(asked.number, asked.now_s, asked.answer, asked.status, asked.message)


def loaded_of(config: str, source: str, path: Path) -> Loaded:
    """Of what a recording has of it, which may be made up: bounded as a file is."""
    if len(config) > files.MAX_BYTES:
        raise UsageError(f"{path}: its configuration has {len(config):,} characters; {files.MAX_BYTES:,} is the limit")
    try:
        return parse(config, source)
    except ConfigError as error:
        raise UsageError(f"{path}: the configuration in it does not hold here: {error}") from None


def _digest(digest: rec.Digest | None) -> str:
    return "not served" if digest is None else f"{digest[0]:,} bytes, checksum {digest[1]:08x}"


def _listed(device_list: DeviceList | None) -> str:
    if device_list is None:
        return "not served"
    resource, conditions = device_list.resource, device_list.conditions
    usable = sum(slot.usable(conditions) for slot in resource.slots)
    unit = f" of {resource.unit_bytes >> 20} MiB" if resource.unit_bytes else ""
    return f"{len(resource.slots):,} slots{unit} on {len(resource.slots_of)} devices, {usable:,} usable"


def _sides(method: str, one: Answer, other: Answer) -> tuple[str, str]:
    """Both answers, as far as they differ."""
    if one.status or other.status:
        return _outcome(method, one), _outcome(method, other)
    ours, theirs = (dict(_parts(method, each.content)) for each in (one, other))
    keys = [key for key in {**ours, **theirs} if ours.get(key) != theirs.get(key)]
    if not keys:
        return f"{len(one.content)} bytes", f"{len(other.content)} bytes that mean the same"
    return _text((key, ours.get(key)) for key in keys), _text((key, theirs.get(key)) for key in keys)


def _outcome(method: str, answer: Answer) -> str:
    if answer.status == GRANTED:
        return answer.message
    if answer.status:
        names = {int(status): status.name for status in Status}
        return f"{names.get(answer.status, answer.status)}: {answer.message}"
    return _text(_parts(method, answer.content))


def _text(parts: Iterable[tuple[str, str | None]]) -> str:
    return ", ".join(f"{key} {value}" if value is not None else f"no {key}" for key, value in parts) or "nothing"


def _parts(method: str, content: bytes) -> Iterator[tuple[str, str]]:
    """What an answer says, one thing after the other."""
    try:
        if method != ALLOCATE:
            for number, preferred in enumerate(decode(dp.PreferredAllocationResponse, content).container_responses):
                yield f"container {number}", " ".join(preferred.device_ids)
            return
        for number, each in enumerate(decode(dp.AllocateResponse, content).container_responses):
            at = f"container {number} " if number else ""
            yield from ((f"{at}{key}", value) for key, value in each.envs.items())
            yield from ((f"{at}node {node.container_path}", node.host_path) for node in each.devices)
            yield from ((f"{at}mount {mount.container_path}", mount.host_path) for mount in each.mounts)
            yield from ((f"{at}annotation {key}", value) for key, value in each.annotations.items())
            yield from ((f"{at}CDI device", device.name) for device in each.cdi_devices)
    except DecodeError as error:
        yield "answer", f"that cannot be read: {error}"
