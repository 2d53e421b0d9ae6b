"""What the engine tells a recorder: whatever its answers depend on, and comes from outside of it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Protocol

from fairlead.model.edits import Edits, Grant
from fairlead.model.names import DeviceId
from fairlead.policy.health import Track

if TYPE_CHECKING:
    from fairlead.engine.source import Source


class Tap(Protocol):
    """Its methods return at once, and never raise."""

    def opened(self, source: Source) -> None:
        """A source begins. Another of its name may go on for a while."""
        ...

    def judged(self, source: Source, device: DeviceId, verdict: Callable[..., Track], now_s: float) -> None:
        """`verdict`: a function of `policy.health`, perhaps with some arguments. Not told where it changes nothing."""
        ...

    def probed(self, source: Source, now_s: float, silent: Collection[DeviceId]) -> None:
        """All devices of a source were asked; of these there is no data."""
        ...

    def edited(self, source: str, grant: Grant, edits: Edits | Exception) -> None:
        """What a backend gives for its part of a grant."""
        ...
