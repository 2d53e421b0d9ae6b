"""What a handler gets and gives, and a reply as bytes. Knows nothing of connections."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping

import msgspec
from msgspec import Struct

JSON = "application/json"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
PHRASES = {
    200: "OK",
    204: "No Content",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    409: "Conflict",
    413: "Content Too Large",
    417: "Expectation Failed",
    422: "Unprocessable Content",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    501: "Not Implemented",
    503: "Service Unavailable",
    504: "Gateway Timeout",
    505: "HTTP Version Not Supported",
}

_TYPE = re.compile(r"[\x20-\x7e]+")  # anything else could end the line


class Request(Struct, frozen=True):
    method: str
    path: str
    query: str
    headers: Mapping[str, str]  # names in lower case; a name that came several times has its values joined by ", "
    body: bytes


class Reply(Struct, frozen=True):
    body: bytes = b""
    status: int = 200
    type: str = JSON


Handler = Callable[[Request], Awaitable[Reply]]
Routes = Mapping[str, Mapping[str, Handler]]  # path -> method -> handler


def explain(status: int, reason: str) -> Reply:
    """An error as our clients read it: one sentence in JSON."""
    return Reply(msgspec.json.encode({"error": reason}), status)


def checked(reply: object) -> Reply:
    """What a handler gave, when it can be sent. TypeError and ValueError name a defect of the handler."""
    if not isinstance(reply, Reply):
        raise TypeError(f"the handler gave {type(reply).__name__}, not a Reply")
    fields: tuple[tuple[object, type], ...] = ((reply.body, bytes), (reply.status, int), (reply.type, str))
    if not all(isinstance(value, kind) for value, kind in fields):
        raise TypeError(f"the handler gave a Reply with a field of another type: {reply!r:.200}")
    if not 200 <= reply.status <= 599 or not _TYPE.fullmatch(reply.type):
        raise ValueError(f"the handler gave a Reply with status {reply.status} and type {reply.type!r:.200}")
    return reply


def encode(reply: Reply, *, keep: bool, allow: str = "", bodiless: bool = False) -> bytes:
    """`bodiless`: the answer to HEAD, which has the length of the body and not the body."""
    lines = [f"HTTP/1.1 {reply.status} {PHRASES.get(reply.status, '')}"]
    body = reply.body
    if reply.status == 204:
        body = b""  # a client would take it for the next answer
    else:
        lines += [f"Content-Type: {reply.type}", f"Content-Length: {len(body)}"]
    if allow:
        lines.append(f"Allow: {allow}")
    if not keep:
        lines.append("Connection: close")
    head = "\r\n".join([*lines, "", ""]).encode("latin-1")
    return head if bodiless else head + body
