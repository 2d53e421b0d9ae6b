"""The reference of the configuration, made from the structs: for `config explain`, `config show` and the docs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import msgspec.inspect as mi
from msgspec import Struct

from fairlead.config.spec import Config
from fairlead.kit.decoding import Bytes, Seconds, did_you_mean
from fairlead.model.errors import UsageError

EXAMPLE = """\
# Devices come from backends; rules turn them into resources. First match wins.
backends:
  - kind: sim          # simulated hardware: try everything without a GPU
    fleet: h100x8
rules:
  - match: {index: 7}  # keep one device for the node itself
    exclude: true
  - match: {vendor: nvidia, memory: ">=40GiB"}
    resource: nvidia.com/gpu
  - resource: example.com/small-gpu
    replicas: 4        # every other device is shared by four
"""


class Key(Struct, frozen=True):
    """One key of the file."""

    path: str  # rules[].match.memory
    kind: str
    default: str
    text: str
    examples: tuple[Any, ...]


def keys(of: type[Struct] = Config) -> tuple[Key, ...]:
    """Every key, parents before children, in the order of the file. Of a backend's options too."""
    return tuple(_walk(mi.type_info(of), ""))


def find_keys(path: str) -> tuple[Key, ...]:
    """The key, if one is named, and all below it."""
    wanted = path.replace("[]", "").strip(".")
    known = {key.path.replace("[]", ""): key for key in keys()}
    if wanted and wanted not in known:
        raise UsageError(f"no key {path!r}{did_you_mean(wanted, (), also=known)} `fairlead config explain` lists all")
    return tuple(key for name, key in known.items() if not wanted or name == wanted or name.startswith(wanted + "."))


def describe(key: Key) -> dict[str, Any]:
    return {"key": key.path, "kind": key.kind, "default": key.default, "text": key.text, "examples": key.examples}


def explain_key(path: str) -> str:
    found = find_keys(path)
    lines = []
    if path.strip("."):
        key, *below = found
        lines += [f"{key.path}  ({key.kind}{', default ' + key.default if key.default else ''})", f"  {key.text}"]
        lines += [f"  example: {msgspec.json.encode(example).decode()}" for example in key.examples]
        lines += ["", "KEYS"] if below else []
    else:
        below = list(found)
    width = max((len(key.path) for key in below), default=0)
    lines += [f"  {key.path:{width}}  {key.text}" for key in below]
    return "\n".join(lines)


def effective(config: Config) -> Any:
    """The configuration with every default written out."""
    return _plain(config)


def _plain(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.fields(type(value))
        return {field.encode_name: _plain(getattr(value, field.name)) for field in fields}
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Seconds):
        return f"{float(value):g}s"
    if isinstance(value, Bytes):
        return f"{value >> 20}MiB" if value and not value % 2**20 else int(value)
    if isinstance(value, str):
        return str.__str__(value)
    return value


def _walk(info: Any, prefix: str) -> Iterator[Key]:
    for field in info.fields:
        described, plain = field.type, field.type
        text, examples = "", ()
        if isinstance(described, mi.Metadata):
            extra = described.extra_json_schema or {}
            text, examples = extra.get("description", ""), tuple(extra.get("examples", ()))
            plain = described.type
        path = f"{prefix}{field.encode_name}"
        kind, inner, suffix = _kind(plain)
        yield Key(path, kind, _default(field), text, examples)
        if inner is not None:
            yield from _walk(inner, f"{path}{suffix}.")


def _kind(info: Any) -> tuple[str, Any, str]:
    match info:
        case mi.Metadata():
            return _kind(info.type)
        case mi.StructType():
            return "mapping", info, ""
        case mi.ListType() | mi.VarTupleType():
            kind, inner, _ = _kind(info.item_type)
            return f"list of {kind}", inner, "[]"
        case mi.DictType():
            _, inner, _ = _kind(info.value_type)
            return "mapping", inner, ".*"
        case mi.UnionType():
            some = [one for one in info.types if not isinstance(one, mi.NoneType)]  # None: not given
            kinds = [_kind(one) for one in some]
            return kinds[0] if len(kinds) == 1 else (" or ".join(dict.fromkeys(kind for kind, _, _ in kinds)), None, "")
        case mi.LiteralType():
            return " | ".join(map(str, info.values)), None, ""
        case mi.EnumType():
            return " | ".join(str(member.value) for member in info.cls), None, ""
        case mi.CustomType():
            return _NAMES.get(info.cls.__name__, "anything"), None, ""
        case _:
            return _NAMES.get(type(info).__name__, "anything"), None, ""


_NAMES = {"StrType": "text", "IntType": "whole number", "BoolType": "true or false", "FloatType": "number"}
_NAMES |= {"Seconds": "duration", "Bytes": "size", "Words": "text or list of text"}


def _default(field: Any) -> str:
    value = field.default if field.default is not msgspec.NODEFAULT else None
    if value is None and field.default_factory is not msgspec.NODEFAULT:
        value = field.default_factory()
    if isinstance(value, msgspec.Struct) or value in (None, "", [], (), {}):
        return ""
    plain = _plain(value)
    return plain if isinstance(plain, str) else msgspec.json.encode(plain).decode()
