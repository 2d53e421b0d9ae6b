"""The plugin watcher: sockets that appear under plugins_registry become plugins, and stop being so when they go.

Owns the watching and the handshake. The connection to the plugin itself is the registry's.
"""

import asyncio
import os
import stat
import urllib.parse
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from asyncinotify import Inotify, Mask

from fairlead.standin._gen import pluginregistration_v1_pb2 as reg
from fairlead.standin.changes import Tasks
from fairlead.standin.clock import within
from fairlead.standin.errors import CallFailed, Rejected
from fairlead.standin.plugin import open_channel, parse
from fairlead.standin.registration import Registry, is_extended_resource
from fairlead.standin.setup import Setup

_MASK = Mask.CREATE | Mask.DELETE | Mask.MOVED_TO | Mask.MOVED_FROM
_SERVICE = "/pluginregistration.Registration/"
_VERSION = "v1beta1"
Identity = tuple[int, int]  # inode, time of change


class Watcher:
    def __init__(self, setup: Setup, registry: Registry, tasks: Tasks) -> None:
        self._directory = setup.registry_dir
        self._calls, self._clock, self._timings = setup.calls, setup.clock, setup.timings
        self._registry = registry
        self._tasks = tasks
        self._inotify: Inotify | None = None
        self._watched: dict[Path, int] = {}
        self._known: dict[Path, tuple[Identity, asyncio.Task[None]]] = {}
        self._names: dict[Path, str] = {}

    def start(self) -> None:
        self._inotify = Inotify()
        self._tasks.spawn(self._run(self._inotify), "watch plugins_registry")

    async def close(self) -> None:
        if self._inotify is not None:
            self._inotify.close()

    async def _run(self, inotify: Inotify) -> None:
        await self._reconcile(inotify, None)
        async for event in inotify:
            removed = event.path if event.mask & (Mask.DELETE | Mask.MOVED_FROM) else None
            await self._reconcile(inotify, removed)

    async def _reconcile(self, inotify: Inotify, removed: Path | None) -> None:
        """Bring what is registered in line with the files that are there now.

        A socket made anew under the same name is another plugin: first the old one leaves.
        """
        found = self._scan(inotify)
        for path, (identity, task) in tuple(self._known.items()):
            if _is_gone(identity, found.get(path), was_removed=path == removed):
                del self._known[path]
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                if (name := self._names.pop(path, None)) is not None:
                    await self._registry.deregister(name)
        for path, identity in found.items():
            if path not in self._known:
                task = self._tasks.spawn(self._introduce(path), f"plugin {path.name}")
                self._known[path] = (identity, task)

    def _scan(self, inotify: Inotify) -> dict[Path, Identity]:
        """Every socket there is now. Looks again after each new directory: things may have appeared in between."""
        while True:
            folders, found = self._walk()
            fresh = {place: inode for place, inode in folders.items() if self._watched.get(place) != inode}
            self._watched = folders
            if not fresh:
                return found
            for place in fresh:
                with suppress(OSError):  # it may be gone again
                    inotify.add_watch(place, _MASK)

    def _walk(self) -> tuple[dict[Path, int], dict[Path, Identity]]:
        folders: dict[Path, int] = {}
        found: dict[Path, Identity] = {}
        for folder, _, names in os.walk(self._directory):
            place = Path(folder)
            with suppress(OSError):
                folders[place] = place.stat().st_ino
            for name in names:
                with suppress(OSError):
                    status = (place / name).stat()
                    if stat.S_ISSOCK(status.st_mode) and not name.startswith("."):
                        found[place / name] = (status.st_ino, status.st_ctime_ns)
        return folders, found

    async def _introduce(self, path: Path) -> None:
        """Try until the plugin is registered; the pauses double."""
        pause_s = self._timings.backoff_s
        while not await self._try(path):
            await self._clock.sleep(pause_s)
            pause_s = min(2 * pause_s, self._timings.backoff_max_s)

    async def _try(self, path: Path) -> bool:
        authority = urllib.parse.quote(str(path), safe="")
        channel = open_channel(path, authority, self._timings.redial_s)
        try:
            await within(self._clock, self._timings.dial_s, channel.channel_ready())
            info = await self._ask(channel, path, "GetInfo", reg.InfoRequest(), reg.PluginInfo, self._timings.info_s)
            trouble = await self._register(path, info, authority)
            status = reg.RegistrationStatus(plugin_registered=not trouble, error=trouble)
            try:
                answer, limit_s = reg.RegistrationStatusResponse, self._timings.notify_s
                await self._ask(channel, path, "NotifyRegistrationStatus", status, answer, limit_s)
            except (CallFailed, TimeoutError):
                # A plugin that does not answer NotifyRegistrationStatus is deregistered.
                if not trouble:
                    self._names.pop(path, None)
                    await self._registry.deregister(info.name)
                return False
        except (CallFailed, TimeoutError):
            return False
        finally:
            await channel.close(None)
        return not trouble

    async def _register(self, path: Path, info: reg.PluginInfo, authority: str) -> str:
        """Empty when the plugin is in; otherwise what is wrong with it."""
        if info.type != "DevicePlugin":
            return f"RegisterPlugin error -- no handler registered for plugin type: {info.type} at socket {path}"
        versions = list(info.supported_versions)
        if _VERSION not in versions:
            listed = " ".join(versions)
            return (
                "RegisterPlugin error -- plugin validation failed with err: "
                f"manager version, {_VERSION}, is not among plugin supported versions [{listed}]"
            )
        if not is_extended_resource(info.name):
            return (
                "RegisterPlugin error -- plugin validation failed with err: "
                f'invalid name of device plugin socket: the ResourceName "{info.name}" is invalid'
            )
        try:
            await self._registry.connect(info.name, Path(info.endpoint or path), authority)
        except Rejected as error:
            return f"RegisterPlugin error -- plugin registration failed with err: {error}"
        self._names[path] = info.name
        return ""

    async def _ask(
        self, channel: grpc.aio.Channel, path: Path, method: str, request: Any, answer: Any, limit_s: float
    ) -> Any:
        call = channel.unary_unary(
            _SERVICE + method, request_serializer=type(request).SerializeToString, response_deserializer=bytes
        )

        async def ask() -> Any:
            return parse(answer, await call(request, timeout=limit_s))

        with self._calls.record(path.name, method, str(request).strip().replace("\n", " ")):
            try:
                return await within(self._clock, limit_s, ask())
            except grpc.aio.AioRpcError as error:
                raise CallFailed(error.code(), error.details() or "") from None


def _is_gone(known: Identity, found: Identity | None, *, was_removed: bool) -> bool:
    """Whether the file is no longer the one that was known.

    The inode number may be used again, so after a removal the time of change counts too; but only then, since that
    time also moves when the file's mode is changed.
    """
    if found is None or found[0] != known[0]:
        return True
    return was_removed and found != known
