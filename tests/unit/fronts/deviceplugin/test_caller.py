"""Which connection is the kubelet's: the one that called back, and of several the one from its process."""

from __future__ import annotations

import pytest

from fairlead.fronts.deviceplugin.caller import Caller
from fairlead.wire.rpc import Peer


class Desk:
    def __init__(self) -> None:
        self.streams = 0
        self.caller = Caller(self._count)

    def _count(self, change: int) -> None:
        self.streams += change

    def register(self, *called_back: Peer, pid: int = 0) -> None:
        self.caller.registering(pid)
        for peer in called_back:
            self.caller.asked_options(peer)
        self.caller.registered()


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_the_stream_of_the_connection_that_called_back_counts(desk: Desk):
    kubelet, stranger = Peer(pid=7), Peer(pid=7)
    desk.register(kubelet, pid=7)
    closed = desk.caller.opened_stream(kubelet)
    other = desk.caller.opened_stream(stranger)
    assert desk.streams == 1
    other()
    assert desk.streams == 1
    closed()
    assert desk.streams == 0


def test_of_two_that_called_back_the_kubelets_process_decides(desk: Desk):
    kubelet, stranger = Peer(pid=7), Peer(pid=8)
    desk.register(stranger, kubelet, pid=7)
    assert desk.caller.is_kubelet(kubelet)
    assert not desk.caller.is_kubelet(stranger)


@pytest.mark.parametrize("pid", [0, 99])
def test_a_process_that_is_not_seen_excludes_nobody_who_called_back(desk: Desk, pid: int):
    """Across process namespaces the kernel says 0; and a proxy may listen on kubelet.sock."""
    kubelet = Peer(pid=7)
    desk.register(kubelet, pid=pid)
    assert desk.caller.is_kubelet(kubelet)


def test_options_that_are_asked_for_at_another_time_mean_nothing(desk: Desk):
    kubelet, stranger = Peer(), Peer()
    desk.caller.asked_options(stranger)
    desk.register(kubelet)
    desk.caller.asked_options(stranger)
    assert not desk.caller.is_kubelet(stranger)
    assert kubelet.protected
    assert not stranger.protected


def test_nobody_is_the_kubelet_before_a_registration(desk: Desk):
    assert not desk.caller.is_kubelet(Peer())
    desk.caller.registering()
    assert not desk.caller.is_kubelet(Peer())


def test_where_nobody_called_back_any_stream_may_be_the_kubelets(desk: Desk):
    desk.register()
    assert desk.caller.is_kubelet(Peer())


def test_each_registration_has_a_connection_of_its_own(desk: Desk):
    before, now = Peer(), Peer()
    desk.register(before)
    closed = desk.caller.opened_stream(before)
    desk.register(now)
    assert not desk.caller.is_kubelet(before)
    assert not before.protected
    closed()  # it was counted, so its end is
    assert desk.streams == 0
