"""Bytes to responses: wherever they are cut, whatever they claim."""

from __future__ import annotations

import contextlib
import http.client
import io
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.cluster.http1 import HEAD_MAX_BYTES, ProtocolError, Response, encode


def _feed(data: bytes, cuts: list[int] | None = None, *, close: bool = False) -> tuple[Response, bytes]:
    response, body = Response(), b""
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts or ())})
    for start, end in itertools.pairwise(edges):
        body += b"".join(response.feed(data[start:end]))
    if close:
        response.end()
    return response, body


def _chunked(parts: list[bytes]) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts if part) + b"0\r\n\r\n"


HEADS = {
    "length": lambda body: b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body,
    "chunked": lambda body: b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + _chunked([body[:3], body[3:]]),
    "close": lambda body: b"HTTP/1.1 200 OK\r\n\r\n" + body,
    "continue": lambda body: (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    ),
}


@pytest.mark.parametrize("framing", HEADS)
def test_a_response_cut_at_any_byte_is_the_same(framing: str):
    data = HEADS[framing](b'{"kind": "Node"}\r\n\x00\xff')
    for cut in range(len(data) + 1):
        response, body = _feed(data, [cut], close=framing == "close")
        assert response.done
        assert body == b'{"kind": "Node"}\r\n\x00\xff'


@given(st.lists(st.binary(max_size=40), max_size=6), st.lists(st.integers(0, 500), max_size=8))
def test_chunks_give_what_was_put_into_them(parts: list[bytes], cuts: list[int]):
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-A: b\r\n\r\n"
    response, body = _feed(head + _chunked(parts), cuts)
    assert response.done
    assert response.reusable
    assert body == b"".join(parts)


@given(st.binary(max_size=200), st.lists(st.integers(0, 300), max_size=6))
def test_noise_is_refused_or_waited_for_and_never_anything_else(noise: bytes, cuts: list[int]):
    try:
        response, _ = _feed(noise, cuts)
    except ProtocolError:
        return
    assert not response.done


@given(st.binary(max_size=60), st.integers(0, 120), st.integers(0, 255))
def test_one_wrong_byte_never_does_more_than_spoil_the_answer(body: bytes, place: int, byte: int):
    data = bytearray(HEADS["chunked"](body))
    data[place % len(data)] = byte
    with contextlib.suppress(ProtocolError):
        _feed(bytes(data), close=True)


@given(st.lists(st.binary(min_size=1, max_size=50), min_size=1, max_size=5))
def test_the_standard_library_reads_chunks_as_we_do(parts: list[bytes]):
    data = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + _chunked(parts)

    class Socket:
        def makefile(self, _mode: str) -> io.BytesIO:
            return io.BytesIO(data)

    theirs = http.client.HTTPResponse(Socket())  # type: ignore[arg-type]  # all it needs of a socket
    theirs.begin()
    assert _feed(data)[1] == theirs.read()


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/2 200 OK\r\n\r\n",
        b"\x15\x03\x01\x00\x02\x02\x46",
        b"HTTP/1.1 99 No\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1e3\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: \xb2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: b\r\n folded\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA : b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"0" * 300,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + b"A: b\r\n" * HEAD_MAX_BYTES,
        b"HTTP/1.1 200 OK\r\nA: " + b"b" * HEAD_MAX_BYTES,
    ],
)
def test_what_is_no_http_is_refused(data: bytes):
    with pytest.raises(ProtocolError):
        _feed(data)


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n1234",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n",
    ],
)
def test_an_answer_that_is_cut_is_not_taken_for_whole(data: bytes):
    with pytest.raises(ProtocolError, match="in the middle"):
        _feed(data, close=True)


@pytest.mark.parametrize(
    ("data", "reusable"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", True),
        (b"HTTP/1.1 204 No\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: Close\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nleft over", False),
    ],
)
def test_a_connection_is_used_again_only_when_it_is_clean(data: bytes, reusable: bool):
    response, _ = _feed(data)
    assert response.done
    assert response.reusable is reusable


def test_a_request_says_how_long_it_is():
    assert encode("PATCH", "/a?b=c", {"Host": "h"}, b"{}") == (
        b"PATCH /a?b=c HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}"
    )


@pytest.mark.parametrize(("target", "value"), [("/a b", "v"), ("/a\r\nX: y", "v"), ("/a", "v\r\nX: y"), ("/a", "\x00")])
def test_nothing_can_smuggle_a_line_into_a_request(target: str, value: str):
    with pytest.raises(ValueError):  # noqa: PT011 - its text must not hold the value
        encode("GET", target, {"Authorization": value})
