"""Clean-up before reuse: when a device must be cleaned, when it may be, and when a container has to wait for it.

A device is used from its first grant on. It is cleaned when no container holds any of it; or, where the next container
was granted it before that was seen, right before that one starts. It is never cleaned while another container is on it,
and never because a container starts again on what it has. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from fairlead.model.health import Cause, CauseKind, Condition, Health
from fairlead.model.names import ResourceName, SlotId

SETTLE_S = 10.0  # after Allocate, until the kubelet names the holder
UNCLEAN, FAILED_CODE = "unclean", "cleanup-failed"  # codes of causes
Held: TypeAlias = tuple[ResourceName, SlotId]


class Stage(StrEnum):
    CLEAN = "clean"
    USED = "used"  # by a container, now or before
    CLEANING = "cleaning"
    FAILED = "failed"  # waits for an operator


class Start(StrEnum):
    """What a container that is about to start has to wait for."""

    AT_ONCE = "at once"
    CLEAN_FIRST = "clean first"
    SHARED = "shared"  # it would have to be cleaned, and another container is on it


class Use(Struct, frozen=True):
    """Of one device."""

    stage: Stage = Stage.CLEAN
    granted: Mapping[Held, float] = field(default_factory=dict)  # when; since the last clean-up
    pending: frozenset[Held] = frozenset()  # granted on a used device, to containers that have not started yet
    reason: str = ""  # why it failed


def grant(use: Use, slots: Iterable[Held], now_s: float) -> Use:
    """A container was given these. On a device that is being cleaned, or could not be, its start will tell."""
    mine = frozenset(slots)
    pending = use.pending | mine if use.stage is not Stage.CLEAN else use.pending
    stage = Stage.USED if use.stage is Stage.CLEAN else use.stage
    return replace(use, stage=stage, granted={**use.granted, **dict.fromkeys(mine, now_s)}, pending=pending)


def start(use: Use, slots: Iterable[Held], held: AbstractSet[Held] | None, now_s: float) -> tuple[Use, Start]:
    """A container is about to start, or to start again, on these slots. `held`: of this device; None: not known."""
    mine = frozenset(slots)
    if not use.pending & mine:
        return use, Start.AT_ONCE
    after = replace(use, pending=use.pending - mine)
    fresh = {slot for slot, at_s in use.granted.items() if now_s - at_s < SETTLE_S}
    others = ((held if held is not None else use.granted.keys()) | fresh) - mine
    return after, Start.SHARED if others else Start.CLEAN_FIRST


def is_due(use: Use, held: AbstractSet[Held], now_s: float) -> bool:
    """Whether the last container has left it. `held`: of this device, by the kubelet."""
    if use.stage is not Stage.USED or held:
        return False
    return all(now_s - at_s >= SETTLE_S for at_s in use.granted.values())


def begin(use: Use) -> Use:
    return replace(use, stage=Stage.CLEANING)


def break_off(use: Use) -> Use:
    """The daemon ends: the next one begins anew."""
    return replace(use, stage=Stage.USED)


def end(use: Use, problem: str) -> Use:
    """After the command: clean, or kept from pods until an operator has looked."""
    if problem:
        return replace(use, stage=Stage.FAILED, reason=problem)
    # What was granted meanwhile is used from now on; it was granted on a device that is clean.
    return Use(Stage.USED, use.granted) if use.pending else Use()


def cleaned_for(use: Use, slots: Iterable[Held], now_s: float) -> Use:
    """It is clean, and the container of these slots starts on it."""
    return Use(Stage.USED, {**use.granted, **dict.fromkeys(slots, now_s)})


def clear(use: Use) -> Use:
    """An operator has looked: the command may be tried again."""
    return replace(use, stage=Stage.USED, reason="") if use.stage is Stage.FAILED else use


def condition_of(use: Use, now_s: float) -> Condition | None:
    """As the health of the device; None: nothing keeps it from pods."""
    if use.stage is Stage.CLEANING:
        return Condition(Health.UNHEALTHY, Cause(UNCLEAN, CauseKind.TRANSIENT, "it is being cleaned"), now_s)
    if use.stage is Stage.FAILED:
        return Condition(Health.UNHEALTHY, Cause(FAILED_CODE, CauseKind.PERMANENT, use.reason), now_s)
    return None
