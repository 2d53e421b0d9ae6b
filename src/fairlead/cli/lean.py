"""Loads what a daemon needs of its libraries, and not what they would load in passing.

asyncio takes ssl if it is there: 2 MB and 10 ms, for a daemon on unix sockets. msgspec takes typing_extensions if it is
there, which other packages may have brought.
"""

from __future__ import annotations

import sys

IN_PASSING = ("ssl", "typing_extensions")


def load() -> None:
    masked = [name for name in IN_PASSING if name not in sys.modules]
    for name in masked:
        sys.modules[name] = None  # type: ignore[assignment]  # the documented way to make an import fail
    try:
        import asyncio  # noqa: PLC0415 - this is what the function is for

        import msgspec  # noqa: PLC0415 - as above
    finally:
        for name in masked:
            del sys.modules[name]
    del asyncio, msgspec
