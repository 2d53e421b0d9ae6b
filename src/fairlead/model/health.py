"""Health as people must be able to read it: a state, its cause, and since when."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class Health(StrEnum):
    HEALTHY = "healthy"
    SUSPECT = "suspect"  # something was seen; still offered
    UNHEALTHY = "unhealthy"
    PROBATION = "probation"  # clean again, not trusted yet; not offered

    @property
    def usable(self) -> bool:
        """Whether the kubelet is sent "Healthy"."""
        # Compared, not looked up in a set: an enum is hashed in Python, and this is asked for every slot.
        return self is Health.HEALTHY or self is Health.SUSPECT


class CauseKind(StrEnum):
    """What has to happen before a device is trusted again."""

    APPLICATION = "application"  # a program's own fault: the device is fine
    TRANSIENT = "transient"  # may pass: tolerated once, then held until clean for a while
    NEEDS_RESET = "needs-reset"  # withdrawn at once; clean probes after the hold bring it back, or see Cause.cured_by
    PERMANENT = "permanent"  # withdrawn until an operator clears it


class Cause(Struct, frozen=True):
    code: str  # short and stable: "xid-79", "probe-timeout"
    kind: CauseKind
    message: str = ""
    hold_s: float | None = None  # shortest time withdrawn for it; None: as for any other
    cured_by: tuple[str, ...] = ()  # signs of a reset, any of which ends it. Empty: clean probes do

    def __str__(self) -> str:
        return f"{self.code}: {self.message}" if self.message else self.code


class Sign(Struct, frozen=True):
    """Something that a reset of the device changes, as it reads now."""

    value: str = ""  # opaque: another value than before means that the device was reset in between
    asks: bool = False  # the device asks for a reset now, or does not answer: whatever else changed, it is not cured


class Condition(Struct, frozen=True):
    """A device's health, why, and since when: seconds of the monotonic clock, which no one can set."""

    health: Health = Health.HEALTHY
    cause: Cause | None = None
    since_s: float = 0.0


HEALTHY = Condition()
