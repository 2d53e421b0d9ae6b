"""What a run has seen of a plugin, and how long it waits. Values only."""

from dataclasses import dataclass
from pathlib import Path

from fairlead.standin._gen import deviceplugin_v1beta1_pb2 as dp


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long things may take, in seconds."""

    wait_s: float = 10.0  # for the plugin to do something of its own accord
    call_s: float = 5.0  # for an answer
    end_s: float = 10.0  # to end after SIGTERM
    quiet_s: float = 1.0  # in which nothing may happen
    refuse_s: float = 1.5  # the kubelet refuses this long
    slow_s: float = 2.0  # a slow kubelet takes this long
    silence_s: float = 15.0  # accepted, but without a stream: to try again
    delay_s: float = 1.1  # from one start of the plugin to the next
    watch_s: float = 30.0  # in which nothing is done, and the plugin is watched
    late: float = 1.0  # what is late is waited for so many times as long again, to say how late it was

    @classmethod
    def of(cls, wait_s: float, delay_s: float = 1.1) -> "Timeouts":
        return cls(wait_s=wait_s, call_s=min(5.0, wait_s), silence_s=1.5 * wait_s, delay_s=delay_s)


@dataclass(frozen=True, slots=True)
class Hooks:
    """Shell commands of the user's that break a device, and mend it."""

    breaks: str = ""
    mends: str = ""


@dataclass(frozen=True, slots=True)
class Registration:
    """One Register as it arrived."""

    request: dp.RegisterRequest
    path: Path
    served: bool  # the endpoint accepted connections at that moment


@dataclass(frozen=True, slots=True)
class Listed:
    """One list as it arrived, on which stream of the run, and when."""

    stream: int
    message: dp.ListAndWatchResponse
    at_s: float = 0.0

    @property
    def ids(self) -> list[str]:
        return [device.ID for device in self.message.devices]


@dataclass(frozen=True, slots=True)
class Watched:
    """What was seen while nothing was done: a kubelet restarted, the plugin registered, and then nothing."""

    seconds: float
    ended_after_s: float | None  # the plugin's process ended by itself
    ending: str
    streaming: bool  # at the end, on the stream of the beginning
    first: int  # the lists of this time, as a part of all lists
    last: int
    ids: tuple[str, ...]  # at the beginning
