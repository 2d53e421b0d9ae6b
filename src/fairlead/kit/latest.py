"""Latest: one value, any number of followers, each with its own cursor. Values in between coalesce.

No follower can take another's update, and a slow one skips to the newest.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Latest(Generic[T]):
    __slots__ = ("_changed", "_closed", "_value", "_version")

    def __init__(self, value: T) -> None:
        self._value = value
        self._version = 0
        self._changed: asyncio.Event | None = None  # made by the first follower that has to wait
        self._closed = False

    @property
    def value(self) -> T:
        return self._value

    @property
    def version(self) -> int:
        return self._version

    def set(self, value: T) -> None:
        self._value = value
        self._version += 1
        self._wake()

    def close(self) -> None:
        """Ends every follower, after it has seen the last value."""
        self._closed = True
        self._wake()

    def _wake(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    async def follow(self) -> AsyncIterator[T]:
        """The value now, then the newest value after each change."""
        seen = -1
        while True:
            if seen != self._version:
                seen = self._version
                yield self._value
            elif self._closed:
                return
            else:
                if self._changed is None:
                    self._changed = asyncio.Event()
                await self._changed.wait()
