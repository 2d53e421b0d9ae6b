"""When time alone changes a health track, as `tick` shows it."""

from __future__ import annotations

from fairlead.policy.health import DEFAULT, Track, Tuning, tick

_FOR_EVER_S = 1e15


def next_wakeup_s(track: Track, tuning: Tuning = DEFAULT) -> float | None:
    """When `tick` will have something to do. None: only an event can change this track."""
    return None if tick(track, _FOR_EVER_S, tuning) is track else track.until_s
