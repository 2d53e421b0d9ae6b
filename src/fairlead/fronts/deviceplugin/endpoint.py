"""One endpoint per resource: its server, its registration, its streams. Runs `lifecycle`; fails alone.

Owns the socket of the resource. Knows nothing of where devices come from.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from fairlead.engine.allocator import Allocator
from fairlead.fronts.deviceplugin import lifecycle as lc
from fairlead.fronts.deviceplugin.caller import Caller
from fairlead.fronts.deviceplugin.encoding import DeviceList, make_device_list, published, with_conditions
from fairlead.fronts.deviceplugin.inherited import InheritedConnections
from fairlead.fronts.deviceplugin.service import Service
from fairlead.fronts.sockets import DirectoryLock, Identity, SocketWatch, identity
from fairlead.kit.latest import Latest
from fairlead.model.errors import HostError
from fairlead.model.inventory import Conditions
from fairlead.model.names import ResourceName, socket_name
from fairlead.model.ports import Clock, Record
from fairlead.model.resource import Resource
from fairlead.wire import deviceplugin as dp
from fairlead.wire.rpc import Call, Channel, Method, RpcError, Server, Status
from fairlead.wire.unix import SocketPathError, listen

# The kubelet dials us back for up to 10 s inside Register; a shorter deadline would cut that dial short.
REGISTER_DEADLINE_S = 15.0
CONNECT_DEADLINE_S = 5.0
STOP_GRACE_S = 1.0
Handlers = Mapping[Method[Any, Any], Callable[..., Any]]
LOOK_AGAIN_S = 1.0  # a registration that has to wait asks again after this


class EndpointContext(Struct, frozen=True):
    """Where endpoints serve and whom they tell."""

    directory: Path  # where our sockets live
    kubelet_socket: Path | None  # None: the plugin watcher finds us
    watch: SocketWatch
    clock: Clock
    record: Record
    description: str = "fairlead"  # of this process, for a second server of a resource
    pace: lc.Pace = lc.PACE
    jitter: Callable[[], float] = lambda: os.urandom(1)[0] / 255  # `random` would load OpenSSL for it
    socket_name: Callable[[ResourceName], str] = socket_name
    instrument: Callable[[ResourceName, Handlers], Handlers] = lambda _name, handlers: handlers  # may time, or record
    registered: Callable[[dp.RegisterRequest, str], None] = lambda _request, _problem: None  # or why it was not


def record_shortage(record: Record, socket: Path, reason: str) -> None:
    """What a listener says: connections cannot be accepted, and why; or, without a reason, they can again."""
    if reason:
        hint = "connections wait until some are free. Raise the limit on open files of the daemon"
        record("out-of-descriptors", socket=str(socket), reason=f"{reason}: {hint}")
    else:
        record("descriptors-free", socket=str(socket))


class _Serving(Struct, frozen=True):
    """One generation of a server: closed and replaced as a whole."""

    server: Server
    device_lists: Latest[DeviceList]
    service: Service
    caller: Caller
    identity: Identity | None


class Endpoint:
    def __init__(
        self, resource: Resource, conditions: Conditions, allocator: Allocator, context: EndpointContext
    ) -> None:
        self.name = resource.name
        self.life = lc.Life(watched=context.kubelet_socket is None)
        self.since_s = context.clock.now()
        self.problem = ""
        self.waits_for = ""  # what keeps the registration back
        self.registrations: dict[lc.Signal, int] = {}  # those that the kubelet accepted
        self.device_list = make_device_list(resource, conditions)
        self._prepares = allocator.prepares(resource)
        self.socket = context.directory / context.socket_name(resource.name)
        self._allocator = allocator
        self._context = context
        # An event, and whether it still matters when its turn comes: the server or timer behind it may be gone.
        self._events: asyncio.Queue[tuple[lc.Event, Callable[[], bool]]] = asyncio.Queue()
        # Others may serve this directory too, but never the same resource: each would remove the other's socket.
        self._lock = DirectoryLock(context.directory, self.socket.name, f"{self.name} in {context.directory}")
        self._serving: _Serving | None = None
        self._called: Identity | None = None  # the kubelet's socket that this server called and that has not refused it
        self._register: asyncio.Task[None] | None = None
        self._timer: asyncio.Task[None] | None = None
        self._left = asyncio.Event()
        self._given = False  # a successor keeps our connections to the kubelet open
        self.inherited = InheritedConnections()

    @property
    def resource(self) -> Resource:
        return self.device_list.resource

    def publish(self, resource: Resource, conditions: Conditions) -> None:
        """Offers what is listed now. A list that the kubelet would drop is refused here, and the old slots stay."""
        device_list, problem = published(self.device_list, resource, conditions, self._context.clock.monotonic())
        if problem and problem != self.problem:
            self._context.record("list-refused", resource=self.name, reason=problem)
        if problem is not None:
            self.problem = problem
        self._set(device_list)
        if (prepares := self._allocator.prepares(resource)) != self._prepares:
            self._prepares = prepares
            self._post(lc.OptionsChanged())

    def update(self, conditions: Conditions) -> None:
        """The health of devices has changed, and nothing else."""
        self._set(with_conditions(self.device_list, conditions))

    def repeat(self) -> None:
        """Sends the list once more: the kubelet then writes its checkpoint, without pods that have ended."""
        self._set(replace(self.device_list, repeats=self.device_list.repeats + 1))

    def _set(self, device_list: DeviceList) -> None:
        before = self.device_list
        self.device_list = replace(device_list, repeats=max(device_list.repeats, before.repeats))
        if self._serving is not None and self.life.phase is not lc.Phase.SUPERSEDED:
            self._serving.device_lists.set(self.device_list)
        if device_list.frame != before.frame:
            slots, size = len(device_list.resource.slots), len(device_list.frame)
            self._context.record("published", resource=self.name, slots=slots, bytes=size)

    # --- Another daemon takes over --------------------------------------------------------------------------------

    async def supersede(self, timeout_s: float) -> bool:
        """Gives the resource up; calls that come are still answered. False if that took too long."""
        self._post(lc.Superseded())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._left.wait()
        return self._left.is_set()

    def give(self) -> list[int]:
        """Our connections to the kubelet, for the successor to keep open when we end."""
        own = self._serving.server.shared_descriptors() if self._serving is not None else []
        self._given = True
        return [*self.inherited.descriptors, *own]

    def resume(self) -> None:
        self._given = False
        self._post(lc.Resumed())

    async def _leave(self) -> None:
        self._disarm()
        await self._end_register()
        self._lock.release()
        self._left.set()

    async def run(self) -> None:
        """Until cancelled; then the socket is gone and every stream has ended. May be run again after a crash."""
        self.life = lc.Life(watched=self._context.kubelet_socket is None)
        self._events = asyncio.Queue()
        unfollow = []
        # The kubelet first: a restart removes our socket too, and one fresh socket answers both.
        if self._context.kubelet_socket is not None:
            unfollow.append(self._context.watch.follow(str(self._context.kubelet_socket), self._on_kubelet_socket))
        unfollow.append(self._context.watch.follow(self.socket.name, self._on_own_socket))
        try:
            await self._step(lc.Started())
            while True:
                event, matters = await self._events.get()
                if matters():
                    await self._step(event)
        finally:
            for leave in unfollow:
                leave()
            try:
                await self._step(lc.Stop())
            finally:
                self.inherited.close(given=self._given)
                self._lock.release()

    async def _step(self, event: lc.Event) -> None:
        before = self.life
        if isinstance(event, lc.Registered):
            self.registrations[before.signal] = self.registrations.get(before.signal, 0) + 1
        self.life, actions = lc.step(before, event, self._context.pace)
        if self.life.phase is not before.phase:
            self.since_s = self._context.clock.now()
            self._disarm()
            self._context.watch.hurry(self, self.life.phase in lc.UNCLAIMED)
            if not lc.is_old_news(self.life):
                self._context.record(
                    self.life.phase.value, resource=self.name, reason=self.life.reason, attempt=self.life.attempt
                )
        for action in actions:
            await self._do(action)

    async def _do(self, action: lc.Action) -> None:
        match action:
            case lc.Bind():
                await self._bind()
            case lc.Register():
                if self._register is not None:
                    self._register.cancel()
                self._register = asyncio.create_task(self._call_kubelet(), name=f"register {self.name}")
            case lc.Wait(seconds, jitter):
                # Half to full: endpoints that lost the kubelet together do not all come back in the same instant.
                self._arm(seconds * (0.5 + 0.5 * self._context.jitter()) if jitter else seconds)
            case lc.Leave():
                await self._leave()
            case lc.Close():
                await self._close()

    # --- The server -----------------------------------------------------------------------------------------------

    async def _bind(self) -> None:
        await self._close()
        device_lists = Latest(self.device_list)
        caller = Caller(self._on_stream)
        service = Service(device_lists, self._allocator, self._context.record, caller)
        handlers = dict(self._context.instrument(self.name, service.handlers()))
        if self.life.watched:
            handlers |= self._watched_handlers(caller)
        on_shortage = partial(record_shortage, self._context.record, self.socket)
        server = Server(handlers, on_error=self._on_error, on_shortage=on_shortage)
        try:
            self._lock.acquire(self._context.description)
            listening = listen(self.socket)
        except (OSError, SocketPathError, HostError) as error:
            self._lock.release()  # an endpoint that cannot serve keeps no other daemon from it
            self._post(lc.BindFailed(self._why_not(error)))
            return
        # Before the first await: what is cancelled from here on is closed as a whole.
        found = self._context.watch.expect(self.socket.name)
        serving = self._serving = _Serving(server, device_lists, service, caller, found)
        await server.start(listening)
        device_lists.set(self.device_list)  # something may have been published meanwhile
        # A kubelet that starts right now may have removed the file already: then no change of it would ever be seen.
        self._post(lc.Bound() if found is not None else lc.OwnSocketGone(), lambda: self._serving is serving)

    def _why_not(self, error: Exception) -> str:
        if isinstance(error, OSError) and error.strerror:
            return f"{self.socket}: {error.strerror}"
        return str(error)

    async def _end_register(self) -> None:
        if self._register is not None:
            self._register.cancel()
            await asyncio.gather(self._register, return_exceptions=True)
            self._register = None

    async def _close(self) -> None:
        self._disarm()
        self._left.clear()
        await self._end_register()
        serving, self._serving = self._serving, None
        self._called = None
        if serving is None:
            return
        if serving.identity is not None and serving.identity == identity(self.socket):
            with contextlib.suppress(OSError):
                self.socket.unlink()
            self._context.watch.expect(self.socket.name)
        if self._given:
            serving.server.abandon()
        serving.device_lists.close()  # every stream ends now; calls in flight get their grace
        await serving.server.stop(STOP_GRACE_S)

    def _on_stream(self, change: int) -> None:
        serving = self._serving  # None: a stream of a server that is being closed
        if serving is not None:
            self._post(lc.StreamOpened() if change > 0 else lc.StreamClosed(), lambda: self._serving is serving)

    def _on_error(self, path: str, error: BaseException) -> None:
        self._context.record("call-failed", resource=self.name, call=path, reason=f"{type(error).__name__}: {error}")

    # --- Registration ---------------------------------------------------------------------------------------------

    async def _call_kubelet(self) -> None:
        kubelet, serving = self._context.kubelet_socket, self._serving
        if kubelet is None or serving is None:
            return  # the plugin watcher calls us: see _watched_handlers
        while await self._must_wait():
            await self._context.clock.sleep(LOOK_AGAIN_S)
        request: dp.RegisterRequest | None = None
        self._called = identity(kubelet)  # before connecting: one that takes its place in between is another kubelet
        try:
            request = self._request(serving.service)
            channel = await Channel.connect(str(kubelet), timeout_s=CONNECT_DEADLINE_S)
            try:
                serving.caller.registering(channel.peer.pid)
                await channel.unary(dp.REGISTER, request, timeout_s=REGISTER_DEADLINE_S)
            finally:
                serving.caller.registered()
                await channel.close()
        except RpcError as error:
            answer: lc.Event = lc.RegisterFailed(_explain(error))
        except Exception as error:  # noqa: BLE001 - whatever it was, the next attempt must come
            answer = lc.RegisterFailed(f"registering failed: {type(error).__name__}: {error}")
        else:
            answer = lc.Registered()
        if request is not None:
            self._context.registered(request, answer.reason if isinstance(answer, lc.RegisterFailed) else "")
        mine = asyncio.current_task()
        if isinstance(answer, lc.RegisterFailed) and self._register is mine:
            self._called = None
        self._post(answer, lambda: self._register is mine)

    def _request(self, service: Service) -> dp.RegisterRequest:
        return dp.RegisterRequest(
            version=dp.VERSION, endpoint=self.socket.name, resource_name=self.name, options=service.options()
        )

    async def _must_wait(self) -> bool:
        """Whether a backend says that it is not yet time for the kubelet to know us."""
        try:
            reason = await self._allocator.wait_for(self.resource)
        except Exception as error:  # noqa: BLE001 - a backend may be third-party code
            reason = f"{type(error).__name__}: {error}"
        if reason and reason != self.waits_for:
            self._context.record("waiting", resource=self.name, reason=reason)
        self.waits_for = reason
        return bool(reason)

    def _watched_handlers(self, caller: Caller) -> dict[Method[Any, Any], Callable[..., Any]]:
        """What the plugin watcher asks: who are you, and did it work."""
        from fairlead.wire import pluginregistration as pr  # noqa: PLC0415 - the usual way to register needs it not

        async def info(_request: pr.InfoRequest, call: Call) -> pr.PluginInfo:
            if await self._must_wait():  # the kubelet asks again, each time a little later
                raise RpcError(Status.UNAVAILABLE, self.waits_for)
            caller.registering(call.peer.pid)
            return pr.PluginInfo(
                type="DevicePlugin", name=self.name, endpoint=str(self.socket), supported_versions=(dp.VERSION,)
            )

        def notified(status: pr.RegistrationStatus, _call: Call) -> pr.RegistrationStatusResponse:
            caller.registered()
            problem = "" if status.plugin_registered else status.error or "the kubelet did not say why"
            if self._serving is not None:
                self._context.registered(self._request(self._serving.service), problem)
            self._post(lc.RegisterFailed(problem) if problem else lc.Registered())
            return pr.RegistrationStatusResponse()

        return {pr.GET_INFO: info, pr.NOTIFY_REGISTRATION_STATUS: notified}

    # --- Signals and the timer ------------------------------------------------------------------------------------

    def _post(self, event: lc.Event, matters: Callable[[], bool] = lambda: True) -> None:
        self._events.put_nowait((event, matters))

    def _on_own_socket(self, now: Identity | None) -> None:
        serving = self._serving
        if serving is not None and now != serving.identity:
            self._post(lc.OwnSocketGone(), lambda: self._serving is serving)

    def _on_kubelet_socket(self, now: Identity | None) -> None:
        if now is not None and now != self._called:  # a retry may be faster than the notice
            serving = self._serving
            intact = serving is not None and serving.identity == identity(self.socket)
            self._post(lc.KubeletReplaced(own_intact=intact))

    def _arm(self, seconds: float) -> None:
        self._disarm()
        self._timer = asyncio.create_task(self._fire(seconds), name=f"timer {self.name}")

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _fire(self, seconds: float) -> None:
        mine = asyncio.current_task()
        await self._context.clock.sleep(seconds)
        self._post(lc.TimerFired(), lambda: self._timer is mine)


def _explain(error: RpcError) -> str:
    if error.status is Status.UNAVAILABLE:
        return f"waiting for the kubelet: {error.message}"
    return f"the kubelet refused: {error.message} ({error.status.name.lower()})"
