"""Tells of admission storms, and slows them where that is wanted. What a storm is, `policy.storms` decides."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fairlead.model.errors import AskRefused, some
from fairlead.model.ports import Clock, Record
from fairlead.policy import storms as policy
from fairlead.policy.storms import Key, Known, Series, Tuning


class Storms:
    """`tuning` may change while it runs."""

    def __init__(self, clock: Clock, record: Record, tuning: Tuning) -> None:
        self._clock, self._record = clock, record
        self.tuning = tuning
        self._known: Known = {}
        self._alarm: Callable[[], object] | None = None

    def refused(self, resource: str, containers: Sequence[Sequence[str]], refusal: AskRefused) -> float:
        """How long the refusal is to be held back."""
        if not self.tuning.refusals:
            return 0.0
        key = Key(resource, _amounts(containers), type(refusal).__name__)
        was = self._known.get(key)
        reason = str(refusal)
        self._known, series = policy.refused(self._known, key, reason, self._clock.monotonic(), self.tuning)
        if series.storm and not (was is not None and was.storm):
            self._record(
                "admission-storm",
                resource=resource,
                amounts=list(key.amounts),
                refusals=series.count,
                reason=reason,
            )
        if series.storm:
            self._watch()
        return policy.delay_s(series, self.tuning)

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)

    @property
    def raging(self) -> tuple[str, ...]:
        """For people: each storm of now."""
        return tuple(_text(key, series) for key, series in self._known.items() if series.storm)

    def close(self) -> None:
        if self._alarm is not None:
            self._alarm()
            self._alarm = None

    def _watch(self) -> None:
        if self._alarm is None:
            self._alarm = self._clock.alarm(self.tuning.window_s, self._look)

    def _look(self) -> None:
        self._alarm = None
        self._known, ended = policy.passed(self._known, self._clock.monotonic(), self.tuning)
        for key, series in ended.items():
            self._record(
                "admission-storm-over", resource=key.resource, amounts=list(key.amounts), refusals=series.count
            )
        if any(each.storm for each in self._known.values()):
            self._watch()


def _amounts(containers: Sequence[Sequence[str]]) -> tuple[int, ...]:
    return tuple(len(ids) for ids in containers)


def _text(key: Key, series: Series) -> str:
    asked = some([str(amount) for amount in key.amounts])
    return (
        f"{series.count} requests for {asked} of {key.resource} were refused: {series.reason}. A controller makes the "
        "pod anew each time; find it with: kubectl get pods -A --field-selector=status.phase=Failed,spec.nodeName=NODE"
    )
