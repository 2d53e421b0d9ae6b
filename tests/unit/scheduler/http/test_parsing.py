"""Bytes to requests: what is a request, what is refused, and that it does not matter how the bytes are cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.unit.scheduler.http.parsed import SMALL, head_of, parse

from fairlead.scheduler.http.limits import Limits
from fairlead.scheduler.http.messages import Request
from fairlead.scheduler.http.parsing import CHUNKS_FREE, RequestParser

POST = b"POST /filter HTTP/1.1\r\nHost: a\r\n"
PLAIN = POST + b"Content-Length: 5\r\n\r\nhello"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\nTrailer: 1\r\n\r\n"
GET = b"GET /healthz?verbose=1 HTTP/1.1\r\nHost: a\r\n\r\n"
OLD = b"GET / HTTP/1.0\r\n\r\n"
REFUSED = (
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /x HTTP/1.1\r\nHost: a\r\n\r\n",
    POST + b"Content-Length: 1001\r\n\r\n",
    POST + b"Transfer-Encoding: chunked\r\n\r\n3\r\nhello\r\n0\r\n\r\n",
    POST + b"X: " + b"x" * 600,
)


def test_a_request_has_all_its_parts():
    requests, refusal = parse([PLAIN.replace(b"/filter", b"/filter?a=b&c").replace(b"Host", b"Accept: x\r\nHost")])
    assert refusal is None
    headers = {"accept": "x", "host": "a", "content-length": "5"}
    assert requests == [Request("POST", "/filter", "a=b&c", headers, b"hello")]


def test_a_chunked_body_is_put_together_and_its_trailers_are_no_headers():
    ((request,), _) = parse([CHUNKED])
    assert request.body == b"hello"
    assert request.headers == {"host": "a", "transfer-encoding": "chunked"}


def test_requests_follow_each_other():
    requests, refusal = parse([PLAIN + CHUNKED + GET + OLD + PLAIN])
    assert refusal is None
    assert [(request.path, request.body) for request in requests] == [
        ("/filter", b"hello"),
        ("/filter", b"hello"),
        ("/healthz", b""),
        ("/", b""),
        ("/filter", b"hello"),
    ]


def test_one_empty_line_before_a_request_is_skipped_and_a_second_is_not():
    assert parse([PLAIN + b"\r\n" + GET])[1] is None
    requests, refusal = parse([PLAIN + b"\r\n\r\n" + GET])
    assert len(requests) == 1
    assert refusal is not None


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        (b"/a%20b", "/a%20b", ""),
        (b"/a??b", "/a", "?b"),
        (b"http://host:1/a?b", "/a", "b"),
        (b"HTTPS://host", "/", ""),
        (b"http://host?b", "/", "b"),
        (b"*", "*", ""),
    ],
)
def test_targets(target: bytes, path: str, query: str):
    head = head_of(GET.replace(b"/healthz?verbose=1", target))
    assert (head.path, head.query) == (path, query)


@pytest.mark.parametrize(
    ("fields", "keep"),
    [
        (b"", True),
        (b"Connection: close\r\n", False),
        (b"Connection: Upgrade, Close\r\n", False),
        (b"Connection: upgrade\r\nConnection: close\r\n", False),
        (b"Connection: closed\r\n", True),
    ],
)
def test_a_connection_is_kept_unless_the_client_says_close(fields: bytes, keep: bool):
    assert head_of(POST + fields + b"\r\n").keep is keep


def test_a_connection_of_http_1_0_is_not_kept_even_when_it_asks_for_it():
    assert not head_of(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").keep


def test_an_expectation_is_known_before_the_body():
    assert head_of(POST + b"Expect: 100-Continue\r\nContent-Length: 5\r\n\r\n").expects
    assert not head_of(PLAIN).expects
    assert not head_of(b"POST / HTTP/1.0\r\nExpect: 100-continue\r\n\r\n").expects


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"\r\n\r\nGET / HTTP/1.1\r\n\r\n", 400),
        (b" GET / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET / HTTP/1.1 \r\nHost: a\r\n\r\n", 400),
        (b"GET /\xe9 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET /a\tb HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET a HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET / http/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET / HTTP/1.1\nHost: a\n\r\n\r\n", 400),
        (b"GET /\r\nHost: a\r\n\r\n", 400),
        (b"G" * 33, 400),
        (b"\x16\x03\x01", 400),
        (b"\x00", 400),
        (b"PRI * HTTP/2.0\r\n\r\n", 505),
        (b"GET / HTTP/1.2\r\nHost: a\r\n\r\n", 505),
        (b"GET / HTTP/0.9\r\nHost: a\r\n\r\n", 505),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (GET.replace(b"Host: a", b"Host: a\r\nHost: a"), 400),
        (GET.replace(b"Host: a", b"Host : a"), 400),
        (GET.replace(b"Host: a", b"Host: a\r\n folded"), 400),
        (GET.replace(b"Host: a", b"Host: a\r\nno colon"), 400),
        (GET.replace(b"Host: a", b"Host: a\r\n: empty"), 400),
        (GET.replace(b"Host: a", b"Host: a\r\nX: a\rb"), 400),
        (GET.replace(b"Host: a", b"Host: a\r\nX: a\nb: c"), 400),
        (GET.replace(b"Host: a", b"Host: a\r\nX: a\0"), 400),
        (GET.replace(b"Host: a", b"Host: a\r\nX\xe9: a"), 400),
        (GET.replace(b"Host: a", b"Host: a" + b"\r\nX: 1" * 10), 431),
        (POST + b"X: " + b"x" * 600, 431),
        (POST + b"X: " + b"x" * 600 + b"\r\n\r\n", 431),
        (POST + b"Expect: more\r\n\r\n", 417),
    ],
)
def test_what_is_no_request_is_refused(data: bytes, status: int):
    requests, refusal = parse([data])
    assert not requests
    assert refusal is not None
    assert refusal[0] == status


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        (b"Content-Length: 5\r\nContent-Length: 5\r\n", 400),
        (b"Content-Length: 5\r\ncontent-length: 6\r\n", 400),
        (b"Content-Length: 5, 5\r\n", 400),
        (b"Content-Length: -5\r\n", 400),
        (b"Content-Length: +5\r\n", 400),
        (b"Content-Length: 5 5\r\n", 400),
        (b"Content-Length: 0x5\r\n", 400),
        (b"Content-Length: 5.0\r\n", 400),
        (b"Content-Length: 5_0\r\n", 400),
        (b"Content-Length: \xb2\r\n", 400),
        (b"Content-Length:\r\n", 400),
        (b"Content-Length: 1" + b"0" * 20 + b"\r\n", 400),
        (b"Content-Length: 1001\r\n", 413),
        (b"Content-Length: 999999999999999\r\n", 413),
        (b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", 400),
        (b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", 400),
        (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", 400),
        (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", 400),
        (b"Transfer-Encoding: gzip, chunked\r\n", 501),
        (b"Transfer-Encoding: chunked, identity\r\n", 501),
        (b"Transfer-Encoding: identity\r\n", 501),
        (b"Transfer-Encoding: xchunked\r\n", 501),
        (b"Transfer-Encoding:\r\n", 501),
        (b"Transfer-Encoding: \x0bchunked\r\n", 400),
        (b"Transfer-Encoding : chunked\r\n", 400),
        (b"Transfer-Encoding\r\n: chunked\r\n", 400),
        (b" Transfer-Encoding: chunked\r\n", 400),
    ],
)
def test_a_body_whose_end_two_parsers_could_see_in_two_places_is_refused(fields: bytes, status: int):
    requests, refusal = parse([POST + fields + b"\r\n0\r\n\r\n" + GET])
    assert not requests
    assert refusal is not None
    assert refusal[0] == status


def test_chunked_is_nothing_that_http_1_0_knows():
    _, refusal = parse([b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"])
    assert refusal is not None
    assert refusal[0] == 400


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"\r\n", 400),
        (b"x\r\n", 400),
        (b"-1\r\n", 400),
        (b"0x5\r\nhello\r\n0\r\n\r\n", 400),
        (b" 5\r\nhello\r\n0\r\n\r\n", 400),
        (b"5 \r\nhello\r\n0\r\n\r\n", 400),
        (b"5\nhello\r\n0\r\n\r\n", 400),
        (b"5;\n\r\nhello\r\n0\r\n\r\n", 400),
        (b"5;a\rb\r\nhello\r\n0\r\n\r\n", 400),
        (b"5\r\nhello!\r\n0\r\n\r\n", 400),
        (b"5\r\nhello\n0\r\n\r\n", 400),
        (b"1" + b"0" * 15 + b"\r\n", 400),
        (b"5;" + b"x" * 300 + b"\r\nhello\r\n0\r\n\r\n", 400),
        (b"5;" + b"x" * 300, 400),
        (b"3e9\r\n", 413),
        (b"fffffffffffffff\r\n", 413),
        (b"5\r\nhello\r\n3e4\r\n", 413),
        (b"0\r\nno colon\r\n\r\n", 400),
        (b"0\r\nX: a\0\r\n\r\n", 400),
        (b"0\r\n" + b"X: 1\r\n" * 11 + b"\r\n", 431),
        (b"0\r\n" + b"X: 111111111122222222223333333333444444444455555555556666666666\r\n" * 9 + b"\r\n", 400),
        (b"0\r\n" + b"x" * 600, 400),
    ],
)
def test_a_chunked_body_that_is_none_is_refused(body: bytes, status: int):
    requests, refusal = parse([POST + b"Transfer-Encoding: Chunked\r\n\r\n" + body])
    assert not requests
    assert refusal is not None
    assert refusal[0] == status


def test_a_body_in_chunks_of_one_byte_is_refused_when_there_are_many():
    head = POST + b"Transfer-Encoding: chunked\r\n\r\n"
    limits = Limits()
    assert parse([head + b"1\r\nx\r\n" * (CHUNKS_FREE - 1) + b"0\r\n\r\n"], limits)[1] is None
    _, refusal = parse([head + b"1\r\nx\r\n" * CHUNKS_FREE * 2], limits)
    assert refusal is not None
    assert "too many chunks" in refusal[1]


def test_the_limit_is_named_and_a_body_of_that_size_is_taken():
    _, refusal = parse([POST + b"Content-Length: 1001\r\n\r\n"])
    assert refusal == (413, "the body has more than 1,000 bytes, which are the limit")
    ((request,), _) = parse([POST + b"Content-Length: 1000\r\n\r\n" + b"x" * 1000])
    assert len(request.body) == 1000
    ((request,), _) = parse([POST + b"Transfer-Encoding: chunked\r\n\r\n3e8\r\n" + b"x" * 1000 + b"\r\n0\r\n\r\n"])
    assert len(request.body) == 1000


def test_a_head_of_the_largest_size_is_taken():
    size = SMALL.head_bytes - len(POST) - len(b"X: \r\n\r\n")
    assert parse([POST + b"X: " + b"x" * size + b"\r\n\r\n"])[1] is None
    assert parse([POST + b"X: " + b"x" * (size + 1) + b"\r\n\r\n"])[1] is not None


def test_nothing_is_held_when_all_has_been_read():
    parser = RequestParser(Limits())
    parser.feed(POST + b"Content-Length: 100000\r\n\r\n" + b"x" * 100_000)
    assert parser.read_head() is not None
    assert parser.read_body() is not None
    assert parser._data == b""


def cut(data: bytes, places: list[int]) -> list[bytes]:
    marks = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[begin:end] for begin, end in pairwise(marks)]


streams = st.lists(st.sampled_from([PLAIN, CHUNKED, GET, OLD, b"\r\n", *REFUSED]), min_size=1, max_size=5).map(b"".join)
places = st.lists(st.integers(0, 2**20), max_size=20)


@given(streams, places)
def test_any_cut_of_the_bytes_gives_the_same(data: bytes, where: list[int]):
    whole = parse([data])
    assert parse(cut(data, where)) == whole
    assert parse(data[n : n + 1] for n in range(len(data))) == whole


@given(streams, st.lists(st.tuples(st.integers(0, 2**20), st.binary(max_size=4), st.booleans()), max_size=5), places)
def test_any_cut_of_damaged_bytes_gives_the_same(data: bytes, damage: list[tuple[int, bytes, bool]], where: list[int]):
    for place, put, replace in damage:
        at = place % (len(data) + 1)
        data = data[:at] + put + data[at + len(put) * replace :]
    whole = parse([data])
    assert parse(cut(data, where)) == whole
    assert parse(data[n : n + 1] for n in range(len(data))) == whole


@given(st.lists(st.binary(max_size=200), max_size=10))
@example([b"\r"])
@example([b"\r\n", b"\r"])
def test_garbage_is_refused_and_raises_nothing_else(pieces: list[bytes]):
    assert parse(pieces) == parse([b"".join(pieces)])


@given(st.lists(st.tuples(st.sampled_from(["/a", "/b?c=d"]), st.binary(max_size=900), st.integers(0, 50)), max_size=4))
def test_what_is_sent_is_what_is_read(calls: list[tuple[str, bytes, int]]):
    data = b""
    for target, body, step in calls:
        data += f"PUT {target} HTTP/1.1\r\nHost: a\r\n".encode()
        if step:
            pieces = [body[at : at + step] for at in range(0, len(body), step)]
            data += b"Transfer-Encoding: chunked\r\n\r\n"
            data += b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in [*pieces, b""])
        else:
            data += b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    requests, refusal = parse([data])
    assert refusal is None
    assert [(request.path, request.body) for request in requests] == [(t.partition("?")[0], b) for t, b, _ in calls]
