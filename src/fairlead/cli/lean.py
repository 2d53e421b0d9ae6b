"""Loads what a daemon needs of its libraries, and not what they would load in passing.

asyncio takes ssl if it is there: 2 MB and 10 ms, for a daemon on unix sockets. msgspec takes typing_extensions if it is
there, which other packages may have brought. Some modules asyncio, msgspec and pathlib import for a line that a
daemon does not come by, another 2 MB: whoever first uses one loads it.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec, PathFinder
from threading import RLock
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.abc import Loader

IN_PASSING = ("ssl", "typing_extensions")
LATER = frozenset(
    {
        "asyncio.sslproto",
        "asyncio.staggered",
        "inspect",  # brings ast and dis
        "ipaddress",
        "linecache",  # brings tokenize
        "locale",
        "msgspec.inspect",
        "textwrap",
    }
)
_LOCK = RLock()


def load() -> None:
    masked = [name for name in IN_PASSING if name not in sys.modules]
    for name in masked:
        sys.modules[name] = None  # type: ignore[assignment]  # the documented way to make an import fail
    sys.meta_path.insert(0, _Finder)
    try:
        import asyncio  # noqa: PLC0415 - this is what the function is for
        import pathlib  # noqa: PLC0415 - as above

        import msgspec  # noqa: PLC0415 - as above
    finally:
        sys.meta_path.remove(_Finder)
        for name in masked:
            del sys.modules[name]
    del asyncio, msgspec, pathlib


class Postponed(ModuleType):
    """A module that is there by name. Its content comes when somebody wants a thing of it."""

    loader: Loader | None  # until it is under way

    def __getattr__(self, name: str) -> Any:
        # Names of this kind are asked for by the import system itself.
        if name.startswith("__"):
            raise AttributeError(name)
        with _LOCK:  # another thread has it all, or none of it
            loader = self.__dict__.pop("loader", None)
            if loader is not None:
                loader.exec_module(self)
                self.__class__ = ModuleType  # type: ignore[assignment]  # a plain one from now on
        return ModuleType.__getattribute__(self, name)


class _Finder:
    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name in LATER else None
        if spec is not None and spec.loader is not None:
            spec.loader = _Postponing(spec.loader)  # type: ignore[assignment]  # all of a loader that is called
        return spec


class _Postponing:
    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return Postponed(spec.name)

    def exec_module(self, module: Postponed) -> None:
        assert module.__spec__ is not None
        module.loader = module.__loader__ = module.__spec__.loader = self._loader
