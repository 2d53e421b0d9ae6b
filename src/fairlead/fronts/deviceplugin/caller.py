"""Which of the connections to a plugin's socket is the kubelet's. Knows no life cycle.

A kubelet that registers us dials our socket, asks for our options on this connection while our Register is still
unanswered, and later opens its one stream there. Every other program that finds the socket may ask the same; its
streams are served, and mean nothing for our registration.
"""

from __future__ import annotations

from collections.abc import Callable

from fairlead.wire.rpc import Peer


class Caller:
    """Hears of each registration and of each caller; says which streams count."""

    def __init__(self, on_stream: Callable[[int], None]) -> None:
        self._on_stream = on_stream  # +1: the kubelet opened its stream, -1: it has ended
        self._registering = False
        self._done = False  # a registration has come to its end
        self._called_back: list[Peer] = []  # asked for our options while we registered
        self._pid = 0  # of the kubelet, as far as the kernel tells: 0 across process namespaces

    def registering(self, pid: int = 0) -> None:
        """A registration begins, with the process that listens on kubelet.sock."""
        for peer in self._called_back:
            peer.protected = False
        self._registering, self._done, self._called_back, self._pid = True, False, [], pid

    def registered(self) -> None:
        """It is over, either way. Who asks for options from now on does not do so for it."""
        self._registering, self._done = False, True

    def asked_options(self, peer: Peer) -> None:
        if self._registering and peer not in self._called_back:
            self._called_back.append(peer)
            peer.protected = True

    def opened_stream(self, peer: Peer) -> Callable[[], None]:
        """A stream is open. What is returned is called when it has ended."""
        if not self.is_kubelet(peer):
            return lambda: None
        self._on_stream(+1)
        return lambda: self._on_stream(-1)

    def is_kubelet(self, peer: Peer) -> bool:
        """As well as can be said: by the callback, and where that is not enough, by the process.

        The process alone is not enough: something may stand between us and kubelet.sock. Should a kubelet ever register
        us without asking for our options, any stream may be its own.
        """
        if not self._called_back:
            return self._done
        if peer not in self._called_back:
            return False
        same = [known for known in self._called_back if self._pid and known.pid == self._pid]
        return peer in same if same else True
