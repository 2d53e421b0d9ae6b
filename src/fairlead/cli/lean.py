"""Loads asyncio and msgspec without what they would take along if it is there, and a daemon never uses.

asyncio takes ssl: 2 MB and 10 ms, for a daemon on unix sockets; what speaks TLS here imports it by itself. msgspec
takes typing_extensions, which other packages may have brought. Both libraries do without.
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
