"""The rig of a run: the stand-in kubelet, the plugin's process, a private directory, and all that was seen so far.

Owns waiting, and setting things right between scenarios. Judges nothing: that is for the scenarios.
"""

import asyncio
import shutil
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Self

from fairlead.standin._gen import deviceplugin_v1beta1_pb2 as dp
from fairlead.standin.clock import SystemClock, Timings, running
from fairlead.standin.conformance.client import Client, accepts, connect
from fairlead.standin.conformance.exits import Exit
from fairlead.standin.conformance.observations import Hooks, Listed, Registration, Timeouts, Watched
from fairlead.standin.conformance.pluginprocess import Command, PluginProcess
from fairlead.standin.conformance.scenario import Failed, Scenario, Skipped
from fairlead.standin.conformance.timing import Deadline, LoadAwareTimer
from fairlead.standin.devices import HEALTHY
from fairlead.standin.faults import Faults
from fairlead.standin.kubelet import Kubelet
from fairlead.standin.pods import Limits, Pod
from fairlead.standin.registration import join

MAX_EXITS = 3  # in one wait; more is a crash loop
FOREVER_S = 86_400.0  # the wait has a limit of its own
NEIGHBOUR = "neighbour"  # a file and a directory of another owner, in the plugin directory


class LoadAwareClock(SystemClock):
    """For the kubelet: its dial, too, waits longer while the machine has no core for the plugin."""

    def __init__(self, timer: LoadAwareTimer) -> None:
        self._timer = timer

    async def sleep(self, delay_s: float) -> None:
        await self._timer.rest(delay_s)


class PluginNeverRegistered(Exception):
    """There is nothing to play with: it never registered, or never sent a list."""


class Rig:
    def __init__(
        self, command: Command, timeouts: Timeouts, resource: str | None = None, hooks: Hooks | None = None
    ) -> None:
        self.timeouts = timeouts
        self.hooks = hooks or Hooks()
        self.resource = resource or ""
        self.asked_for = resource
        self.registrations: list[Registration] = []
        self.lists: list[Listed] = []
        self.samples: list[tuple[str, ...]] = []  # ids of lists on streams of our own, in their order
        self.exits: list[Exit] = []  # ends that were not asked for
        self.stops: list[Exit] = []  # ends that SIGTERM asked for
        self.resources: list[str] = []  # all that registered
        self.playing: Scenario | None = None
        self.provoked = False  # this process has met what no kubelet does
        self.well: set[str] = set()  # healthy before anything was broken
        self._watched: Watched | None = None
        self.timer = LoadAwareTimer(lambda: self.plugin.pids)
        self._root = Path(tempfile.mkdtemp(prefix="fl-", dir="/tmp"))  # short: sockets live in it
        self.kubelet = self._make_kubelet()
        extra = {
            "FAIRLEAD_STATUS_SOCKET": str(self._root / "fairlead.sock"),
            "FAIRLEAD_POD_RESOURCES": str(self.kubelet.podresources_socket),
        }
        placed = replace(command, variables={**extra, **command.variables})
        self.plugin = PluginProcess(placed, self.kubelet.plugin_dir, timeouts.delay_s, self._ended)
        self._wanted = False  # the plugin is to run; if it ends it is started again, as a DaemonSet does
        self._pods = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.plugin.close()
        await self.kubelet.stop()
        shutil.rmtree(self._root, ignore_errors=True)

    # What is known.

    @property
    def path(self) -> Path:
        """The plugin's socket, as last registered."""
        return self.registrations[-1].path

    @property
    def ids(self) -> list[str]:
        """The ids of the last list, each once."""
        return list(dict.fromkeys(self.lists[-1].ids)) if self.lists else []

    @property
    def healthy(self) -> list[str]:
        """The ids that a kubelet would hand out."""
        bad = {device.ID for device in self.lists[-1].message.devices if device.health != HEALTHY}
        return [i for i in self.ids if i not in bad]

    @property
    def streaming(self) -> bool:
        """The kubelet follows the plugin's lists and has got one."""
        return self.streams(self.resource)

    def streams(self, resource: str) -> bool:
        return any(
            call.method == "ListAndWatch" and call.seconds is None and call.summary
            for call in self.kubelet.calls
            if call.resource == resource
        )

    def called(self, method: str) -> int:
        return sum(call.method == method and call.resource == self.resource for call in self.kubelet.calls)

    def need(self, count: int) -> list[str]:
        """The healthy ids, or a reason to leave the scenario out."""
        there = len(self.healthy)
        if there < count:
            devices, verb = "devices" if count > 1 else "device", "is" if there == 1 else "are"
            raise Skipped(f"needs {count} healthy {devices}, and there {verb} {there}")
        return self.healthy

    # Its course.

    async def open(self) -> None:
        """Start everything and wait for the first list."""
        self._make_neighbour()
        await self.kubelet.start()
        try:
            await self.start_plugin()
            await self.until(lambda: self.registrations, "it never called Register", exits=1)
            await self.until(lambda: self.streaming, "it registered, but the kubelet never got a list from it", exits=1)
        except Failed as broken:
            words = self.plugin.last_words
            quoted = f"its last words: {words}" if words else "it printed nothing"
            raise PluginNeverRegistered(f"{broken}{self._others()}; {quoted}") from None

    def _others(self) -> str:
        names = sorted({call.resource for call in self.kubelet.calls if call.method == "Register"} - {self.resource})
        refused = [call.error for call in self.kubelet.calls if call.method == "Register" and call.error]
        return (f"; it registered {', '.join(names)}" if names else "") + (
            f"; refused: {refused[-1]}" if refused else ""
        )

    async def ready(self) -> None:
        """Between scenarios: no fault, no pod, the kubelet up, the plugin streaming."""
        for switch in fields(Faults):
            setattr(self.kubelet.faults, switch.name, switch.default)
        for pod in self.kubelet.pods:
            await self.kubelet.delete_pod(pod)
        if self.kubelet.is_running and self.plugin.alive and self.streaming:
            return
        if not self.kubelet.is_running:
            await self.kubelet.start()
        if not self.plugin.alive:
            await self.start_plugin()
        try:
            await self.until(lambda: self.streaming, "it did not register")
        except Failed:
            await self.renew()

    async def begin(self, scenario: Scenario) -> None:
        """What is played next. A process that met what no kubelet does is replaced before a kubelet meets it again."""
        await self.ready()
        if self.provoked and not scenario.foreign:
            await self.stop_plugin(signal.SIGTERM)
            await self.ready()
        self.note(scenario)

    def note(self, scenario: Scenario) -> None:
        self.playing = scenario
        self.provoked = self.provoked or scenario.foreign
        self.plugin.note(f"{scenario.id} {scenario.name}")

    async def renew(self) -> None:
        """A fresh kubelet and a fresh process, so that one failure does not cause the next."""
        await self.stop_plugin(signal.SIGKILL)
        await self.kubelet.stop()
        if self.kubelet.panic is not None:
            self.kubelet = self._make_kubelet()
        await self.kubelet.start()
        await self.start_plugin()
        await self.until(lambda: self.streaming, "started afresh, it did not register")

    async def start_plugin(self) -> None:
        self._wanted = True
        await self._start()

    async def _start(self) -> float:
        self.provoked = self.playing is not None and self.playing.foreign
        return await self.plugin.start()

    async def stop_plugin(self, number: signal.Signals) -> str:
        """End it. What was wrong with its end after the signal, in words."""
        self._wanted = False
        if not self.plugin.alive:
            return ""
        clock = Deadline(self.timer, self.timeouts.end_s, self.timeouts.late)
        self.plugin.send(number)
        try:
            async with running(self.plugin.wait()) as (end,):
                if not await clock.wait(end):
                    return f"it did not end, {clock.never}"
                if number is signal.SIGTERM:
                    self.stops.append(end.result())
                return f"it did not end in time: {clock.took}" if clock.is_late else ""
        finally:
            await self.plugin.kill()

    # Waiting.

    async def until(
        self, condition: Callable[[], Any], what: str, limit_s: float | None = None, exits: int = MAX_EXITS
    ) -> Any:
        """Until the condition is true; `what` went wrong if it never is.

        A plugin that ends meanwhile is started again: a node does that too. It is remembered.
        """
        limit_s = self.timeouts.wait_s if limit_s is None else limit_s
        clock = Deadline(self.timer, limit_s, self.timeouts.late)
        seen = len(self.exits)
        while True:
            ended = self.plugin.wait() if self._wanted else asyncio.Event().wait()
            async with running(self.kubelet.wait_for(condition, FOREVER_S), ended) as (watch, end):
                if not await clock.wait(watch, end):
                    raise Failed(f"{what}, {clock.never}")
                if watch.done():
                    found = watch.result()
                    if clock.is_late:
                        raise Failed(f"{what} in time: {clock.took}")
                    return found
            if len(self.exits) - seen >= exits:
                raise Failed(f"{what}: it ended with {self.exits[-1]}")
            clock.give(await self._start())

    async def until_soon(self, condition: Callable[[], Any], what: str, limit_s: float | None = None) -> None:
        """As `until`, for what the kubelet does not see: the condition is checked every 2 ms."""
        limit_s = self.timeouts.wait_s if limit_s is None else limit_s
        span = self.timer.begin(limit_s)
        while not condition():
            if not span.left_s():
                raise Failed(f"{what}, not in {limit_s:g} s")
            await asyncio.sleep(0.002)

    async def rest(self, seconds: float) -> None:
        """Waits without doing anything. A plugin that ends meanwhile is not started again."""
        await self.timer.rest(seconds)

    async def settle(self, after: str) -> None:
        """After streams of our own ended: a plugin may take that for the kubelet's end, and registers again."""
        await self.rest(self.timeouts.quiet_s)
        await self.until(lambda: self.streaming, f"{after}: it was not registered")

    # What scenarios ask for.

    @asynccontextmanager
    async def client(self, **how: Any) -> AsyncIterator[Client]:
        async with connect(self.path, self.timeouts.call_s, self.timer, self.timeouts.late, **how) as client:
            yield client

    async def unharmed(self, after: str) -> None:
        """The plugin still answers, on a connection of its own."""
        span = self.timer.begin(self.timeouts.wait_s)
        while True:
            asked = len(self.registrations)
            async with self.client() as client:
                answer = await client.ask("GetDevicePluginOptions")
            if answer.ok and self.plugin.alive:
                return
            try:
                ending = await self.timer.within(min(1.0, self.timeouts.call_s), self.plugin.wait())
            except TimeoutError:
                if len(self.registrations) == asked or not span.left_s():
                    raise Failed(f"{after}: it no longer answers ({answer})") from None
                continue  # it has moved to another socket, where it may answer
            raise Failed(f"{after}: it {'crashed' if ending.crashed else 'ended'} with {ending}")

    async def run_pod(self, count: int) -> Pod:
        """A pod that asks for so many devices, and must run."""
        return await self.run_containers(f"asks for {count}", {"main": {self.resource: count}})

    async def run_containers(
        self, asks: str, containers: dict[str, Limits], init: dict[str, Limits] | None = None
    ) -> Pod:
        """A pod with these containers, that must run. `asks` says in words what it wants."""
        while True:
            self._pods += 1
            since = len(self.registrations)
            pod = await self.kubelet.run_pod(f"pod-{self._pods}", containers, init=init)
            apps = list(pod.of_kind("app"))
            if pod.phase == "Running" and all(one.state == "running" for one in apps):
                return pod
            said = pod.message or "; ".join(one.message for one in pod.containers.values() if one.message)
            what = f"a pod that {asks} does not run: {said}"
            if self.streaming and len(self.registrations) == since:
                raise Failed(what)
            # It came while the plugin was registering once more, as after a restart it may: that is not the question.
            await self.kubelet.delete_pod(pod)
            await self.registered_again(what, since - 1)

    async def registered_again(self, what: str, since: int, limit_s: float | None = None) -> None:
        """A Register after the first `since` ones, and a list after it."""
        await self.until(lambda: len(self.registrations) > since and self.streaming, what, limit_s)

    async def restart_kubelet(self, after: str = "the kubelet restarted", **how: bool) -> None:
        """A kubelet restart, after which the plugin must register."""
        since = len(self.registrations)
        await self.kubelet.restart(**how)
        await self.registered_again(f"{after}: it did not register again", since)

    async def restart_plugin(self, number: signal.Signals, after: str = "it was started again") -> None:
        """The plugin is stopped and started, and must register."""
        await self.stop_plugin(number)
        since = len(self.registrations)
        await self.start_plugin()
        await self.registered_again(f"{after}: it did not register", since)

    async def watch(self) -> Watched:
        """A kubelet restart, and then nothing for a long while. Played once; several scenarios look at it."""
        if self._watched is not None:
            return self._watched
        await self.restart_kubelet()
        began_s, exits, streams = time.monotonic(), len(self.exits), self.called("ListAndWatch")
        first, ids = len(self.lists) - 1, tuple(self.ids)
        async with running(self.plugin.wait()) as (end,):
            await self.timer.begin(self.timeouts.watch_s).wait(end)
        ended = self.exits[exits:]
        self._watched = Watched(
            seconds=self.timeouts.watch_s,
            ended_after_s=time.monotonic() - began_s if ended else None,
            ending=f"{'crashed' if ended[0].crashed else 'ended'} with {ended[0]}" if ended else "",
            streaming=self.streaming and self.called("ListAndWatch") == streams,
            first=first,
            last=len(self.lists),
            ids=ids,
        )
        return self._watched

    async def hook(self, script: str, flag: str) -> None:
        if not script:
            raise Skipped(f"no command was given with {flag}")
        if wrong := await self.plugin.run_hook(script, self.timeouts.wait_s):
            raise Skipped(f"the command of {flag} went wrong: {wrong}")

    def sockets(self, besides: Collection[tuple[str, int]] = ()) -> set[tuple[str, int]]:
        """Name and birth of each plugin's socket. The number of an inode is soon used again; a time is not."""
        found = (path for path in self.kubelet.plugin_dir.iterdir() if path.name != "kubelet.sock")
        return {(path.name, path.stat().st_ctime_ns) for path in found if path.is_socket()} - set(besides)

    def neighbours(self) -> list[Path]:
        """What others keep in the directory, and must find there again."""
        return [self.kubelet.plugin_dir / f"{NEIGHBOUR}.txt", self.kubelet.plugin_dir / NEIGHBOUR]

    # Inside.

    def _make_kubelet(self) -> Kubelet:
        # A plugin that served too early for a restarting kubelet learns of it when this dial fails. A true kubelet
        # dials for 10 s; here the dial must leave time for what the plugin does next.
        timings = Timings(dial_s=self.timeouts.wait_s / 4, redial_s=0.1)
        kubelet = Kubelet(self._root / "k", clock=LoadAwareClock(self.timer), timings=timings, rate_limit=False)
        kubelet.callbacks.on_register = self._heard_register
        kubelet.callbacks.on_list = self._heard_list
        return kubelet

    def _make_neighbour(self) -> None:
        file, directory = self.neighbours()
        directory.mkdir(parents=True, exist_ok=True)
        file.write_text("not yours\n")

    async def _heard_register(self, request: dp.RegisterRequest) -> None:
        if self.asked_for is None and not self.registrations:
            self.resource = request.resource_name
        if request.resource_name not in self.resources:
            self.resources.append(request.resource_name)
        if request.resource_name == self.resource:
            path = join(self.kubelet.plugin_dir, request.endpoint)
            self.registrations.append(Registration(request, path, accepts(path)))

    def _heard_list(self, resource: str, message: dp.ListAndWatchResponse) -> None:
        if resource == self.resource:
            self.lists.append(Listed(self.called("ListAndWatch"), message, time.monotonic()))

    def _ended(self, ending: Exit) -> None:
        during = self.playing.id if self.playing is not None else ""
        self.exits.append(replace(ending, during=during, provoked=self.provoked))
