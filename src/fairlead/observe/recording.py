"""A recording: what a daemon was told and asked, in its order, and what it answered.

Records are values. What a decision depends on is recorded as it came: findings, verdicts, who holds what, requests.
What was decided is recorded as it left: answers, and a digest of each list. A player that is given the first must come
to the second.

By construction there is no secret in it: of backends only the name and kind, of the configuration only rules and the
judging of faults, of pods only names. A record that a reader does not understand is an error with its place.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from functools import cache

import msgspec
from msgspec import UNSET, Struct, UnsetType

from fairlead.model.device import Device
from fairlead.model.edits import Edits
from fairlead.model.health import Cause, Condition, Sign
from fairlead.model.inventory import Findings, Links
from fairlead.model.names import DeviceId, ResourceName, SlotId
from fairlead.model.resource import Slot
from fairlead.policy.health import Track

VERSION = 1
REGISTER = "Register"
RECORD_MAX_BYTES = 24 * 2**20  # unpacked: a request is 16 MiB at most
RATIO_MAX, RATIO_FROM_BYTES = 200, 2**20  # of the unpacked size; ids repeat themselves, but not so often
TIME_MAX_S = 1e10  # of a clock: the year 2286
HeldTexts = dict[ResourceName, tuple[SlotId, ...]]
Digest = tuple[int, int]  # of a list: its bytes, and their checksum
Lists = dict[ResourceName, Digest | None]  # by resource, where it changed; None: it is not served any more


class Opened(Struct, frozen=True, omit_defaults=True, tag="opened"):
    """A source begins. `source`: its name, or that with a number, where there was another of this name before.

    `tracks`: of devices that are not well, by the source before it.
    """

    source: str
    name: str
    probed: bool = True
    tracks: dict[DeviceId, Track] = {}


class Found(Struct, frozen=True, omit_defaults=True, tag="found"):
    """What a source has found, where that has changed."""

    source: str
    devices: tuple[Device, ...]
    links: tuple[tuple[DeviceId, DeviceId, int], ...] = ()


class Judged(Struct, frozen=True, omit_defaults=True, tag="judged"):
    """One step of a device's health: a function of `policy.health`, with what it was given."""

    source: str
    device: DeviceId
    verb: str
    now_s: float
    cause: Cause | None = None
    code: str | None = None
    signs: dict[str, Sign] = {}


class Probed(Struct, frozen=True, omit_defaults=True, tag="probed"):
    """A round of probes is over. Devices that were well and stayed so have no record of their own."""

    source: str
    now_s: float
    silent: tuple[DeviceId, ...] = ()


class Overlaid(Struct, frozen=True, omit_defaults=True, tag="overlaid"):
    """Conditions by cordons, clean-ups and foreign processes, where they have changed."""

    conditions: dict[DeviceId, Condition]


class Settled(Struct, frozen=True, omit_defaults=True, tag="settled"):
    """Devices, rules or holders changed, and the lists were made anew. The answers are those of the kubelet's files."""

    now_s: float
    sources: tuple[str, ...]  # whose findings count, in their order
    asked_s: float
    known_s: float
    lists: Lists
    held: HeldTexts | UnsetType | None = UNSET  # unset: as before
    free: tuple[tuple[ResourceName, SlotId], ...] = ()
    listed: HeldTexts = {}
    on_disk: tuple[ResourceName, ...] | UnsetType | None = UNSET  # unset: it was not asked for


class HealthSettled(Struct, frozen=True, omit_defaults=True, tag="health"):
    """Conditions changed, and nothing else."""

    now_s: float
    lists: Lists


class Edited(Struct, frozen=True, array_like=True):
    """What a backend gave for its part of a grant, or why it gave nothing."""

    source: str
    slots: tuple[SlotId, ...]
    devices: tuple[DeviceId, ...]
    units: tuple[int, ...]
    edits: Edits | None = None
    error: str = ""
    kind: str = ""  # of the error


class Choice(Struct, frozen=True, array_like=True):
    """What a scheduler had chosen for a request: the slots to prefer, or the grant; or why there is none."""

    slots: tuple[SlotId, ...] = ()
    devices: tuple[DeviceId, ...] = ()
    unit_bytes: int = 0
    units: tuple[int, ...] = ()
    variables: dict[str, str] = {}
    error: str = ""
    kind: str = ""  # of the error


class Asked(Struct, frozen=True, omit_defaults=True, tag="asked"):
    """A call of the kubelet. `later`: it was not answered at once, and what it needs is in `Answered`."""

    number: int
    now_s: float
    resource: ResourceName
    method: str
    request: bytes
    edits: tuple[Edited, ...] = ()
    later: bool = False
    answered: bool = False  # at once, and nothing happened in between: what follows is as in `Answered`
    answer: bytes = b""
    status: int = 0
    message: str = ""


class Answered(Struct, frozen=True, omit_defaults=True, tag="answered"):
    number: int
    now_s: float
    answer: bytes = b""
    status: int = 0  # of gRPC; not 0: an error, with the message
    message: str = ""
    edits: tuple[Edited, ...] = ()
    choices: tuple[Choice, ...] = ()
    node_env: dict[str, str] = {}


class Framed(Struct, frozen=True, omit_defaults=True, tag="framed"):
    """A call that grants nothing: Register, which the daemon makes, and what the kubelet asks about options."""

    now_s: float
    resource: ResourceName
    method: str
    request: bytes = b""
    answer: bytes = b""
    problem: str = ""  # why the kubelet refused it, or did not answer


class Resolved(Struct, frozen=True, omit_defaults=True, tag="resolved"):
    """What a call had to wait for has come, and it grants now. Its answer follows."""

    number: int
    now_s: float
    edits: tuple[Edited, ...] = ()
    choices: tuple[Choice, ...] = ()
    node_env: dict[str, str] = {}


class Configured(Struct, frozen=True, omit_defaults=True, tag="configured"):
    """Another configuration is in force."""

    config: str  # JSON
    source: str


class Held(Struct, frozen=True, omit_defaults=True, tag="held"):
    """Who holds what, by the kubelet, where that has changed: resource, slot, and namespace/pod/container."""

    now_s: float
    slots: tuple[tuple[ResourceName, SlotId, str], ...]  # with a holder now, or another one


class ListedResource(Struct, frozen=True, array_like=True):
    name: ResourceName
    slots: tuple[Slot, ...]
    unit_bytes: int = 0
    wanted_unit_bytes: int = 0
    note: str = ""
    compact: bool = False
    problem: str = ""  # why the kubelet has not got it


class State(Struct, frozen=True, omit_defaults=True, tag="state"):
    """All that the next answers depend on: a player can begin here. First in every file, and where records were lost.

    `clock_s`: the wall clock less the monotonic one, by which records are told the time.
    """

    version: int
    program: str
    now_s: float
    clock_s: float
    config: str  # JSON
    source: str
    opened: tuple[Opened, ...] = ()
    found: tuple[Found, ...] = ()  # of those that count, in their order
    overlay: dict[DeviceId, Condition] = {}
    units: dict[ResourceName, int] = {}
    damaged: dict[str, str] = {}
    chosen: dict[ResourceName, int] = {}  # units that this process has chosen
    units_granted_s: dict[ResourceName, float] = {}
    listed: tuple[ListedResource, ...] = ()
    allocated: tuple[tuple[ResourceName, SlotId, float], ...] = ()
    held: HeldTexts | None = None
    last_held: HeldTexts | None = None
    recent: dict[ResourceName, dict[SlotId, float]] = {}
    lists: Lists = {}
    refused: tuple[ResourceName, ...] = ()
    pods: tuple[tuple[ResourceName, SlotId, str], ...] = ()  # as in `Held`
    calls: int = 0  # answered before this record
    lost: int = 0  # records that are missing just before it
    fresh: bool = False  # a daemon has started


Record = (
    State
    | Configured
    | Opened
    | Found
    | Judged
    | Probed
    | Overlaid
    | Settled
    | HealthSettled
    | Asked
    | Framed
    | Resolved
    | Answered
    | Held
)


def plain(value: object) -> object:
    """For an encoder: a duration or a size of a configuration is a number."""
    if isinstance(value, float | int):
        return float(value) if isinstance(value, float) else int(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no place in a recording")


_ENCODER = msgspec.msgpack.Encoder(enc_hook=plain)


@cache
def _decoder() -> msgspec.msgpack.Decoder[list[Record]]:
    """Made when first needed: a daemon only writes."""
    return msgspec.msgpack.Decoder(list[Record])


def encode(records: list[Record]) -> bytes:
    """Compressed, with little memory for it: the ids of a request repeat themselves soon."""
    packer = zlib.compressobj(level=1, wbits=13, memLevel=6)
    return packer.compress(_ENCODER.encode(records)) + packer.flush()


def decode(content: bytes) -> list[Record]:
    """ValueError for anything but what `encode` makes."""
    unpack = zlib.decompressobj()
    try:
        plain = unpack.decompress(content, RECORD_MAX_BYTES)
    except zlib.error:
        raise ValueError("it cannot be unpacked") from None
    if not unpack.eof:
        raise ValueError(f"it is cut off, or has more than {RECORD_MAX_BYTES:,} bytes unpacked")
    if len(plain) > max(RATIO_FROM_BYTES, RATIO_MAX * len(content)):
        raise ValueError(f"{len(content):,} bytes unpack to {len(plain):,}")
    try:
        records = _decoder().decode(plain)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ValueError(f"it is no record: {error}") from None
    for record in records:
        times_s = (getattr(record, "now_s", 0.0), getattr(record, "clock_s", 0.0))
        if not all(-TIME_MAX_S <= time_s <= TIME_MAX_S for time_s in times_s):
            raise ValueError(f"its time makes no sense: {times_s[0]:g}")
    return records


def digest(frame: bytes) -> Digest:
    return len(frame), zlib.crc32(frame)


def found_of(source: str, findings: Findings) -> Found:
    links = tuple((one, other, score) for (one, other), score in findings.links.items())
    return Found(source, findings.devices, links)


def findings_of(found: Found) -> Findings:
    return Findings(found.devices, Links({(one, other): score for one, other, score in found.links}))


def texts(held: Mapping[ResourceName, frozenset[SlotId]] | None) -> HeldTexts | None:
    """Who holds what, as a record has it: the same for the same."""
    return None if held is None else {name: tuple(sorted(slots)) for name, slots in held.items()}


def sets(held: HeldTexts | None) -> dict[ResourceName, frozenset[SlotId]] | None:
    return None if held is None else {name: frozenset(slots) for name, slots in held.items()}
