"""gRPC's own bytes: prefixes, timeouts, status texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.wire.grpc import (
    MessageDeframer,
    format_timeout,
    is_grpc,
    length_prefixed,
    parse_timeout_s,
    percent_decode,
    percent_encode,
)
from fairlead.wire.method import RpcError, Status


@given(st.lists(st.binary(max_size=100), max_size=5), st.lists(st.integers(1, 50), min_size=1))
def test_messages_survive_any_cutting(messages: list[bytes], cuts: list[int]) -> None:
    data = b"".join(map(length_prefixed, messages))
    deframer = MessageDeframer(100)
    found: list[bytes] = []
    for i in range(len(data)):
        size = cuts[i % len(cuts)]
        found += deframer.feed(data[:size])
        data = data[size:]
    assert found == messages
    assert len(deframer) == 0


def test_an_inbox_refuses_before_it_holds() -> None:
    with pytest.raises(RpcError, match="RESOURCE_EXHAUSTED: the message has 101 bytes; at most 100 are accepted"):
        MessageDeframer(100).feed(b"\x00\x00\x00\x00\x65")
    with pytest.raises(RpcError, match="UNIMPLEMENTED: the message is compressed"):
        MessageDeframer(100).feed(b"\x01\x00\x00\x00\x01x")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [(b"1H", 3600), (b"2M", 120), (b"3S", 3), (b"4m", 0.004), (b"5u", 5e-6), (b"6n", 6e-9), (b"99999999H", 3.6e11)],
)
def test_every_unit_of_time_is_read(text: bytes, seconds: float) -> None:
    assert parse_timeout_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", [b"", b"1", b"S", b"-1S", b"1s", b"123456789S", b"1.5S", b"1S "])
def test_a_malformed_timeout_is_an_internal_error(text: bytes) -> None:
    with pytest.raises(RpcError) as caught:
        parse_timeout_s(text)
    assert caught.value.status is Status.INTERNAL


@given(st.floats(0, 1e14))
def test_a_timeout_is_never_sent_shorter_than_asked(seconds: float) -> None:
    sent = parse_timeout_s(format_timeout(seconds))
    assert sent >= min(seconds, 99_999_999 * 3600.0) * (1 - 1e-12)
    assert sent <= seconds * 1.0001 + 1e-8 or sent <= seconds + 3600


def test_a_negative_timeout_is_none_left() -> None:
    assert format_timeout(-1.0) == b"0n"


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=300))
def test_texts_survive_the_header(text: str) -> None:
    quoted = percent_encode(text)
    assert quoted == quoted.strip()
    assert all(0x20 <= byte < 0x7F for byte in quoted)
    assert percent_decode(quoted) == text


def test_a_long_text_is_cut_between_characters() -> None:
    assert percent_decode(percent_encode("ä" * 5000)) == "ä" * 2048
    assert percent_decode(percent_encode("x" + "ä" * 5000)) == "x" + "ä" * 2047


def test_a_broken_text_is_shown_as_it_came() -> None:
    assert percent_decode(b"100% %zz %ff") == "100% %zz �"
    assert percent_encode("\ud800") == b"?"


@pytest.mark.parametrize(
    ("content_type", "ours"),
    [
        (b"application/grpc", True),
        (b"application/grpc+proto", True),
        (b"application/grpc;charset=utf-8", True),
        (b"application/grpc-web", False),
        (b"application/json", False),
        (None, False),
    ],
)
def test_content_types(content_type: bytes | None, *, ours: bool) -> None:
    assert is_grpc(content_type) is ours
