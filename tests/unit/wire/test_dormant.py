"""A connection that waits for nothing: control frames are answered, anything else is seen."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.wire import frames
from fairlead.wire.dormant import UnexpectedFrame, answer_control

PING = frames.frame(frames.PING, 0, 0, b"12345678")
CONTROL = st.sampled_from(
    [
        (PING, frames.frame(frames.PING, frames.ACK, 0, b"12345678")),
        (frames.settings({frames.MAX_FRAME_SIZE: 16384}), frames.frame(frames.SETTINGS, frames.ACK, 0)),
        (frames.frame(frames.SETTINGS, frames.ACK, 0), b""),
        (frames.frame(frames.PING, frames.ACK, 0, b"12345678"), b""),
        (frames.window_update(0, 1), b""),
    ]
)


@given(st.lists(CONTROL), st.integers(min_value=0))
def test_control_frames_are_answered_however_they_arrive(sent: list[tuple[bytes, bytes]], cut: int):
    data = b"".join(each for each, _ in sent)
    place = cut % (len(data) + 1)
    first, rest = answer_control(data[:place])
    second, left = answer_control(rest + data[place:])
    assert (first + second, left) == (b"".join(answer for _, answer in sent), b"")


@pytest.mark.parametrize(
    "frame",
    [
        frames.frame(frames.HEADERS, frames.END_HEADERS, 3, b"\x82"),
        frames.frame(frames.DATA, 0, 1, b"x"),
        frames.rst_stream(1, 8),
        frames.goaway(0, 0),
        frames.frame(frames.PING, 0, 0, bytes(2000)),
        b"GET / HTTP/1.1\r\n",
    ],
    ids=["call", "data", "reset", "goaway", "large", "not HTTP/2"],
)
def test_anything_else_is_seen_at_its_first_bytes(frame: bytes):
    with pytest.raises(UnexpectedFrame):
        answer_control(PING + frame[: frames.HEADER_BYTES])
