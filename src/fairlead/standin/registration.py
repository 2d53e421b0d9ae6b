"""Registration: the rules for a name, the Register call step by step, and the map of connected plugins.

Owns the connections and the tasks that follow their lists. What a list means is the device table's business.
"""

import asyncio
import posixpath
import re
from collections.abc import Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Protocol

from fairlead.standin._gen import deviceplugin_v1beta1_pb2 as dp
from fairlead.standin.changes import Tasks
from fairlead.standin.devices import Device
from fairlead.standin.errors import CallFailed, Rejected
from fairlead.standin.plugin import Plugin
from fairlead.standin.setup import Setup

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_PREFIX = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


def is_extended_resource(name: str) -> bool:
    """The kubelet's rule for the name of a device plugin's resource."""
    if "/" not in name or "kubernetes.io/" in name or name.startswith("requests."):
        return False
    # The rule is checked on the name as a quota would spell it, so the added word counts.
    prefix, _, rest = f"requests.{name}".partition("/")
    return (
        len(prefix) <= 253
        and _PREFIX.fullmatch(prefix) is not None
        and len(rest) <= 63
        and _NAME.fullmatch(rest) is not None
    )


def join(directory: Path, endpoint: str) -> Path:
    """Join as Go does: an absolute endpoint lands under the directory, dots may lead out of it."""
    return Path(posixpath.normpath(f"{directory}/{endpoint}"))


class Listener(Protocol):
    """Follows what the plugins report."""

    def connected(self, plugin: Plugin, options: dp.DevicePluginOptions) -> None: ...
    def listed(self, resource: str, devices: Sequence[Device]) -> None: ...
    def disconnected(self, resource: str) -> None: ...


class Registry:
    def __init__(self, setup: Setup, listener: Listener, tasks: Tasks, restart: Callable[[], None]) -> None:
        self._setup = setup
        self._defects, self._faults, self._callbacks = setup.defects, setup.faults, setup.callbacks
        self._listener = listener
        self._tasks = tasks
        self._restart = restart
        self._clients: dict[str, Plugin] = {}
        self._open: set[Plugin] = set()

    async def register(self, request: dp.RegisterRequest) -> None:
        """The Register call. Returns when the plugin has answered for its options; raises Rejected."""
        name = request.resource_name
        with self._setup.calls.record(name, "Register", f"endpoint={request.endpoint} version={request.version}"):
            if self._callbacks.on_register is not None:
                await self._callbacks.on_register(request)
            chosen = self._faults.only in {"", name}
            if self._faults.restart_on_register and chosen:
                self._faults.restart_on_register = False
                self._restart()
                await asyncio.Event().wait()  # the caller hears nothing more from this kubelet
            if self._faults.refuse_register and chosen:
                raise Rejected(self._faults.refuse_register)
            if request.version != self._faults.version:
                raise Rejected(
                    f'requested API version "{request.version}" is not supported by kubelet. '
                    f'Supported version is ["{self._faults.version}"]'
                )
            if not is_extended_resource(name):
                raise Rejected(f'the ResourceName "{name}" is invalid')
            if self._faults.never_dial:
                return
            # The options in the request are never read: only the answer of the call counts.
            await self.connect(name, join(self._setup.plugin_dir, request.endpoint), "localhost")

    async def connect(self, name: str, path: Path, authority: str) -> None:
        """Dial the plugin and follow its lists. The newest one to come has the name."""
        plugin = Plugin(name, path, self._setup, authority)
        self._open.add(plugin)
        if self._defects.track_by_name:
            self._clients[name] = plugin
        try:
            await plugin.dial()
            try:
                options = await plugin.get_options()
            except CallFailed as error:
                raise Rejected(f"failed to get device plugin options: {error}") from None
        except BaseException:
            # The plugin registered under the name is forgotten; with the defect that may be an older, healthy one.
            self._forget(plugin)
            await self._close(plugin)
            raise
        if not self._defects.track_by_name:
            self._supersede(name, plugin)
        self._listener.connected(plugin, options)
        if not self._faults.never_stream:
            self._tasks.spawn(self._follow(plugin), f"list {name}")

    async def deregister(self, name: str) -> None:
        """The plugin watcher saw the plugin's socket go."""
        if (plugin := self._clients.get(name)) is not None:
            await self._disconnect(plugin)

    def plugins(self, name: str) -> list[Plugin]:
        return [plugin for plugin in self._open if plugin.resource == name]

    async def close(self) -> None:
        for plugin in tuple(self._open):
            await self._close(plugin)
        self._clients.clear()

    async def _follow(self, plugin: Plugin) -> None:
        async with aclosing(plugin.list_and_watch()) as messages:
            async for message in messages:
                if self._callbacks.on_list is not None:
                    self._callbacks.on_list(plugin.resource, message)
                if self._faults.read_delay_s:
                    await self._setup.clock.sleep(self._faults.read_delay_s)
                # A list that was still on its way when the plugin was deregistered does not count.
                if not plugin.superseded and not plugin.closed:
                    self._listener.listed(plugin.resource, [_device(device) for device in message.devices])
        if self._defects.track_by_name:
            # The defect: the client is looked up by name, so this may well be a newer one.
            if (found := self._clients.get(plugin.resource)) is not None:
                await self._disconnect(found)
        elif plugin.superseded:
            await self._close(plugin)
        else:
            await self._disconnect(plugin)

    async def _disconnect(self, plugin: Plugin) -> None:
        self._forget(plugin)
        self._listener.disconnected(plugin.resource)
        await self._close(plugin)

    def _supersede(self, name: str, plugin: Plugin) -> None:
        if (older := self._clients.get(name)) is not None:
            older.superseded = True
        self._clients[name] = plugin

    def _forget(self, plugin: Plugin) -> None:
        if self._defects.track_by_name or self._clients.get(plugin.resource) is plugin:
            self._clients.pop(plugin.resource, None)

    async def _close(self, plugin: Plugin) -> None:
        self._open.discard(plugin)
        await plugin.close()


def _device(device: dp.Device) -> Device:
    return Device(device.ID, device.health, tuple(node.ID for node in device.topology.nodes))
