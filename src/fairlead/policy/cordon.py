"""Cordons: devices that an operator keeps from new pods, for a reason and perhaps for a time.

Owns what a cordon is, when it is over, and how cordons and health become one: a cordon withdraws a device that is
usable, and never hides a fault. A cordon on a device is one on its partitions too. Pure: time comes in as `now_s`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from msgspec import Struct

from fairlead.model.device import Device
from fairlead.model.errors import UsageError
from fairlead.model.health import Cause, CauseKind, Condition, Health
from fairlead.model.inventory import Conditions
from fairlead.model.names import DeviceId

CODE = "cordoned"  # of the cause
REASON_MAX = 256  # characters
DEVICE_MAX = 256  # characters of an id; one that is offered has 63 at most
LONGEST_S = 10 * 366 * 86_400.0
CORDONS_MAX = 256  # at a time


class Cordon(Struct, frozen=True):
    device: DeviceId
    reason: str
    at_s: float  # wall time, which counts over restarts
    until_s: float | None = None  # the same; None: until an operator ends it

    def __str__(self) -> str:
        return self.reason if self.until_s is None else f"{self.reason} (until {_stamp(self.until_s)})"


def make_cordon(device: DeviceId, reason: str, now_s: float, for_s: float | None) -> Cordon:
    """UsageError for a reason or a time that cannot be kept."""
    cordon = Cordon(device, reason.strip(), now_s, None if for_s is None else now_s + for_s)
    if for_s is not None and not 0 < for_s <= LONGEST_S:
        raise UsageError("the time of a cordon is over 0 s and at most 10 years, such as --for 2h")
    if wrong := flaw(cordon):
        raise UsageError(f"cordon of {device}: {wrong}")
    return cordon


def flaw(cordon: Cordon) -> str:
    """Why it cannot be kept or shown; empty if it can."""
    if not cordon.reason:
        return "it has no reason. Give one, such as --reason 'fan is replaced'"
    if len(cordon.reason) > REASON_MAX or not cordon.reason.isprintable():
        return f"its reason is not one line of at most {REASON_MAX} printable characters"
    if not cordon.device or len(cordon.device) > DEVICE_MAX:
        return "it names no device"
    times = [cordon.at_s] if cordon.until_s is None else [cordon.at_s, cordon.until_s]
    if not all(math.isfinite(at_s) and 0 <= at_s < 1e11 for at_s in times):
        return "its time is no time"
    return ""


def is_over(cordon: Cordon, now_s: float) -> bool:
    return cordon.until_s is not None and cordon.until_s <= now_s


def condition_of(cordon: Cordon, now_s: float, monotonic_s: float) -> Condition:
    """As the health of the device: `now_s` and `monotonic_s` are the same moment on two clocks."""
    cause = Cause(CODE, CauseKind.PERMANENT, str(cordon))
    return Condition(Health.UNHEALTHY, cause, cordon.at_s - now_s + monotonic_s)


def apply_cordons(
    conditions: Conditions, devices: Iterable[Device], cordoned: Mapping[DeviceId, Condition]
) -> Conditions:
    """The conditions with those of cordons. The same object where none counts."""
    changed = {}
    for device in devices if cordoned else ():
        found = cordoned.get(device.id) or (cordoned.get(device.parent) if device.parent is not None else None)
        if found is not None and conditions.of(device.id).health.usable:
            changed[device.id] = found
    return Conditions({**conditions.by_device, **changed}) if changed else conditions


def _stamp(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
