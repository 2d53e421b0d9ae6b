"""Switches: the real kubelet's own defects, faults a test may ask for, and callbacks for tests.

Owns the switches only; each is read where it acts.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from fairlead.standin._gen import deviceplugin_v1beta1_pb2 as dp


@dataclass(frozen=True, slots=True)
class Defects:
    """Behaviour of 1.36.4 that is wrong and that plugins must live with. On by default."""

    # Clients are known by resource name alone: the end of an old stream takes down the new registration.
    track_by_name: bool = True
    # An Allocate answer without containers leaves the devices counted as used.
    leak_on_empty_answer: bool = True

    @classmethod
    def fixed(cls) -> "Defects":
        """A kubelet without them: clients are known by their socket."""
        return cls(track_by_name=False, leak_on_empty_answer=False)


@dataclass(slots=True)
class Faults:
    """What goes wrong on purpose. All off; a test sets them on `kubelet.faults` at any time."""

    # Register answers well, but the kubelet never dials the plugin.
    never_dial: bool = False
    # Register goes its normal way, but ListAndWatch is never opened.
    never_stream: bool = False
    # Register is refused with this text.
    refuse_register: str = ""
    # What is done to Register is done to this resource only; empty: to all.
    only: str = ""
    # The kubelet supports only this version.
    version: str = "v1beta1"
    # The kubelet restarts in the middle of the next Register. Switches itself off.
    restart_on_register: bool = False
    # The kubelet pauses this long, on its clock, before it reads each list.
    read_delay_s: float = 0.0


@dataclass(slots=True)
class Callbacks:
    """Called with what plugins send, unchanged. A test sets them on `kubelet.callbacks` at any time."""

    # Awaited with each Register before anything else is done with it: it may look, and it may take its time.
    on_register: Callable[[dp.RegisterRequest], Awaitable[None]] | None = None
    # Called with each list as it arrives.
    on_list: Callable[[str, dp.ListAndWatchResponse], None] | None = None
