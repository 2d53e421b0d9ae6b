"""Opens a backend by its kind: a table for our own, entry points for those of others.

Owns names and the errors around them; knows nothing of what a backend does.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from fairlead._version import __version__
from fairlead.model.errors import BackendError, FairleadError, UsageError
from fairlead.model.ports import Backend, Clock

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENTRY_POINTS = "fairlead.backends"
_OWN = {
    "amd": "fairlead.backends.amd",
    "nvidia": "fairlead.backends.nvidia",
    "paths": "fairlead.backends.paths",
    "sim": "fairlead.backends.sim",
}


def open(kind: str, options: Mapping[str, Any], clock: Clock) -> Backend:  # noqa: A001 - reads as registry.open
    """The backend of that kind. UsageError for an unknown kind or options that do not fit."""
    opener = _own(kind) or _foreign(kind)
    try:
        backend = opener(options, clock)
    except FairleadError:
        raise
    except (Exception, SystemExit, CancelledError) as error:  # at a reload, a daemon that serves would end with it
        raise BackendError(f"backend {kind!r} could not be opened: {type(error).__name__}: {error}") from error
    if not isinstance(backend, Backend):
        raise BackendError(f"backend {kind!r} gave a {type(backend).__name__}, which has no name or no discover()")
    return backend


def release(kind: str) -> str:
    """The version of the code that finds devices of that kind; empty where it is not known."""
    if kind in _OWN:
        return __version__
    versions = [point.dist.version for point in _points() if point.name == kind and point.dist is not None]
    return f"{__version__} {versions[0]}" if versions else ""


def kinds() -> tuple[str, ...]:
    """Every kind that can be opened here."""
    return tuple(sorted({*_OWN, *(point.name for point in _points())}))


def _own(kind: str) -> Callable[..., Any] | None:
    # Imported when asked for: a daemon loads the backends it runs and no other.
    if kind not in _OWN:
        return None
    opener: Callable[..., Any] = import_module(_OWN[kind]).open_backend
    return opener


def _foreign(kind: str) -> Callable[..., Any]:
    points = {point.value: point for point in _points() if point.name == kind}
    if len(points) > 1:
        raise UsageError(f"several packages have a backend of the kind {kind!r}: {', '.join(points)}. Keep one")
    point = next(iter(points.values()), None)
    if point is None:
        from fairlead.kit.decoding import did_you_mean  # noqa: PLC0415 - only an error needs it

        raise UsageError(f"no backend of the kind {kind!r}{did_you_mean(kind, kinds())}")
    try:
        opener: Callable[..., Any] = point.load()
    except (Exception, SystemExit, CancelledError) as error:
        raise BackendError(
            f"backend {kind!r} ({point.value}) could not be loaded: {type(error).__name__}: {error}. "
            f"Its package is installed but broken: reinstall or remove it"
        ) from error
    return opener


def _points() -> Iterator[EntryPoint]:
    from importlib import metadata  # noqa: PLC0415 - slow to import; our own kinds do not need it

    yield from metadata.entry_points(group=ENTRY_POINTS)
