"""The library: a device plugin in ten lines. A plugin says what devices exist; the engine does the rest.

Plain functions run on a thread of their own with a deadline: one may hang without harm. Coroutines run on the loop; one
that blocks stops everything, until the watchdog ends the process.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from fairlead.app.daemon import Daemon
from fairlead.app.start import serve
from fairlead.config.load import build
from fairlead.config.settings import overrides
from fairlead.config.spec import LogFormat
from fairlead.kit.clock import SystemClock
from fairlead.kit.owner import Owner
from fairlead.model.device import Device
from fairlead.model.edits import NO_EDITS, Edits, Grant
from fairlead.model.errors import FairleadError, UsageError
from fairlead.model.health import Cause, CauseKind
from fairlead.model.inventory import Findings, Links
from fairlead.model.ports import Backend, Clock
from fairlead.model.resource import Strategy
from fairlead.observe.journal import Journal, json_line, text_line, to_stderr

Discover = Callable[[], Iterable[Device] | Awaitable[Iterable[Device]]]
DEADLINE_S = 30.0


class Plugin:
    """A device plugin. Set `resource` and write `discover`; override the rest where you need it.

    Every method may be a plain function or a coroutine, except `edits`, which must be plain and quick.
    """

    resource: str = ""
    replicas: int = 1
    placement: Strategy = Strategy.ALIGNED

    def discover(self) -> Any:
        """All devices there are now, as `Device` objects. Called again and again; an error keeps the last answer."""
        raise UsageError(f"{type(self).__name__} has no discover(): return the devices there are")

    def links(self) -> Any:
        """How well devices are joined: `Links({(id, id): score})`. Called after discover."""
        return Links()

    def check(self, device: Device) -> Any:  # noqa: ARG002 - for those who override it
        """What is wrong with the device: a text, a `Cause`, or None when it is healthy."""
        return None

    def edits(self, grant: Grant) -> Edits:
        """What the container gets. By default the device nodes."""
        return Edits(nodes=tuple(node for device in grant.devices for node in device.nodes))

    def prepare(self, grant: Grant) -> Any:
        """Called before each start of a container that holds the grant. Raise to keep it from starting."""

    def wait_for(self) -> Any:
        """What must happen before the resource is registered: a text, or None when it may be registered now.

        Asked before each registration, that after a kubelet restart too, and again every second until it is None.
        """
        return None


def plugin(resource: str, *, replicas: int = 1) -> Callable[[Discover], Plugin]:
    """Makes a plugin of a function that returns devices."""

    def make(discover: Discover) -> Plugin:
        members = {"resource": resource, "replicas": replicas, "discover": lambda _self: discover()}
        made: Plugin = type(getattr(discover, "__name__", "plugin"), (Plugin,), members)()
        return made

    return make


def backend_of(given: Plugin, name: str, clock: Clock) -> Backend:
    """The plugin as the engine sees it: with only those ports that it really has."""
    kind = type(given)
    parts: list[type] = [_Adapter]
    if kind.check is not Plugin.check:
        parts.insert(0, _Checking)
    if kind.prepare is not Plugin.prepare:
        parts.insert(0, _Preparing)
    if kind.wait_for is not Plugin.wait_for:
        parts.insert(0, _Waiting)
    adapter = type("PluginBackend", tuple(parts), {})
    made: Backend = adapter(given, name, clock)
    return made


class _Adapter:
    one_at_a_time = True  # one thread serves all devices of a plugin

    def __init__(self, given: Plugin, name: str, clock: Clock) -> None:
        self.name = name
        self._plugin = given
        self._owner = Owner(name, clock)

    async def _call(self, function: Callable[..., Any], *args: Any) -> Any:
        if inspect.iscoroutinefunction(function):
            return await function(*args)
        if inspect.isasyncgenfunction(function):
            return [item async for item in function(*args)]
        # Listed on the thread: a generator does its work while it is read.
        answer = await self._owner.call(_listed(function), *args, deadline_s=DEADLINE_S, what=function.__name__)
        return await answer if inspect.isawaitable(answer) else answer

    async def discover(self) -> Findings:
        found = await self._call(self._plugin.discover)
        if isinstance(found, AsyncIterable):
            found = [item async for item in found]
        devices = tuple(found)
        links = await self._call(self._plugin.links) if type(self._plugin).links is not Plugin.links else Links()
        return Findings(devices, links)

    def edits(self, grant: Grant) -> Edits:
        return self._plugin.edits(grant) or NO_EDITS

    async def close(self) -> None:
        self._owner.close()


class _Checking(_Adapter):
    async def probe(self, device: Device) -> Cause | None:
        found = await self._call(self._plugin.check, device)
        if found is None or isinstance(found, Cause):
            return found
        if isinstance(found, str) and found:
            return Cause("check", CauseKind.NEEDS_RESET, found)
        raise UsageError(f"{self.name}: check gave {found!r:.80}; give None, what is wrong as a text, or a Cause")


class _Preparing(_Adapter):
    async def prepare(self, grant: Grant) -> None:
        try:
            await self._call(self._plugin.prepare, grant)
        except FairleadError:
            raise
        except Exception as error:
            raise FairleadError(f"{self.name}: prepare failed: {error}") from error


class _Waiting(_Adapter):
    async def wait_for(self) -> str:
        found = await self._call(self._plugin.wait_for)
        if found is None or isinstance(found, str):
            return found or ""
        raise UsageError(f"{self.name}: wait_for gave {found!r:.80}; give None, or what to wait for as a text")


def _listed(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        answer = function(*args)
        return list(answer) if inspect.isgenerator(answer) else answer

    return call


def make_daemon(
    plugins: Sequence[Plugin],
    *,
    plugin_dir: str | None = None,
    status_socket: str = "",
    instance: str | None = None,
    clock: Clock | None = None,
    journal: Journal | None = None,
) -> Daemon:
    """A daemon that serves some plugins, ready to run. Every `FAIRLEAD_` variable of the daemon is honoured."""
    clock = clock or SystemClock()
    if not plugins:
        raise UsageError("run() needs at least one plugin")
    backends: dict[str, Backend] = {}
    rules: list[dict[str, Any]] = []
    for number, given in enumerate(plugins):
        if not isinstance(given, Plugin):
            raise UsageError(
                f"{given!r} is not a fairlead.Plugin. Decorate a function with @fairlead.plugin, or subclass"
            )
        name = f"{type(given).__name__}-{number}" if len(plugins) > 1 else type(given).__name__
        backends[name] = backend_of(given, name, clock)
        rule = {"match": {"backend": name}, "resource": given.resource, "replicas": given.replicas}
        rules.append({**rule, "placement": str(given.placement)})
    raw: dict[str, Any] = {
        "backends": [{"kind": "library", "name": name} for name in backends],
        "rules": rules,
        "status": {"socket": ""},  # none, unless one is asked for
        "instance": instance or _instance_of(plugins),
    }
    flags = {"--plugin-dir": plugin_dir, "--status-socket": status_socket or None, "--instance": instance}
    loaded = build(raw, "the program", overrides(flags))
    form = json_line if loaded.config.log.format is LogFormat.JSON else text_line
    journal = journal or Journal(clock, to_stderr(form))
    description = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])
    return Daemon(loaded, backends=backends, clock=clock, journal=journal, description=description)


def _instance_of(plugins: Sequence[Plugin]) -> str:
    """A name from the first resource, so that two different plugins share a directory without further settings."""
    text = "".join(letter if letter.isalnum() else "-" for letter in plugins[0].resource.lower())
    return text[-32:].strip("-") or "plugin"


def run(*plugins: Plugin, plugin_dir: str | None = None, status_socket: str = "") -> None:
    """Serves the plugins until a signal says stop. Errors that can be explained end the program with one line."""
    try:
        serve(make_daemon(plugins, plugin_dir=plugin_dir, status_socket=status_socket))
    except FairleadError as error:
        raise SystemExit(f"fairlead: {error}") from None
