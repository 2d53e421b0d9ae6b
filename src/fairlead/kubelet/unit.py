"""One unit per resource: its server, its registration, its streams. Runs `lifecycle`; fails alone.

Owns the socket of the resource. Knows nothing of where devices come from.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from fairlead.kubelet import lifecycle as lc
from fairlead.kubelet.caller import Caller
from fairlead.kubelet.service import Offer, Outfit, Record, Service, make_offer
from fairlead.kubelet.sockets import DirectoryLock, Identity, SocketWatch, identity
from fairlead.model.errors import HostError, Oversize
from fairlead.model.latest import Latest
from fairlead.model.names import ResourceName, socket_name
from fairlead.model.ports import Clock
from fairlead.model.resource import Resource, Slot
from fairlead.wire import deviceplugin as dp
from fairlead.wire.rpc import Call, Channel, Method, RpcError, Server, Status
from fairlead.wire.unix import SocketPathError, listen

# The kubelet dials us back for up to 10 s inside Register; a shorter deadline would cut that dial short.
REGISTER_DEADLINE_S = 15.0
CONNECT_DEADLINE_S = 5.0
STOP_GRACE_S = 1.0
LOOK_AGAIN_S = 1.0  # a registration that has to wait asks again after this


class Place(Struct, frozen=True):
    """Where units serve and whom they tell."""

    directory: Path  # where our sockets live
    kubelet_socket: Path | None  # None: the plugin watcher finds us
    watch: SocketWatch
    clock: Clock
    record: Record
    whose: str = "fairlead"  # what a second server of a resource is told
    pace: lc.Pace = lc.PACE
    jitter: Callable[[], float] = lambda: os.urandom(1)[0] / 255  # `random` would load OpenSSL for it
    socket_name: Callable[[ResourceName], str] = socket_name


class Shortage:
    """What a listener says: connections cannot be accepted, and why; or, without a reason, they can again."""

    def __init__(self, record: Record, socket: Path) -> None:
        self._record = record
        self._socket = str(socket)

    def __call__(self, reason: str) -> None:
        if reason:
            hint = "connections wait until some are free. Raise the limit on open files of the daemon"
            self._record("out-of-descriptors", socket=self._socket, reason=f"{reason}: {hint}")
        else:
            self._record("descriptors-free", socket=self._socket)


class _Serving(Struct, frozen=True):
    """One generation of a server: closed and replaced as a whole."""

    server: Server
    offers: Latest[Offer]
    service: Service
    caller: Caller
    identity: Identity | None


class Unit:
    def __init__(self, resource: Resource, outfit: Outfit, place: Place) -> None:
        self.name = resource.name
        self.life = lc.Life(watched=place.kubelet_socket is None)
        self.since_s = place.clock.now()
        self.problem = ""
        self.waits_for = ""  # what keeps the registration back
        self.offer = make_offer(resource)
        self.socket = place.directory / place.socket_name(resource.name)
        self._outfit = outfit
        self._place = place
        # An event, and whether it still matters when its turn comes: the server or timer behind it may be gone.
        self._events: asyncio.Queue[tuple[lc.Event, Callable[[], bool]]] = asyncio.Queue()
        # Others may serve this directory too, but never the same resource: each would remove the other's socket.
        self._lock = DirectoryLock(place.directory, self.socket.name, f"{self.name} in {place.directory}")
        self._serving: _Serving | None = None
        self._register: asyncio.Task[None] | None = None
        self._timer: asyncio.Task[None] | None = None

    @property
    def resource(self) -> Resource:
        return self.offer.resource

    def publish(self, resource: Resource) -> None:
        """Offers a new snapshot. One that the kubelet would drop is refused here; the old one stays."""
        before = self.offer
        try:
            offer = make_offer(resource, before)
        except Oversize as error:
            if self.problem != str(error):
                self.problem = str(error)
                self._place.record("list-refused", resource=self.name, reason=str(error))
            # The old slots, but with what is known now: a fault must not hide behind a list that is too long.
            offer = make_offer(_same_slots(before.resource, resource, self._place.clock.monotonic()), before)
        else:
            self.problem = ""
        self._offer(replace(offer, repeats=before.repeats))
        if offer.frame != before.frame:
            self._place.record("published", resource=self.name, slots=len(offer.resource.slots), bytes=len(offer.frame))
        if offer.resource.prepare != before.resource.prepare:
            self._post(lc.OptionsChanged())

    def repeat(self) -> None:
        """Sends the list once more: the kubelet then writes its checkpoint, without pods that have ended."""
        self._offer(replace(self.offer, repeats=self.offer.repeats + 1))

    def _offer(self, offer: Offer) -> None:
        self.offer = offer
        if self._serving is not None:
            self._serving.offers.set(offer)

    async def run(self) -> None:
        """Until cancelled; then the socket is gone and every stream has ended. May be run again after a crash."""
        self.life = lc.Life(watched=self._place.kubelet_socket is None)
        self._events = asyncio.Queue()
        unfollow = []
        # The kubelet first: a restart removes our socket too, and one fresh socket answers both.
        if self._place.kubelet_socket is not None:
            unfollow.append(self._place.watch.follow(str(self._place.kubelet_socket), self._on_kubelet_socket))
        unfollow.append(self._place.watch.follow(self.socket.name, self._on_own_socket))
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
                self._lock.release()

    async def _step(self, event: lc.Event) -> None:
        before = self.life
        self.life, actions = lc.step(before, event, self._place.pace)
        if self.life.phase is not before.phase:
            self.since_s = self._place.clock.now()
            self._disarm()
            self._place.watch.hurry(self, self.life.phase in lc.UNCLAIMED)
            if not _is_old_news(self.life):
                self._place.record(
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
                # Half to full: units that lost the kubelet together do not all come back in the same instant.
                self._arm(seconds * (0.5 + 0.5 * self._place.jitter()) if jitter else seconds)
            case lc.Close():
                await self._close()

    # --- The server -----------------------------------------------------------------------------------------------

    async def _bind(self) -> None:
        await self._close()
        offers = Latest(self.offer)
        caller = Caller(self._on_stream)
        service = Service(offers, self._outfit, self._place.record, caller)
        handlers = dict(service.handlers())
        if self.life.watched:
            handlers |= self._watched_handlers(caller)
        server = Server(handlers, on_error=self._on_error, on_shortage=Shortage(self._place.record, self.socket))
        try:
            self._lock.acquire(self._place.whose)
            listening = listen(self.socket)
        except (OSError, SocketPathError, HostError) as error:
            self._lock.release()  # who cannot serve keeps nobody else from it
            self._post(lc.BindFailed(self._why_not(error)))
            return
        # Before the first await: what is cancelled from here on is closed as a whole.
        self._serving = _Serving(server, offers, service, caller, self._place.watch.expect(self.socket.name))
        await server.start(listening)
        offers.set(self.offer)  # something may have been published meanwhile
        self._post(lc.Bound())

    def _why_not(self, error: Exception) -> str:
        if isinstance(error, OSError) and error.strerror:
            return f"{self.socket}: {error.strerror}"
        return str(error)

    async def _close(self) -> None:
        self._disarm()
        if self._register is not None:
            self._register.cancel()
            await asyncio.gather(self._register, return_exceptions=True)
            self._register = None
        serving, self._serving = self._serving, None
        if serving is None:
            return
        if serving.identity is not None and serving.identity == identity(self.socket):
            with contextlib.suppress(OSError):
                self.socket.unlink()
            self._place.watch.expect(self.socket.name)
        serving.offers.close()  # every stream ends now; calls in flight get their grace
        await serving.server.stop(STOP_GRACE_S)

    def _on_stream(self, change: int) -> None:
        serving = self._serving  # None: a stream of a server that is being closed
        if serving is not None:
            self._post(lc.StreamOpened() if change > 0 else lc.StreamClosed(), lambda: self._serving is serving)

    def _on_error(self, path: str, error: BaseException) -> None:
        self._place.record("call-failed", resource=self.name, call=path, reason=f"{type(error).__name__}: {error}")

    # --- Registration ---------------------------------------------------------------------------------------------

    async def _call_kubelet(self) -> None:
        kubelet, serving = self._place.kubelet_socket, self._serving
        if kubelet is None or serving is None:
            return  # the plugin watcher calls us: see _watched_handlers
        while await self._must_wait():
            await self._place.clock.sleep(LOOK_AGAIN_S)
        try:
            channel = await Channel.connect(str(kubelet), timeout_s=CONNECT_DEADLINE_S)
            try:
                request = dp.RegisterRequest(
                    version=dp.VERSION,
                    endpoint=self.socket.name,
                    resource_name=self.name,
                    options=serving.service.options(),
                )
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
        mine = asyncio.current_task()
        self._post(answer, lambda: self._register is mine)

    async def _must_wait(self) -> bool:
        """Whether a backend says that it is not yet time for the kubelet to know us."""
        try:
            reason = await self._outfit.wait_for(self.resource)
        except Exception as error:  # noqa: BLE001 - a backend may be anybody's code
            reason = f"{type(error).__name__}: {error}"
        if reason and reason != self.waits_for:
            self._place.record("waiting", resource=self.name, reason=reason)
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
            if status.plugin_registered:
                self._post(lc.Registered())
            else:
                self._post(lc.RegisterFailed(status.error or "the kubelet did not say why"))
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
        if now is not None:
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
        await self._place.clock.sleep(seconds)
        self._post(lc.TimerFired(), lambda: self._timer is mine)


def _same_slots(before: Resource, now: Resource, now_s: float) -> Resource:
    """The slots of an earlier resource over the inventory of a later one. Those whose device left are retired."""
    slots = tuple(
        slot if slot.retired_s is not None or slot.device in now.inventory.by_id else Slot(slot.id, slot.device, now_s)
        for slot in before.slots
    )
    return replace(now, slots=slots)


def _is_old_news(life: lc.Life) -> bool:
    """A kubelet that stays away is told of less and less often: at the attempts 1, 2, 4, 8 and so on."""
    return life.phase in {lc.Phase.BACKOFF, lc.Phase.REGISTER} and life.attempt & (life.attempt - 1) != 0


def _explain(error: RpcError) -> str:
    if error.status is Status.UNAVAILABLE:
        return f"waiting for the kubelet: {error.message}"
    return f"the kubelet refused: {error.message} ({error.status.name.lower()})"
