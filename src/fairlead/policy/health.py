"""Health: one small state machine per device, driven by what a cause means, not by whether a call returned 0.

    healthy -> suspect -> unhealthy -> probation -> healthy

- APPLICATION never changes health; it is kept as a note.
- TRANSIENT makes a device suspect (still offered); a second one within the window withdraws it.
- NEEDS_RESET and PERMANENT withdraw it at once. PERMANENT waits for `cleared`, whatever the probes say.
- The way back: the hold is over and enough probes in a row were clean -> probation -> healthy.
- A cause that names signs of a reset (`cured_by`) is over when one of them was seen; clean probes do not end it.
- A device that falls again soon is held longer, up to a cap; one that keeps falling is put in quarantine.
- No data is not an event, and changes nothing.

Without probes (`Track(probed=False)`) a TRANSIENT cause passes by time alone; NEEDS_RESET waits for `cleared`.

Pure: time comes in as `now_s`. An event that changes nothing returns the same object. Knows nothing of devices.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from fairlead.model.health import HEALTHY, Cause, CauseKind, Condition, Health, Sign

FLAPPING = "flapping"
CAUSES_MAX = 32  # open at a time; a backend may invent a code with each report
_WEIGHT = {CauseKind.APPLICATION: 0, CauseKind.TRANSIENT: 1, CauseKind.NEEDS_RESET: 2, CauseKind.PERMANENT: 3}


class Tuning(Struct, frozen=True):
    suspect_s: float = 60.0  # a second transient fault within this time withdraws the device
    clean_probes: int = 3  # probes in a row that must find nothing before probation
    hold_s: float = 30.0  # shortest time withdrawn, counted from the last fault
    hold_growth: float = 2.0  # each further fall within the flap window multiplies the hold
    hold_max_s: float = 1800.0  # and this is where it stops
    probation_s: float = 60.0  # time without a fault before the device is offered again
    flap_window_s: float = 3600.0  # falls are counted over this time
    flap_count: int = 5  # this many falls within it are flapping
    quarantine_s: float = 7200.0  # the hold of a flapping device


DEFAULT = Tuning()


class Track(Struct, frozen=True):
    """A device's condition, and what the next decision needs to remember."""

    condition: Condition = HEALTHY
    probed: bool = True  # the engine probes this device
    causes: tuple[Cause, ...] = ()  # open causes, the weightiest first
    clean: int = 0  # clean probes in a row
    excused: bool = False  # every cause was declared over: no probe has to confirm it
    until_s: float = 0.0  # end of the suspect window, the hold or the probation
    hold_s: float = 0.0  # the hold of the last fall
    falls: tuple[float, ...] = ()  # when the device was withdrawn, within the flap window
    note: Cause | None = None  # the last application fault
    signs: Mapping[str, Mapping[str, Sign]] = field(default_factory=dict)  # as last read, by the cause's code


def fault(track: Track, cause: Cause, now_s: float, tuning: Tuning = DEFAULT) -> Track:
    """Something was seen wrong."""
    if cause.kind is CauseKind.APPLICATION:
        return track if track.note == cause else replace(track, note=cause)
    track = tick(track, now_s, tuning)
    if cause.code in track.signs:  # a reset before this fault is no cure for it
        track = replace(track, signs={code: read for code, read in track.signs.items() if code != cause.code})
    health = track.condition.health
    if health is Health.UNHEALTHY:
        return _worsen(track, cause, now_s)
    if health is Health.HEALTHY and cause.kind is CauseKind.TRANSIENT:
        condition = Condition(Health.SUSPECT, cause, now_s)
        return replace(track, condition=condition, causes=(cause,), until_s=now_s + tuning.suspect_s)
    return _fall(track, cause, now_s, tuning)


def clean(track: Track, now_s: float, tuning: Tuning = DEFAULT) -> Track:
    """A probe found nothing wrong."""
    if track.condition.health is Health.UNHEALTHY and track.clean < tuning.clean_probes:
        track = replace(track, clean=track.clean + 1)
    return tick(track, now_s, tuning)


def cleared(track: Track, code: str | None, now_s: float, tuning: Tuning = DEFAULT) -> Track:
    """One cause is over, or every cause: a reset was seen, or an operator said so.

    With a code, the hold still runs its course; when it was the last cause, no probe has to confirm it. Without a code,
    or for the code "flapping", the past is forgotten and probation starts at once.
    """
    health = track.condition.health
    if health is Health.HEALTHY and code is None and track.falls:
        return replace(track, falls=(), hold_s=0.0)
    if health in {Health.HEALTHY, Health.PROBATION}:
        return track
    latched = any(cause.kind is CauseKind.PERMANENT for cause in track.causes)
    all_over = code is None or (code == FLAPPING and _shown_as(track, FLAPPING) and not latched)
    left = () if all_over else tuple(cause for cause in track.causes if cause.code != code)
    if not all_over and left == track.causes:
        return track
    if health is Health.SUSPECT:
        return _heal(track, now_s)
    if all_over:
        track = replace(track, falls=(), hold_s=0.0, until_s=now_s)
    condition = track.condition
    if left and not _shown_as(track, FLAPPING):
        condition = replace(condition, cause=left[0])
    return tick(replace(track, condition=condition, causes=left, excused=not left), now_s, tuning)


def seen(track: Track, signs: Mapping[str, Sign], now_s: float, tuning: Tuning = DEFAULT) -> Track:
    """What a reset changes was read. The first reading after a fault is what later ones are compared with."""
    over = cured(track, signs)
    known = {cause.code: {**track.signs.get(cause.code, {}), **signs} for cause in track.causes if cause.cured_by}
    if known != track.signs:
        track = replace(track, signs=known)
    for cause in over:
        track = cleared(track, cause.code, now_s, tuning)
    return track


def cured(track: Track, signs: Mapping[str, Sign]) -> list[Cause]:
    """The causes that are over by these signs."""
    return [cause for cause in track.causes if _is_cured(cause, track.signs.get(cause.code, {}), signs)]


def _is_cured(cause: Cause, before: Mapping[str, Sign], now: Mapping[str, Sign]) -> bool:
    """Something changed that only a reset changes, and nothing asks for a reset any more."""
    read = [name for name in cause.cured_by if name in now]
    if any(now[name].asks for name in read):
        return False
    return any(name in before and before[name] != now[name] for name in read)


def is_well(track: Track) -> bool:
    """Nothing is, or was of late, wrong with it."""
    return track == Track(probed=track.probed)


def inherited(track: Track, known: Track, now_s: float, tuning: Tuning = DEFAULT) -> Track:
    """What another process knew of the device, on the same clock. A new process is no cure."""
    return tick(replace(known, probed=track.probed), now_s, tuning)


def tick(track: Track, now_s: float, tuning: Tuning = DEFAULT) -> Track:
    """Time passed: takes the step that is due, if any."""
    if track.condition.health is Health.HEALTHY or now_s < track.until_s:
        return track
    if track.condition.health is not Health.UNHEALTHY:
        return _heal(track, now_s)
    if not _may_return(track, tuning):
        return track
    condition = Condition(Health.PROBATION, track.condition.cause, now_s)
    return replace(track, condition=condition, causes=(), signs={}, until_s=now_s + tuning.probation_s)


def _may_return(track: Track, tuning: Tuning) -> bool:
    """Whether only the hold keeps the device away."""
    weight = max((_WEIGHT[cause.kind] for cause in track.causes), default=0)
    if weight == _WEIGHT[CauseKind.PERMANENT] or any(cause.cured_by for cause in track.causes):
        return False
    if track.excused:
        return True
    if track.probed:
        return track.clean >= tuning.clean_probes
    return weight <= _WEIGHT[CauseKind.TRANSIENT]


def _fall(track: Track, cause: Cause, now_s: float, tuning: Tuning) -> Track:
    recent = tuple(fall_s for fall_s in track.falls if now_s - fall_s < tuning.flap_window_s)
    falls = (*recent, now_s)
    again = recent or track.condition.health is Health.PROBATION
    first_s = tuning.hold_s if cause.hold_s is None else cause.hold_s
    hold_s = max(first_s, min(tuning.hold_max_s, track.hold_s * tuning.hold_growth)) if again else first_s
    wait_s, shown = hold_s, cause
    if len(falls) >= tuning.flap_count:
        wait_s = max(hold_s, tuning.quarantine_s)
        if cause.kind is not CauseKind.PERMANENT:  # that one must stay in sight: an operator clears it by its code
            shown = Cause(
                FLAPPING, cause.kind, f"withdrawn {len(falls)} times in {tuning.flap_window_s:g} s; last by {cause}"
            )
    return replace(
        track,
        condition=Condition(Health.UNHEALTHY, shown, now_s),
        causes=_add(track.causes, cause),
        clean=0,
        excused=False,
        until_s=now_s + wait_s,
        hold_s=hold_s,
        falls=falls,
    )


def _worsen(track: Track, cause: Cause, now_s: float) -> Track:
    """Another fault while withdrawn: the hold starts again. The first cause stays in sight unless this one is worse."""
    causes = _add(track.causes, cause)
    condition = track.condition
    shown = condition.cause
    if shown is None or _WEIGHT[cause.kind] > _WEIGHT[shown.kind]:
        condition = replace(condition, cause=cause)
    hold_s = max(track.hold_s, cause.hold_s or 0.0)
    until_s = max(track.until_s, now_s + hold_s)
    return replace(track, condition=condition, causes=causes, clean=0, excused=False, until_s=until_s, hold_s=hold_s)


def _heal(track: Track, now_s: float) -> Track:
    """Back in trust. The falls are remembered for the flap window."""
    condition = Condition(Health.HEALTHY, None, now_s)
    return replace(track, condition=condition, causes=(), signs={}, clean=0, excused=False, until_s=0.0)


def _add(causes: tuple[Cause, ...], cause: Cause) -> tuple[Cause, ...]:
    """One cause per code, the weightiest first, then the oldest."""
    known = next((other for other in causes if other.code == cause.code), None)
    if known is not None and _WEIGHT[known.kind] >= _WEIGHT[cause.kind]:
        return causes
    rest = tuple(other for other in causes if other.code != cause.code)
    return tuple(sorted((*rest, cause), key=lambda other: -_WEIGHT[other.kind]))[:CAUSES_MAX]


def _shown_as(track: Track, code: str) -> bool:
    return track.condition.cause is not None and track.condition.cause.code == code
