"""The registration life cycle of one resource, as a pure state machine.

Owns the order of things: serve first, then register, then expect a stream, and begin again when any of three
independent signals says that the kubelet has lost us: kubelet.sock is another file, our own socket is gone, or
no stream is open. Knows no sockets and reads no clock; `unit` runs it.

    BIND -> REGISTER -> AWAIT_STREAM -> STREAMING
    refused, unreachable, no stream in time, last stream closed -> BACKOFF -> REGISTER
    own socket gone, kubelet.sock replaced, in any phase          -> BIND
    kubelet.sock replaced while a fresh socket of ours waits      -> REGISTER
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace


class Phase(StrEnum):
    BIND = "bind"
    REGISTER = "register"
    AWAIT_STREAM = "await-stream"
    STREAMING = "streaming"
    BACKOFF = "backoff"
    STOPPED = "stopped"


# Phases in which we serve, the kubelet has not got us, and it may come back any moment.
UNCLAIMED = frozenset({Phase.REGISTER, Phase.AWAIT_STREAM, Phase.BACKOFF})


class Retry(StrEnum):
    """What a back-off leads to."""

    BIND = "bind"
    REGISTER = "register"


class Life(Struct, frozen=True):
    phase: Phase = Phase.BIND
    attempt: int = 0  # failures since the last stream that lasted
    streams: int = 0  # streams of the kubelet that are open on the present server
    reason: str = ""  # why we are here, for people
    retry: Retry = Retry.REGISTER  # where BACKOFF leads
    watched: bool = False  # the kubelet's plugin watcher finds our socket; registering again means a fresh socket


# --- What happens -----------------------------------------------------------------------------------------------


class Event(Struct, frozen=True):
    pass


class Started(Event, frozen=True):
    pass


class Bound(Event, frozen=True):
    """The server answers on its socket."""


class BindFailed(Event, frozen=True):
    reason: str


class Registered(Event, frozen=True):
    """The kubelet accepted us. It has called back already; it opens the stream a moment later."""


class RegisterFailed(Event, frozen=True):
    reason: str


class StreamOpened(Event, frozen=True):
    pass


class StreamClosed(Event, frozen=True):
    pass


class TimerFired(Event, frozen=True):
    pass


class OwnSocketGone(Event, frozen=True):
    """Our socket file was removed, or another one stands in its place."""


class KubeletReplaced(Event, frozen=True):
    """kubelet.sock appeared, or is another file than before. A starting kubelet has removed our socket before that.

    Unless we have made a fresh one since: `own_intact`.
    """

    own_intact: bool = False


class OptionsChanged(Event, frozen=True):
    """What we tell of ourselves has changed. The kubelet asks for it once, while we register."""


class Stop(Event, frozen=True):
    pass


# --- What to do about it ----------------------------------------------------------------------------------------


class Action(Struct, frozen=True):
    pass


class Bind(Action, frozen=True):
    """End the old server and every stream of it, then serve on a fresh socket. Ends a pending Register."""


class Register(Action, frozen=True):
    """Call the kubelet, on a connection of its own. An earlier call that is still out ends.

    Never blocks our own server: the kubelet calls back inside. Nothing to do where the plugin watcher calls us.
    """


class Wait(Action, frozen=True):
    """Arm the one timer; a later Wait replaces it, and leaving the phase disarms it."""

    seconds: float
    jitter: bool = False


class Close(Action, frozen=True):
    """End the server, its streams and a pending Register; remove our socket."""


class Pace(Struct, frozen=True):
    """How long things may take. Seconds."""

    # The kubelet opens the stream right after Register returns; it has been seen to take a second when busy.
    stream_s: float = 10.0
    # A stream that lived this long counts as success and resets the back-off. A refused list ends it at once.
    settled_s: float = 10.0
    backoff_s: float = 0.1
    backoff_max_s: float = 10.0

    def backoff(self, attempt: int) -> float:
        return min(self.backoff_max_s, self.backoff_s * 2.0 ** min(attempt, 16))


PACE = Pace()


def step(life: Life, event: Event, pace: Pace = PACE) -> tuple[Life, tuple[Action, ...]]:
    """What the event makes of the life, and what has to be done."""
    if life.phase is Phase.STOPPED:
        return life, ()
    match event:
        case Stop():
            return replace(life, phase=Phase.STOPPED, streams=0, reason="stopped"), (Close(),)
        case Started():
            return _bind(life, "starting")
        case OwnSocketGone():
            return _bind(life, "own socket gone")
        case OptionsChanged():
            return _bind(life, "options changed")
        case KubeletReplaced(own_intact):
            life = replace(life, attempt=0, reason="kubelet socket replaced")
            if own_intact and not life.streams and life.phase in UNCLAIMED:
                return replace(life, phase=Phase.REGISTER), (Register(),)
            return _bind(life, life.reason)
        case StreamOpened():
            return _opened(replace(life, streams=life.streams + 1), pace)
        case StreamClosed():
            return _closed(replace(life, streams=max(0, life.streams - 1)), pace)
    match life.phase, event:
        case Phase.BIND, Bound():
            return replace(life, phase=Phase.REGISTER), (Register(),)
        case Phase.BIND, BindFailed(reason):
            return _back_off(life, f"cannot serve: {reason}", pace, Retry.BIND)
        case Phase.REGISTER, Registered():
            if life.streams:
                return _settle(life, pace)
            return replace(life, phase=Phase.AWAIT_STREAM, reason=""), (Wait(pace.stream_s),)
        case Phase.REGISTER, RegisterFailed(reason):
            return _back_off(life, reason, pace)
        case Phase.AWAIT_STREAM, TimerFired():
            return _back_off(life, f"registered, but no stream was opened in {pace.stream_s:g} s", pace)
        case Phase.STREAMING, TimerFired():
            return replace(life, attempt=0), ()
        case Phase.BACKOFF, TimerFired():
            if life.retry is Retry.BIND:
                return _bind(life, life.reason)
            return replace(life, phase=Phase.REGISTER), (Register(),)
    return life, ()  # an echo of a phase that is over


def _bind(life: Life, reason: str) -> tuple[Life, tuple[Action, ...]]:
    return replace(life, phase=Phase.BIND, streams=0, reason=reason), (Bind(),)


def _back_off(life: Life, reason: str, pace: Pace, retry: Retry = Retry.REGISTER) -> tuple[Life, tuple[Action, ...]]:
    if life.watched:
        retry = Retry.BIND
    wait = Wait(pace.backoff(life.attempt), jitter=True)
    return replace(life, phase=Phase.BACKOFF, attempt=life.attempt + 1, reason=reason, retry=retry), (wait,)


def _opened(life: Life, pace: Pace) -> tuple[Life, tuple[Action, ...]]:
    # While Register is outstanding its answer decides. A stream that opens during a back-off is as good as any.
    if life.phase in {Phase.AWAIT_STREAM, Phase.BACKOFF} or (life.watched and life.phase is Phase.REGISTER):
        return _settle(life, pace)
    return life, ()


def _settle(life: Life, pace: Pace) -> tuple[Life, tuple[Action, ...]]:
    return replace(life, phase=Phase.STREAMING, reason=""), (Wait(pace.settled_s),)


def _closed(life: Life, pace: Pace) -> tuple[Life, tuple[Action, ...]]:
    if life.phase is not Phase.STREAMING:
        return life, ()
    if life.streams:
        # Both are on connections that the kubelet registered us with. Which of the two it still reads is not known.
        return _back_off(life, "a stream ended while another is open", pace, Retry.BIND)
    return _back_off(life, "the kubelet closed the stream", pace)
