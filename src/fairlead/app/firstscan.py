"""What a first scan decides: whether a daemon that must find its devices goes on.

Where devices of an earlier daemon are offered meanwhile, it decides later, and the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.model.errors import BackendError, NotOffered

if TYPE_CHECKING:
    from fairlead.app.daemon import Daemon


async def confirm(daemon: Daemon, *, required: bool) -> None:
    """Until each scan that is still under way has confirmed the devices that are offered without it."""
    waited = False
    while silent := [source for source in daemon.engine.sources.silent if source.remembered]:
        await silent[0].first_scan.wait()
        waited = True
    if waited and not (required and failed(daemon)):
        daemon.settle()
        lacks(daemon)


def failed(daemon: Daemon) -> bool:
    """Ends it if a first scan has failed."""
    scanned = (source for source in daemon.engine.sources.live.values() if source.first_scan.is_set())
    problems = [f"backend {source.name}: {source.problem}" for source in scanned if source.problem]
    if problems:
        daemon.fail(BackendError("; ".join(problems)))
    return bool(problems)


def lacks(daemon: Daemon) -> bool:
    """Ends it if a resource that must be offered is not."""
    needed = daemon.engine.listing.offering.needed
    if needed:
        daemon.fail(NotOffered("; ".join(needed)))
    return bool(needed)
