"""What a node tells of its devices: an annotation for each resource, and what is guessed without it.

The daemon writes it and the scheduler reads it; it changes only when the devices do. A node's status has totals only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Struct

from fairlead.model.errors import InvalidQuantity
from fairlead.model.quantity import AMOUNT_MAX, parse_amount
from fairlead.policy.packing.node import DEVICES_MAX, DeviceRoom
from fairlead.policy.pods.contract import Contract

PREFIX = "devices.fairlead/"
TEXT_MAX = 64 * 1024
_NAME_MAX = 63  # of an annotation, behind its prefix
_HASH_LENGTH = 8


class _Told(Struct, frozen=True, omit_defaults=True):
    """Short names: every watch of nodes carries it."""

    i: str
    d: str = ""
    u: int = 0
    x: bool = False  # not usable
    n: int | None = None


def key_of(resource: str) -> str:
    name = resource.replace("/", "_")
    if len(name) > _NAME_MAX:
        digest = hashlib.sha256(resource.encode()).hexdigest()[:_HASH_LENGTH]
        name = f"{name[: _NAME_MAX - _HASH_LENGTH - 1]}-{digest}"
    return PREFIX + name


def write_told(devices: Iterable[DeviceRoom]) -> str:
    told = [_Told(one.index, one.id, one.units, not one.usable, one.numa) for one in devices]
    return msgspec.json.encode(told).decode()


def read_told(text: str) -> tuple[DeviceRoom, ...] | None:
    """None for anything but what `write_told` makes."""
    if len(text) > TEXT_MAX:
        return None
    try:
        told = msgspec.json.decode(text, type=list[_Told])
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    sane = len(told) <= DEVICES_MAX and len({one.i for one in told}) == len(told)
    if not sane or any(not 0 <= one.u <= AMOUNT_MAX for one in told):
        return None
    return tuple(DeviceRoom(one.i, one.d, one.u, not one.x, one.n) for one in told)


def read_devices(
    annotations: Mapping[str, str], capacity: Mapping[str, str], allocatable: Mapping[str, str], contract: Contract
) -> tuple[DeviceRoom, ...]:
    """The devices of a node: as it tells them; else its total in equal parts, as other schedulers guess it."""
    offered = capacity if contract.capacity else allocatable
    total = _amount(offered, contract.resource)
    if not total:
        return ()  # its plugin is away: nothing can be given, whatever it told
    told = annotations.get(key_of(contract.resource), "")
    if told and (devices := read_told(told)) is not None:
        return devices
    if contract.whole:
        return tuple(DeviceRoom(str(number), "", 1) for number in range(min(total, DEVICES_MAX)))
    count = _amount(offered, contract.count)
    if not 0 < count <= DEVICES_MAX or contract.by_id:
        return ()  # ids are not known without what the node tells
    return tuple(DeviceRoom(str(number), "", total // count) for number in range(count))


def _amount(amounts: Mapping[str, str], resource: str) -> int:
    try:
        return parse_amount(amounts.get(resource, "0")) if resource else 0
    except InvalidQuantity:
        return 0
