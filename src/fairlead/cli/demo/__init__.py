"""The demo: a simulated node, an embedded kubelet and the real daemon, in a story that checks itself."""

from __future__ import annotations

import asyncio
import sys

from fairlead.model.errors import FairleadError, MissingExtra


def play(fleet: str, *, once: bool = False, keep: bool = False, record: str = "") -> int:
    """Plays the demo; the exit code. Stays on a terminal until the visitor leaves, unless `once`."""
    try:
        from fairlead.cli.demo.show import Show  # noqa: PLC0415 - needs grpcio
    except ImportError as error:  # grpcio, or what else the stand-in needs
        raise MissingExtra("the demo", "demo") from error
    stay = sys.stdin.isatty() and sys.stdout.isatty() and not once
    try:
        return asyncio.run(Show(fleet, stay=stay, keep=keep, record=record).run())
    except KeyboardInterrupt:
        return 0 if stay else 130
    except FairleadError as error:
        sys.stderr.write(f"fairlead demo: {error}\n")
        return error.exit_code
