"""Loads what a daemon needs of its libraries, and not what they would load in passing.

asyncio takes ssl if it is there: 2 MB and 10 ms, for a daemon on unix sockets. msgspec takes typing_extensions if it is
there, which other packages may have brought. Some modules asyncio, msgspec and pathlib import for a line that a
daemon does not come by, another 4 MB and 20 ms: whoever first uses one loads it. Where a library wants a word of one
while it is imported itself, that word is given here.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from threading import RLock
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from importlib.abc import Loader

CO_COROUTINE = 0x80  # a flag of code, as in `inspect`


def is_coroutine_function(function: Any) -> bool:
    """As `inspect` has it. asyncio asks it of every handler of a signal."""
    while (wrapped := getattr(function, "func", None)) is not None:  # a partial
        function = wrapped
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return code is not None and bool(code.co_flags & CO_COROUTINE)


class Logger:
    """A logger by name. `logging` is loaded when there is something to log."""

    def __init__(self, name: str) -> None:
        self._name = name

    def debug(self, *args: Any, **keys: Any) -> None:
        if not isinstance(sys.modules["logging"], Postponed):  # else nobody has asked for debug lines
            self.__getattr__("debug")(*args, **keys)

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module("logging").Logger.manager.getLogger(self._name), attribute)


def _late(module: str, function: str) -> Callable[..., Any]:
    def call(*args: Any, **keys: Any) -> Any:
        _fill(sys.modules[module])  # what stood there was this
        return getattr(sys.modules[module], function)(*args, **keys)

    return call


IN_PASSING = ("ssl", "typing_extensions")
# Modules that can wait, each with the words of it that its importers want at once.
LATER: Mapping[str, Mapping[str, Any]] = {
    "asyncio.sslproto": {},
    "asyncio.staggered": {},
    "concurrent.futures": {name: name for name in ("FIRST_COMPLETED", "FIRST_EXCEPTION", "ALL_COMPLETED")},
    "inspect": {"iscoroutinefunction": is_coroutine_function},  # brings ast and dis
    "ipaddress": {},
    "linecache": {},  # brings tokenize
    "locale": {},
    "logging": {"getLogger": Logger, "DEBUG": 10},
    "msgspec.inspect": {},
    "ntpath": {},
    "platform": {"system": lambda: os.uname().sysname},
    "subprocess": {"PIPE": -1, "STDOUT": -2, "DEVNULL": -3},
    "textwrap": {},
    "traceback": {"extract_stack": _late("traceback", "extract_stack")},
    "urllib.parse": {"quote_from_bytes": _late("urllib.parse", "quote_from_bytes")},
}
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
        _fill(self)
        return ModuleType.__getattribute__(self, name)


def _fill(module: ModuleType) -> None:
    with _LOCK:  # another thread has it all, or none of it
        loader = module.__dict__.pop("loader", None) if isinstance(module, Postponed) else None
        if loader is not None:
            loader.exec_module(module)
            module.__class__ = ModuleType  # a plain one from now on


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
        module.__dict__.update(LATER[module.__name__])
