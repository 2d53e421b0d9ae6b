"""Messages as frozen structs, and protobuf's wire format for them (proto3).

A class says its fields; the functions that encode and decode it are written out in Python when first needed, because
a loop over field descriptions is too slow for a list of 60,000 devices. Knows no service and no transport.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast, dataclass_transform

import msgspec

from fairlead.wire.varint import DecodeError, EncodeError, read_varint, skip_field, write_varint

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["DecodeError", "EncodeError", "decode", "encode", "field", "fields_of", "message"]

M = TypeVar("M")

_DEFAULTS: dict[str, Any] = {"str": "", "bool": False, "int": 0, "bytes": b""}
# kind: lowest, highest, bits the decoder keeps, signed
_INTS = {
    "int32": (-(1 << 31), (1 << 31) - 1, 32, True),
    "int64": (-(1 << 63), (1 << 63) - 1, 64, True),
    "uint64": (0, (1 << 64) - 1, 64, False),
}


class FieldSpec(NamedTuple):
    """One field of a message, as its class wrote it down."""

    name: str
    type: str  # the annotation, as text
    number: int
    kind: str  # matters to integers only
    most: int  # matters to repeated fields only; 0: as many as come


def field(number: int, *, kind: str = "int64", most: int = 0) -> Any:
    """A field and its number. `kind` matters to integers only.

    `most`: with more items than this in a repeated field the message is refused, before they are all made. An empty
    item takes two bytes on the wire, and a hundred times as much in memory.
    """
    return number, kind, most


# `field` is no field specifier to type checkers on purpose: an assigned value means a default, which every field has.
@dataclass_transform(frozen_default=True)
def message(cls: type[M]) -> type[M]:
    """Makes a frozen struct whose fields default to proto3's zero values.

    The module must import annotations from __future__: types are read as text, so that nothing is resolved at import.
    """
    specs = tuple(FieldSpec(name, kind, *getattr(cls, name)) for name, kind in cls.__annotations__.items())
    made: Any = msgspec.defstruct(
        cls.__name__,
        [(spec.name, Any, _default(spec.type)) for spec in specs],
        module=cls.__module__,
        namespace={"__doc__": cls.__doc__},
        frozen=True,
    )
    _FIELDS[made] = specs
    return cast("type[M]", made)


def fields_of(cls: type) -> tuple[FieldSpec, ...]:
    if cls not in _FIELDS:
        raise TypeError(f"{cls.__name__} is not a message")
    return _FIELDS[cls]


def _default(kind: str) -> Any:
    if kind.startswith("tuple["):
        return ()
    if kind.startswith("Mapping["):
        return msgspec.field(default_factory=dict)
    return None if kind.endswith("| None") else _DEFAULTS[kind]


_FIELDS: dict[type, tuple[FieldSpec, ...]] = {}


def encode(msg: object) -> bytes:
    cls = type(msg)
    write = _ENCODERS.get(cls) or _compile_encoder(cls)
    try:
        return write(msg)
    except (TypeError, AttributeError, UnicodeEncodeError) as error:
        raise EncodeError(f"{cls.__name__} cannot be encoded: {error}") from error


def decode(cls: type[M], data: bytes | memoryview) -> M:
    read = _DECODERS.get(cls) or _compile_decoder(cls)
    data = bytes(data)
    try:
        value: M = read(data, 0, len(data))
    except IndexError:
        raise DecodeError(f"{cls.__name__} ends inside a field") from None
    except UnicodeDecodeError as error:
        raise DecodeError(f"{cls.__name__} holds a string that is not UTF-8") from error
    return value


_ENCODERS: dict[type, Callable[[Any], bytes]] = {}
_DECODERS: dict[type, Callable[[bytes, int, int], Any]] = {}


def _resolve(cls: type, name: str) -> type:
    found = getattr(sys.modules[cls.__module__], name)
    assert isinstance(found, type)
    return found


def _write_bytes(tag: bytes) -> Callable[[bytes], bytes]:
    """Prefixes a payload with its tag and length; the short lengths are made beforehand."""
    short = tuple(tag + bytes((size,)) for size in range(128))

    def write(payload: bytes) -> bytes:
        size = len(payload)
        return (short[size] if size < 128 else tag + write_varint(size)) + payload

    return write


def _write_int(kind: str, where: str) -> Callable[[int], bytes]:
    low, high, _, _ = _INTS[kind]

    def write(value: int) -> bytes:
        if not low <= value <= high:
            raise EncodeError(f"{where} is {value}, which is not an {kind}")
        return write_varint(value & (1 << 64) - 1)

    return write


def _compile_encoder(cls: type) -> Callable[[Any], bytes]:
    env: dict[str, Any] = {}
    body: list[str] = ["def encode(m):", " out = []"]
    for i, spec in enumerate(sorted(fields_of(cls), key=lambda spec: spec.number)):
        kind, number = spec.type, spec.number
        body.append(f" v = m.{spec.name}")
        env[f"tag0_{i}"] = write_varint(number << 3)
        env[f"put{i}"] = _write_bytes(write_varint(number << 3 | 2))
        env[f"int{i}"] = _write_int(spec.kind, f"{cls.__name__}.{spec.name}")
        optional = kind.endswith("| None")
        item = kind.removesuffix("| None").strip()
        body.append(" if v is not None:" if optional else " if v:")
        if repeated := item.startswith("tuple["):
            item = item[len("tuple[") :].split(",", maxsplit=1)[0]
        if item.startswith("Mapping["):
            env["key"], env["value"] = _write_bytes(b"\x0a"), _write_bytes(b"\x12")
            body.append(f"  out += [put{i}(key(k.encode()) + value(x.encode())) for k, x in v.items()]")
        elif item in {"int", "bool"}:
            packed = f"b''.join([int{i}(x) for x in v])" if item == "int" else "bytes(map(bool, v))"
            single = f"int{i}(v)" if item == "int" else "b'\\x01'"
            body.append(f"  out.append(put{i}({packed}))" if repeated else f"  out.append(tag0_{i} + {single})")
        else:
            payload = {"str": "{}.encode()", "bytes": "{}"}.get(item)
            if payload is None:
                part = _resolve(cls, item)
                env[f"sub{i}"] = _ENCODERS.get(part) or _compile_encoder(part)
                payload = f"sub{i}({{}})"
            if repeated:
                body.append(f"  out += [put{i}({payload.format('x')}) for x in v]")
            else:
                body.append(f"  out.append(put{i}({payload.format('v')}))")
    body.append(" return b''.join(out)")
    made: Callable[[Any], bytes] = _build("encode", body, env)
    _ENCODERS[cls] = made
    return made


def _build(name: str, body: list[str], env: dict[str, Any]) -> Any:
    exec("\n".join(body), env)  # noqa: S102 - the text is made above from our own class bodies, never from data
    return env[name]


_READ_SIZE = (
    "   n = data[at]; at += 1",
    "   if n > 127: n, at = varint(data, at - 1)",
    "   stop = at + n",
    "   if stop > end: raise DecodeError('a field runs past the end of its message')",
)


def _read_entry(data: bytes, at: int, end: int) -> tuple[str, str]:
    """One entry of a map<string, string>."""
    key = value = ""
    while at < end:
        tag, at = read_varint(data, at)
        if tag in {0x0A, 0x12}:
            size, at = read_varint(data, at)
            stop = at + size
            if stop > end:
                raise DecodeError("a field runs past the end of its message")
            text = data[at:stop].decode()
            key, value = (text, value) if tag == 0x0A else (key, text)
            at = stop
        else:
            at = skip_field(data, at, end, tag)
    if at > end:
        raise DecodeError("a field runs past the end of its message")
    return key, value


def _narrow(kind: str) -> Callable[[int], int]:
    """What proto3 makes of a varint that is too wide for its field."""
    _, high, bits, signed = _INTS[kind]
    mask = (1 << bits) - 1

    def narrow(value: int) -> int:
        value &= mask
        return value - mask - 1 if signed and value > high else value

    return narrow


def _compile_decoder(cls: type) -> Callable[[bytes, int, int], Any]:
    env: dict[str, Any] = {
        "varint": read_varint, "skip": skip_field, "DecodeError": DecodeError, "entry": _read_entry, "cls": cls,
    }  # fmt: skip
    first: list[str] = []
    loop: list[str] = []
    last: list[str] = []
    for i, spec in enumerate(fields_of(cls)):
        kind, number = spec.type, spec.number
        env[f"narrow{i}"] = _narrow(spec.kind)
        repeated = kind.startswith("tuple[")
        item = kind[len("tuple[") :].split(",", maxsplit=1)[0] if repeated else kind.removesuffix("| None").strip()
        scalar = {"bool": "n != 0", "int": f"narrow{i}(n)"}.get(item)
        branch = "elif" if loop else "if"
        if scalar:
            put = f"v{i}.append({scalar})" if repeated else f"v{i} = {scalar}"
            loop += [f"  {branch} tag == {number << 3}:", "   n, at = varint(data, at)", f"   {put}"]
            if repeated:
                loop += [f"  elif tag == {number << 3 | 2}:", *_READ_SIZE]
                loop += ["   while at < stop:", "    n, at = varint(data, at)", f"    {put}"]
                loop += ["   if at != stop: raise DecodeError('a packed field ends inside a number')"]
        else:
            loop += [f"  {branch} tag == {number << 3 | 2}:", *_READ_SIZE]
            piece = {"str": "data[at:stop].decode()", "bytes": "data[at:stop]"}.get(item)
            if piece is None and not item.startswith("Mapping["):
                part = _resolve(cls, item)
                env[f"sub{i}"] = _DECODERS.get(part) or _compile_decoder(part)
            if item.startswith("Mapping["):
                loop.append(f"   k, x = entry(data, at, stop); v{i}[k] = x")
            elif piece is None and not repeated:
                # Parts of one message may come in pieces; proto3 merges them, which is what decoding them joined does.
                loop.append(f"   v{i}.append((at, stop))")
                last.append(f" v{i} = join(sub{i}, data, v{i}) if v{i} else None")
                env["join"] = _join
            else:
                piece = piece or f"sub{i}(data, at, stop)"
                loop += [f"   v{i}.append({piece})", *_bound(cls, spec, i)] if repeated else [f"   v{i} = {piece}"]
            loop.append("   at = stop")
        if repeated:
            first.append(f" v{i} = []")
            last.append(f" v{i} = tuple(v{i})")
        elif item.startswith("Mapping["):
            first.append(f" v{i} = {{}}")
        elif item not in _DEFAULTS:
            first.append(f" v{i} = []")
        else:
            first.append(f" v{i} = {_default(kind)!r}")
    skip = "at = skip(data, at, end, tag)"
    body = ["def decode(data, at, end):", *first, " while at < end:"]
    body += ["  tag = data[at]; at += 1", "  if tag > 127: tag, at = varint(data, at - 1)"]
    body += [*loop, "  else:", f"   {skip}"] if loop else [f"  {skip}"]
    body += [" if at > end: raise DecodeError('a field runs past the end of its message')", *last]
    body.append(f" return cls({', '.join(f'v{i}' for i in range(len(first)))})")
    made: Callable[[bytes, int, int], Any] = _build("decode", body, env)
    _DECODERS[cls] = made
    return made


def _bound(cls: type, spec: FieldSpec, i: int) -> list[str]:
    if not spec.most:
        return []
    text = f"{cls.__name__}.{spec.name} has more than {spec.most} items"
    return [f"   if len(v{i}) > {spec.most}: raise DecodeError('{text}')"]


def _join(read: Callable[[bytes, int, int], Any], data: bytes, spans: list[tuple[int, int]]) -> Any:
    if len(spans) == 1:
        return read(data, *spans[0])
    whole = b"".join([data[at:stop] for at, stop in spans])
    return read(whole, 0, len(whole))
