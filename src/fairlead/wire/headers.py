"""Header lists: encoded as fixed literals, decoded by `hpack`, checked by RFC 9113 section 8. Knows no stream state."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hpack import Decoder
from hpack.exceptions import HPACKError, OversizedHeaderListError

from fairlead.wire.frames import ErrorCode
from fairlead.wire.varint import write_varint

if TYPE_CHECKING:
    from collections.abc import Iterable

Fields = tuple[tuple[bytes, bytes], ...]

# Lower case is RFC 9113's demand; the other characters are RFC 9110's token. A colon may only lead.
_NAME = re.compile(rb":?[!#$%&'*+\-.^_`|~0-9a-z]+")
# RFC 9113 would have spaces at a value's ends refused too. gRPC's libraries send them in grpc-message, so they pass.
_BAD_VALUE = re.compile(rb"[\x00\r\n]")
_STATUS = re.compile(rb"[1-9][0-9][0-9]")
_HOP_BY_HOP = frozenset({b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade"})
_REQUEST_PSEUDO = frozenset({b":method", b":scheme", b":path", b":authority"})
_RESPONSE_PSEUDO = frozenset({b":status"})

# Blocks that repeat exactly are decoded once. A kubelet uses five methods; this leaves room for a few clients' habits.
_REMEMBERED_BLOCKS = 64


class HeaderError(Exception):
    """The header block ends the connection: the compression state can no longer be trusted."""

    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class HeaderList:
    """A decoded header list and what was found out about it."""

    __slots__ = ("content_length", "fields", "memo", "valid_as")

    def __init__(self, fields: Fields) -> None:
        self.fields = fields
        # What the layer above made of it. The list is shared by all requests with the same bytes.
        self.memo: object = None
        self.content_length: int | None = None
        self.valid_as: set[str] = set()  # the roles in which it was found to be well formed

    def get(self, name: bytes) -> bytes | None:
        for key, value in self.fields:
            if key == name:
                return value
        return None

    def find_flaw(self, role: str) -> str:
        """Why this is malformed as a "request", "response" or "trailers"; empty when it is well formed."""
        if role in self.valid_as:
            return ""
        flaw = self._check(role)
        if not flaw:
            self.valid_as.add(role)
        return flaw

    def _check(self, role: str) -> str:
        pseudo: dict[bytes, bytes] = {}
        regular = False
        for name, value in self.fields:
            if not _NAME.fullmatch(name):
                return f"header name {name!r} is not allowed"
            if _BAD_VALUE.search(value):
                return f"header {name!r} has a value that is not allowed"
            if name[0] == 0x3A:
                if regular:
                    return f"{name!r} stands after a regular header"
                if name in pseudo:
                    return f"{name!r} is repeated"
                pseudo[name] = value
                continue
            regular = True
            flaw = self._check_regular(name, value)
            if flaw:
                return flaw
        if role == "request":
            return _check_request(pseudo)
        if role == "response":
            return _check_response(pseudo)
        return f"{next(iter(pseudo))!r} stands in the trailers" if pseudo else ""

    def _check_regular(self, name: bytes, value: bytes) -> str:
        if name in _HOP_BY_HOP:
            return f"{name!r} belongs to HTTP/1"
        if name == b"te" and value.lower() != b"trailers":
            return "te says something else than trailers"
        if name == b"content-length":
            if not value.isdigit() or len(value) > 19:
                return "content-length is not a number"
            if self.content_length not in {None, int(value)}:
                return "content-length is given twice"
            self.content_length = int(value)
        return ""


def _check_request(pseudo: dict[bytes, bytes]) -> str:
    unknown = pseudo.keys() - _REQUEST_PSEUDO
    if unknown:
        return f"{min(unknown)!r} is not for requests"
    if pseudo.get(b":method") == b"CONNECT":
        # RFC 9113, 8.5: a tunnel names an authority and nothing else.
        return "" if pseudo.keys() == {b":method", b":authority"} else "a CONNECT request names :authority alone"
    for name in (b":method", b":scheme", b":path"):
        if not pseudo.get(name):
            return f"{name!r} is missing or empty"
    return ""


def _check_response(pseudo: dict[bytes, bytes]) -> str:
    if pseudo.keys() != _RESPONSE_PSEUDO:
        return "a response names :status alone"
    if not _STATUS.fullmatch(pseudo[b":status"]) or pseudo[b":status"] == b"101":
        return f":status {pseudo[b':status']!r} is not allowed"
    return ""


class HeaderDecoder:
    """One direction's HPACK state. Blocks seen before cost one look-up while the dynamic table stays as it was."""

    def __init__(self, header_list_bytes: int) -> None:
        self._decoder = Decoder(max_header_list_size=header_list_bytes)
        self._known: dict[bytes, HeaderList] = {}

    def read(self, block: bytes) -> HeaderList:
        head = self._known.get(block)
        if head is not None:
            return head
        table = self._decoder.header_table
        before = (
            table.maxsize,
            len(table.dynamic_entries),
            table.dynamic_entries[0] if table.dynamic_entries else None,
        )
        try:
            raw = self._decoder.decode(block, raw=True)
        except OversizedHeaderListError as error:
            raise HeaderError(ErrorCode.ENHANCE_YOUR_CALM, "the header list is too long") from error
        except (HPACKError, IndexError, ValueError) as error:
            raise HeaderError(ErrorCode.COMPRESSION_ERROR, "the header block does not decode") from error
        head = HeaderList(tuple((bytes(name), bytes(value)) for name, value in raw))
        after = (table.maxsize, len(table.dynamic_entries), table.dynamic_entries[0] if table.dynamic_entries else None)
        # Every insertion puts a new object in front, so three comparisons see every change of the table.
        if before[:2] != after[:2] or before[2] is not after[2]:
            self._known.clear()
        elif len(self._known) < _REMEMBERED_BLOCKS:
            self._known[block] = head
        return head


def encode_int(value: int, prefix_bits: int, first: int = 0) -> bytes:
    """RFC 7541, 5.1."""
    most = (1 << prefix_bits) - 1
    return bytes((first | value,)) if value < most else bytes((first | most,)) + write_varint(value - most)


def encode_fields(fields: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Literals without indexing: no state, so a block may be made once and sent on any connection."""
    out = bytearray()
    for name, value in fields:
        index = _STATIC_PAIRS.get((name, value))
        if index:
            out += encode_int(index, 7, 0x80)
            continue
        index = _STATIC_NAMES.get(name, 0)
        out += encode_int(index, 4)
        if not index:
            out += encode_int(len(name), 7) + name
        out += encode_int(len(value), 7) + value
    return bytes(out)


# The entries of RFC 7541's static table that gRPC has a use for.
_STATIC_PAIRS = {
    (b":method", b"POST"): 3,
    (b":scheme", b"http"): 6,
    (b":status", b"200"): 8,
}
_STATIC_NAMES = {b":authority": 1, b":path": 4, b":status": 8, b"content-length": 28, b"content-type": 31}
