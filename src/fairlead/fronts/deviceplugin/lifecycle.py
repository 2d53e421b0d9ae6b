"""The registration life cycle of one resource, as a pure state machine.

Owns the order of things: serve first, then register, then expect a stream, and begin again when any of three
independent signals says that the kubelet has lost us: kubelet.sock is another file, our own socket is gone, or
no stream is open. Knows no sockets and reads no clock; `endpoint` runs it.

    BIND -> REGISTER -> AWAIT_STREAM -> STREAMING
    refused, unreachable, no stream in time, last stream closed -> BACKOFF -> REGISTER
    own socket gone, kubelet.sock replaced, in any phase          -> BIND
    kubelet.sock replaced while a fresh socket of ours waits      -> REGISTER
    another daemon takes over, in any phase                       -> SUPERSEDED, until that one has ended -> BIND
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
    SUPERSEDED = "superseded"
    STOPPED = "stopped"


# Phases in which we serve, the kubelet has not got us, and it may come back any moment.
UNCLAIMED = frozenset({Phase.REGISTER, Phase.AWAIT_STREAM, Phase.BACKOFF})


class Signal(StrEnum):
    """What made a registration necessary."""

    STARTED = "started"
    SOCKET_REMOVED = "socket-removed"
    KUBELET_RESTARTED = "kubelet-restarted"
    OPTIONS_CHANGED = "options-changed"
    STREAM_CLOSED = "stream-closed"
    NO_STREAM = "no-stream"
    SUCCESSOR_ENDED = "successor-ended"


class Life(Struct, frozen=True):
    phase: Phase = Phase.BIND
    signal: Signal = Signal.STARTED
    attempt: int = 0  # failures since the last stream that lasted
    streams: int = 0  # streams of the kubelet that are open on the present server
    reason: str = ""  # why we are here, for people
    retry: Phase = Phase.REGISTER  # where BACKOFF leads; or BIND
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


class Superseded(Event, frozen=True):
    """Another daemon serves the resource from now on. What is under way on our connections still ends here."""


class Resumed(Event, frozen=True):
    """The daemon that took over has ended."""


class Stop(Event, frozen=True):
    pass


# --- What to do about it ----------------------------------------------------------------------------------------


class Bind(Struct, frozen=True):
    """End the old server and every stream of it, then serve on a fresh socket. Ends a pending Register."""


class Register(Struct, frozen=True):
    """Call the kubelet, on a connection of its own. An earlier call that is still out ends.

    Never blocks our own server: the kubelet calls back inside. Nothing to do where the plugin watcher calls us.
    """


class Wait(Struct, frozen=True):
    """Arm the one timer; a later Wait replaces it, and leaving the phase disarms it."""

    seconds: float
    jitter: bool = False


class Close(Struct, frozen=True):
    """End the server, its streams and a pending Register; remove our socket."""


class Leave(Struct, frozen=True):
    """Give the resource up: a pending Register ends, the timer and the lock go. Streams stay open, without news."""


Action = Bind | Register | Wait | Close | Leave


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
        case Resumed() if life.phase is Phase.SUPERSEDED:
            return _bind(replace(life, signal=Signal.SUCCESSOR_ENDED, attempt=0), "the daemon that took over has ended")
        case _ if life.phase is Phase.SUPERSEDED:
            return life, ()
        case Superseded():
            return replace(life, phase=Phase.SUPERSEDED, reason="another daemon has taken over"), (Leave(),)
        case OwnSocketGone():
            return _bind(replace(life, signal=Signal.SOCKET_REMOVED), "own socket gone")
        case OptionsChanged():
            return _bind(replace(life, signal=Signal.OPTIONS_CHANGED), "options changed")
        case KubeletReplaced(own_intact):
            life = replace(life, attempt=0, signal=Signal.KUBELET_RESTARTED, reason="kubelet socket replaced")
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
            return _back_off(life, f"cannot serve: {reason}", pace, Phase.BIND)
        case Phase.REGISTER, Registered():
            if life.streams:
                return _settle(life, pace)
            return replace(life, phase=Phase.AWAIT_STREAM, reason=""), (Wait(pace.stream_s),)
        case Phase.REGISTER, RegisterFailed(reason):
            return _back_off(life, reason, pace)
        case Phase.AWAIT_STREAM, TimerFired():
            life = replace(life, signal=Signal.NO_STREAM)
            return _back_off(life, f"registered, but no stream was opened in {pace.stream_s:g} s", pace)
        case Phase.STREAMING, TimerFired():
            return replace(life, attempt=0), ()
        case Phase.BACKOFF, TimerFired():
            if life.retry is Phase.BIND:
                return _bind(life, life.reason)
            return replace(life, phase=Phase.REGISTER), (Register(),)
    return life, ()  # an echo of a phase that is over


def _bind(life: Life, reason: str) -> tuple[Life, tuple[Action, ...]]:
    return replace(life, phase=Phase.BIND, streams=0, reason=reason), (Bind(),)


def _back_off(life: Life, reason: str, pace: Pace, retry: Phase = Phase.REGISTER) -> tuple[Life, tuple[Action, ...]]:
    if life.watched:
        retry = Phase.BIND
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
    life = replace(life, signal=Signal.STREAM_CLOSED)
    if life.streams:
        # Both are on connections that the kubelet registered us with. Which of the two it still reads is not known.
        return _back_off(life, "a stream ended while another is open", pace, Phase.BIND)
    return _back_off(life, "the kubelet closed the stream", pace)


def is_old_news(life: Life) -> bool:
    """A kubelet that stays away is recorded less and less often: at the attempts 1, 2, 4, 8 and so on."""
    return life.phase in {Phase.BACKOFF, Phase.REGISTER} and life.attempt & (life.attempt - 1) != 0
