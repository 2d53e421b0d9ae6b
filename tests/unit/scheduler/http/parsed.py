"""Everything that a parser makes of bytes, however they are cut."""

from __future__ import annotations

from collections.abc import Iterable

from fairlead.scheduler.http.limits import Limits
from fairlead.scheduler.http.messages import Request
from fairlead.scheduler.http.parsing import Head, Refused, RequestParser

SMALL = Limits(head_bytes=512, headers=10, body_bytes=1000, bodies_bytes=1000, small_body_bytes=100)


def parse(pieces: Iterable[bytes], limits: Limits = SMALL) -> tuple[list[Request], tuple[int, str] | None]:
    """The requests, and the refusal that ended them."""
    parser = RequestParser(limits)
    requests: list[Request] = []
    head: Head | None = None
    try:
        for piece in pieces:
            parser.feed(piece)
            while True:
                head = head or parser.read_head()
                body = None if head is None else parser.read_body()
                if head is None or body is None:
                    break
                requests.append(Request(head.method, head.path, head.query, head.headers, body))
                head = None
    except Refused as refused:
        return requests, (refused.status, refused.reason)
    return requests, None


def head_of(data: bytes, limits: Limits = SMALL) -> Head:
    parser = RequestParser(limits)
    parser.feed(data)
    head = parser.read_head()
    assert head is not None
    return head
