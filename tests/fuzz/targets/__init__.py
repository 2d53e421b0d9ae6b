"""What is fuzzed. A target starts, plays a block of cases one by one, and stops; a block stands for itself."""

from __future__ import annotations

import random
from typing import Protocol


class BrokenPromiseError(AssertionError):
    """A case showed something that must not happen."""


def promise(kept: object, text: str) -> None:
    if not kept:
        raise BrokenPromiseError(text)


class Target(Protocol):
    block: int  # cases that share one start

    async def start(self) -> None: ...

    async def case(self, rng: random.Random) -> None: ...

    async def stop(self) -> None: ...
