"""Bytes for the fuzzer: conversations that begin valid, the damage done to them, and frames out of nowhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpack import Encoder

from fairlead.wire import deviceplugin as dp
from fairlead.wire import frames as f
from fairlead.wire.grpc import length_prefixed
from fairlead.wire.headers import encode_fields
from fairlead.wire.proto import encode

if TYPE_CHECKING:
    import random

Fields = list[tuple[bytes, bytes]]

PATHS = (b"/v1beta1.DevicePlugin/Allocate",) * 3 + (
    b"/v1beta1.DevicePlugin/ListAndWatch",
    b"/v1beta1.DevicePlugin/PreStartContainer",
    b"/nobody/Home",
    b"/",
)


def _request(path: bytes, *extra: tuple[bytes, bytes]) -> Fields:
    return [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", path),
        (b":authority", b"localhost"),
        (b"content-type", b"application/grpc"),
        (b"te", b"trailers"),
        *extra,
    ]


EXTRAS: tuple[tuple[bytes, bytes], ...] = (
    (b"grpc-timeout", b"1S"),
    (b"grpc-timeout", b"1x"),
    (b"grpc-timeout", b"0n"),
    (b"content-length", b"12"),
    (b"connection", b"close"),
    (b"Upper", b"case"),
    (b"x-long", b"y" * 2500),
    (b"data-bin", b"AAEC"),
    (b"te", b"gzip"),
    (b":late", b"pseudo"),
    (b"x", b"\x00"),
)
RESPONSES: tuple[Fields, ...] = (
    [(b":status", b"200"), (b"content-type", b"application/grpc")],
    [(b":status", b"200"), (b"content-type", b"text/html")],
    [(b":status", b"404")],
    [(b":status", b"100")],
    [(b":status", b"20")],
    [],
)
TRAILERS: tuple[Fields, ...] = (
    [(b"grpc-status", b"0")],
    [(b"grpc-status", b"5"), (b"grpc-message", b"n%C3%B6t f%ound")],
    [(b"grpc-status", b"many")],
    [(b":status", b"200")],
)
BODIES = (
    length_prefixed(encode(dp.AllocateRequest((dp.ContainerAllocateRequest(("a", "b")),)))),
    length_prefixed(encode(dp.AllocateResponse((dp.ContainerAllocateResponse(envs={"A": "b"}),)))),
    length_prefixed(b""),
    length_prefixed(b"\xff" * 9),
    length_prefixed(b"") * 2,
    length_prefixed(b"x" * 2990),
    length_prefixed(b"y" * 3500),
    b"\x01\x00\x00\x00\x01z",
    b"\x00\x00",
    b"",
)


def _block(rng: random.Random, encoder: Encoder, fields: Fields) -> bytes:
    """Sometimes with the peer's dynamic table, sometimes without."""
    if rng.random() < 0.5:
        return encode_fields(fields)
    return encoder.encode(fields, huffman=rng.random() < 0.5)


def _headers(rng: random.Random, stream: int, block: bytes, *, end: bool) -> bytes:
    flags = f.END_STREAM if end else 0
    if rng.random() < 0.1:
        flags |= f.WITH_PRIORITY
        block = f.UINT32.pack(rng.choice((0, stream, 7))) + b"\x10" + block
    if rng.random() < 0.1:
        flags |= f.PADDED
        block = bytes((4,)) + block + bytes(4)
    if rng.random() < 0.1:
        middle = len(block) // 2
        return f.frame(f.HEADERS, flags, stream, block[:middle]) + f.frame(
            f.CONTINUATION, f.END_HEADERS, stream, block[middle:]
        )
    return f.frame(f.HEADERS, flags | f.END_HEADERS, stream, block)


def _data(rng: random.Random, stream: int, body: bytes, *, end: bool) -> bytes:
    flags = f.END_STREAM if end else 0
    if rng.random() < 0.1:
        return f.frame(f.DATA, flags | f.PADDED, stream, b"\x02" + body + b"\0\0")
    if rng.random() < 0.15 and len(body) > 6:
        return f.frame(f.DATA, 0, stream, body[:6]) + f.frame(f.DATA, flags, stream, body[6:])
    return f.frame(f.DATA, flags, stream, body)


def _noise(rng: random.Random, last: int) -> bytes:
    stream = rng.choice((0, last, max(1, last - 2), last + 2, 2))
    return rng.choice(
        (
            lambda: f.frame(f.PING, rng.choice((0, 1)), 0, b"12345678"),
            lambda: f.settings({rng.choice((1, 2, 3, 4, 5, 6, 99)): rng.choice((0, 1, 100, 16_384, 70_000, 1 << 31))}),
            lambda: f.frame(f.SETTINGS, f.ACK, 0),
            lambda: f.window_update(stream, rng.choice((0, 1, 5000, 60_000, f.MAX_WINDOW))),
            lambda: f.rst_stream(last, rng.choice((0, 5, 7, 8, 11, 4000))),
            lambda: f.frame(f.PRIORITY, 0, stream, f.UINT32.pack(rng.choice((0, stream))) + b"\x01"),
            lambda: f.goaway(rng.choice((0, last)), rng.choice((0, 2, 11, 999)), b"bye"),
            lambda: f.frame(rng.randrange(10, 256), 0xFF, stream, b"new"),
            lambda: f.frame(f.DATA, 0, stream),
            lambda: f.frame(f.PUSH_PROMISE, f.END_HEADERS, stream, f.UINT32.pack(2)),
            lambda: f.frame(f.CONTINUATION, f.END_HEADERS, stream),
        )
    )()


def client_bytes(rng: random.Random) -> bytes:
    """What a client sends: the preface and a few calls, with other frames in between."""
    encoder = Encoder()
    settings = {f.INITIAL_WINDOW_SIZE: rng.choice((0, 10, 65_535))} if rng.random() < 0.4 else {}
    out = [f.PREFACE, f.settings(settings)]
    stream = -1
    for _ in range(rng.randint(1, 5)):
        if stream < 0 or rng.random() < 0.75:
            stream = max(1, stream + 2)
            extra = (rng.choice(EXTRAS),) if rng.random() < 0.2 else ()
            fields = _request(rng.choice(PATHS), *extra)
            end = rng.random() < 0.1
            out.append(_headers(rng, stream, _block(rng, encoder, fields), end=end))
            if not end:
                out.append(_data(rng, stream, rng.choice(BODIES), end=rng.random() < 0.8))
        else:
            out.append(_noise(rng, stream))
    return b"".join(out)


def server_bytes(rng: random.Random) -> bytes:
    """What a server answers to calls 1, 3 and 5, whether or not they were made."""
    encoder = Encoder()
    out = [f.settings({f.MAX_CONCURRENT_STREAMS: rng.choice((0, 1, 100))} if rng.random() < 0.3 else {})]
    for stream in rng.sample((1, 3, 5), rng.randint(1, 3)):
        head = RESPONSES[0] if rng.random() < 0.7 else rng.choice(RESPONSES)
        out.append(_headers(rng, stream, _block(rng, encoder, head), end=rng.random() < 0.1))
        out.extend(_data(rng, stream, rng.choice(BODIES), end=rng.random() < 0.1) for _ in range(rng.randint(0, 4)))
        if rng.random() < 0.8:
            out.append(_headers(rng, stream, _block(rng, encoder, rng.choice(TRAILERS)), end=rng.random() < 0.9))
        if rng.random() < 0.3:
            out.append(_noise(rng, stream))
    return b"".join(out)


def damage(rng: random.Random, data: bytes) -> bytes:
    """Flips, cuts, doubles and inserts; one case in five stays as it is."""
    raw = bytearray(data)
    for _ in range(rng.choice((0, 1, 1, 2, 4))):
        at = rng.randrange(len(raw) + 1)
        size = rng.choice((1, 1, 4, 9, 30))
        kind = rng.randrange(5)
        if kind == 0 and at < len(raw):
            raw[at] = rng.randrange(256)
        elif kind == 1:
            del raw[at : at + size]
        elif kind == 2:
            raw[at:at] = raw[at : at + size]
        elif kind == 3:
            raw[at:at] = rng.randbytes(size)
        elif kind == 4 and rng.random() < 0.3:
            del raw[at:]
    return bytes(raw)


def random_frames(rng: random.Random) -> bytes:
    """Frames with a plausible header and any payload."""
    out = bytearray()
    for _ in range(rng.randint(1, 8)):
        size = rng.choice((0, 1, 4, 5, 6, 8, 9, 40))
        kind = rng.choice((0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 1, rng.randrange(256)))
        out += f.frame_header(size, kind, rng.randrange(256), rng.choice((0, 1, 1, 3, 5, 2, 1 << 31 | 1)))
        out += rng.randbytes(size)
    return bytes(out)
