"""Room for bodies: who gets it, and when."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fairlead.scheduler.http.budget import Budget, Share
from fairlead.scheduler.http.limits import Counters, Limits

LIMITS = Limits(small_body_bytes=10, body_bytes=100, bodies_bytes=200)


class Room:
    def __init__(self) -> None:
        self.counters = Counters()
        self.budget = Budget(LIMITS, self.counters)
        self.got: list[str] = []

    def share(self, name: str) -> Share:
        return Share(self.budget, lambda: self.got.append(name))


def test_a_body_that_would_fit_does_not_overtake_a_larger_one():
    room = Room()
    first, second, large, less = (room.share(name) for name in ("first", "second", "large", "less"))
    assert first.want(100)
    assert second.want(80)
    assert not large.want(100)
    assert not less.want(20)
    second.release()
    assert room.got == ["large"]
    first.release()
    assert room.got == ["large", "less"]
    assert room.counters.bytes_in_flight == 120


def test_a_small_one_never_waits():
    room = Room()
    assert all(room.share("x").want(10) for _ in range(100))
    assert room.counters.bytes_in_flight == 1000
    assert not room.share("x").want(11)


def test_who_gives_up_lets_the_next_one_in():
    room = Room()
    held = [room.share("held") for _ in range(2)]
    assert held[0].want(100)
    assert held[1].want(60)
    large, less = room.share("large"), room.share("less")
    assert not large.want(100)
    assert not less.want(40)
    large.release()
    assert room.got == ["less"]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-1, 100)), max_size=60))
def test_no_more_than_there_is_and_nothing_is_lost(steps: list[tuple[int, int]]):
    room = Room()
    shares = [room.share(str(number)) for number in range(6)]
    for number, size in steps:
        if size < 0:
            shares[number].release()
        elif shares[number] not in room.budget._queue:
            shares[number].want(size)
        assert room.counters.bytes_in_flight == sum(share.size for share in shares)
        assert sum(share.size for share in shares if share.size > LIMITS.small_body_bytes) <= LIMITS.bodies_bytes
        assert room.counters.bodies_waiting == len(room.budget._queue)
    for share in shares:
        share.release()
    assert room.counters.bytes_in_flight == room.counters.bodies_waiting == 0
