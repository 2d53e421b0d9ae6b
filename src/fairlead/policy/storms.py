"""Admission storms: the same request is refused again and again, because a controller makes its pod anew each time.

The kubelet does not say for which pod it asks. Pods of one controller ask alike: a storm is told apart by the resource,
the amounts and the kind of the refusal. It is over when none was refused for a while: a grant alone ends none, because
another controller may ask for as much.

Pure: time comes in as `now_s`.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

KEPT = 64  # kinds of requests that are followed; further ones push out the oldest
STEP_S = 0.1  # the delay of the first refusal of a storm; each further one doubles it


class Tuning(Struct, frozen=True):
    refusals: int = 5  # within the window; 0: storms are not looked for
    window_s: float = 60.0
    delay_max_s: float = 0.0  # how long a refusal may be held back; 0: not at all


class Key(Struct, frozen=True):
    resource: str
    amounts: tuple[int, ...]  # by container
    kind: str  # of the refusal


class Series(Struct, frozen=True):
    """Refusals of one kind of request."""

    times_s: tuple[float, ...]  # the last ones, no more than a storm needs
    reason: str  # of the last one; in a storm, of the one that made it a storm
    count: int = 1  # since the first
    storm: bool = False


Known = Mapping[Key, Series]


def refused(known: Known, key: Key, reason: str, now_s: float, tuning: Tuning) -> tuple[Known, Series]:
    """One more refusal, and the series that it belongs to. A new storm: `storm` is set, and was not before."""
    before = known.get(key)
    if before is None or now_s - before.times_s[-1] > tuning.window_s:
        series = Series((now_s,), reason)
    else:
        times_s = (*before.times_s, now_s)[-max(tuning.refusals, 1) :]
        told = before.reason if before.storm else reason
        series = replace(before, times_s=times_s, reason=told, count=before.count + 1)
    full = len(series.times_s) >= tuning.refusals > 0 and now_s - series.times_s[0] <= tuning.window_s
    if full and not series.storm:
        series = replace(series, storm=True)
    rest = {other: each for other, each in known.items() if other != key}
    while len(rest) >= KEPT:
        del rest[next(iter(rest))]
    return {**rest, key: series}, series


def passed(known: Known, now_s: float, tuning: Tuning) -> tuple[Known, dict[Key, Series]]:
    """Time passed: what is known then, and the storms that are over."""
    left = {key: each for key, each in known.items() if now_s - each.times_s[-1] < tuning.window_s}
    return left, {key: each for key, each in known.items() if key not in left and each.storm}


def delay_s(series: Series, tuning: Tuning) -> float:
    """How long the answer is held back. It blocks the kubelet's loop, and so it grows slowly and ends early."""
    if not series.storm or tuning.delay_max_s <= 0:
        return 0.0
    return min(tuning.delay_max_s, STEP_S * 2.0 ** min(series.count - tuning.refusals, 16))
