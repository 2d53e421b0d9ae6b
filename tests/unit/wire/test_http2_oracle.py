"""Random conversations between our HTTP/2 and the h2 library: both ends must have seen the same."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.wire.ends import End, Fields, OurEnd, TheirEnd

from fairlead.wire.frames import DEFAULT_FRAME_BYTES
from fairlead.wire.limits import Limits

REQUEST: Fields = [
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/v1beta1.DevicePlugin/Allocate"),
    (b":authority", b"localhost"),
    (b"te", b"trailers"),
]
RESPONSE: Fields = [(b":status", b"200"), (b"content-type", b"application/grpc")]
TRAILERS: Fields = [(b"grpc-status", b"0"), (b"grpc-message", b"fine " + b"x" * 300)]

ACTIONS = ["open", "open", "ask", "ask", "end_ask", "reply", "reply", "tell", "tell", "trail", "reset", "ping", "move"]
step = st.tuples(
    st.sampled_from(ACTIONS),
    st.integers(0, 5),  # which stream
    st.sampled_from([0, 1, 7, 100, 5_000, 16_384, 16_385, 70_000, 200_000]),  # how many bytes
    st.booleans(),  # who
)


@dataclass
class RequestHeaders:
    """What was sent on one stream."""

    asked: bytearray = field(default_factory=bytearray)
    told: bytearray = field(default_factory=bytearray)
    heads: int = 0
    ask_ended: bool = False
    tell_ended: bool = False
    reset_by: set[str] = field(default_factory=set)


def play(
    client: End, server: End, script: list[tuple[str, int, int, bool]], cuts: list[int]
) -> dict[int, RequestHeaders]:
    plans: dict[int, RequestHeaders] = {}
    cut = itertools.cycle(cuts)

    def move() -> bool:
        moved = False
        for source, sink in ((client, server), (server, client)):
            data = source.take()
            while data:
                size = next(cut)
                sink.receive(data[:size])
                data = data[size:]
                moved = True
        return moved

    move()
    for action, index, size, by_client in script:
        if action == "move":
            move()
            continue
        if action == "ping":
            (client if by_client else server).ping(b"%08d" % size)
            continue
        if action == "open":
            plan = RequestHeaders(ask_ended=size == 0)
            plans[client.request([*REQUEST, (b"x-size", b"%d" % size)], end=size == 0)] = plan
            move()  # numbers must reach the server in order of use
            continue
        if not plans:
            continue
        stream = list(plans)[index % len(plans)]
        plan = plans[stream]
        if plan.reset_by:
            continue
        body = bytes((stream + i) & 0xFF for i in range(min(size, 256))) * (size // 256 or 1)
        if action == "reset":
            if not (plan.ask_ended and plan.tell_ended):
                plan.reset_by.add("client" if by_client else "server")
                (client if by_client else server).reset(stream)
                move()
        elif action in {"ask", "end_ask"} and not plan.ask_ended and not plan.tell_ended:
            plan.ask_ended = action == "end_ask"
            plan.asked += body
            client.data(stream, body, end=plan.ask_ended)
        elif action == "reply" and not plan.heads:
            plan.heads = 1
            server.headers(stream, RESPONSE, end=False)
        elif action == "tell" and plan.heads and not plan.tell_ended:
            plan.told += body
            server.data(stream, body, end=False)
        elif action == "trail" and plan.heads and not plan.tell_ended:
            while move():
                pass  # let the request arrive: a server that answers before its end does not read the rest
            plan.tell_ended = True
            server.headers(stream, TRAILERS, end=True)
    while move():
        pass
    return plans


def compare(client: End, server: End, plans: dict[int, RequestHeaders]) -> None:
    for stream, plan in plans.items():
        at_server, at_client = server.seen[stream], client.seen[stream]
        assert at_server.heads[0][: len(REQUEST)] == REQUEST
        # A reset, or an answer before the request's end, may cut a body short; it never changes what arrived.
        assert plan.asked.startswith(at_server.data)
        assert plan.told.startswith(at_client.data)
        if plan.reset_by:
            continue
        if plan.ask_ended or not plan.tell_ended:
            assert at_server.data == plan.asked
            assert at_server.ended == plan.ask_ended
        assert at_client.data == plan.told
        assert at_client.ended == plan.tell_ended
        assert at_client.heads == [RESPONSE][: plan.heads] + [TRAILERS] * plan.tell_ended


@pytest.mark.parametrize("ours_serves", [True, False], ids=["we serve", "we call"])
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(
    script=st.lists(step, max_size=40),
    cuts=st.lists(st.sampled_from([1, 5, 9, 10, 63, 500, 16_393, 65_536, 1_000_000]), min_size=1, max_size=6),
    our_window=st.sampled_from([100, 65_535, 1 << 20]),
    their_window=st.sampled_from([1, 50, 65_535, 1 << 20]),
    their_frames=st.sampled_from([DEFAULT_FRAME_BYTES, 40_000]),
)
def test_both_ends_see_the_same(
    *,
    ours_serves: bool,
    script: list[tuple[str, int, int, bool]],
    cuts: list[int],
    our_window: int,
    their_window: int,
    their_frames: int,
) -> None:
    # A window of one byte or cuts of one byte make every large body slow; that corner needs small bodies only.
    if min(cuts) < 63 or min(our_window, their_window) < 1000:
        script = [(action, index, min(size, 600), who) for action, index, size, who in script]
    limits = Limits(stream_window_bytes=our_window, connection_window_bytes=max(65_535, our_window))
    ours = OurEnd(server=ours_serves, limits=limits)
    theirs = TheirEnd(server=not ours_serves, window_bytes=their_window, frame_bytes=their_frames)
    client, server = (theirs, ours) if ours_serves else (ours, theirs)
    plans = play(client, server, script, cuts)
    compare(client, server, plans)
    assert not ours.conn.failed
    assert ours.conn.sending.queued_bytes == 0
    still_open = [s for s, p in plans.items() if not p.reset_by and not (p.ask_ended and p.tell_ended)]
    if not ours_serves:
        assert sorted(ours.conn.streams) == still_open
    else:
        # A server that answers early asks the client to stop, and is done with the stream.
        assert sorted(ours.conn.streams) == [s for s in still_open if not plans[s].tell_ended]


@pytest.mark.parametrize("ours_serves", [True, False], ids=["we serve", "we call"])
def test_pings_and_goaway_cross_over(*, ours_serves: bool) -> None:
    ours = OurEnd(server=ours_serves, limits=Limits())
    theirs = TheirEnd(server=not ours_serves, window_bytes=65_535, frame_bytes=DEFAULT_FRAME_BYTES)
    client, server = (theirs, ours) if ours_serves else (ours, theirs)
    script = [("open", 0, 1, True), ("ping", 0, 1, True), ("ping", 0, 2, False), ("move", 0, 0, True)]
    play(client, server, script, [1_000_000])
    assert (client.pongs, server.pongs) == ([b"00000001"], [b"00000002"])
    server.say_goaway()
    client.receive(server.take())
    assert client.goaway == 1
