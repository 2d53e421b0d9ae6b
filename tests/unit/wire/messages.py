"""Every message of the three services, paired with google.protobuf's class of the same name, and values for both."""

from __future__ import annotations

import functools
from typing import Any

import msgspec
from hypothesis import strategies as st
from tests.unit.wire import podresources_whole

from fairlead.standin._gen import deviceplugin_v1beta1_pb2, pluginregistration_v1_pb2, podresources_v1_pb2
from fairlead.wire import deviceplugin, pluginregistration, podresources
from fairlead.wire.proto import fields_of

PAIRS: list[tuple[type, Any]] = [
    (cls, getattr(theirs, name))
    for ours, theirs in (
        (deviceplugin, deviceplugin_v1beta1_pb2),
        (podresources, podresources_v1_pb2),
        (podresources_whole, podresources_v1_pb2),
        (pluginregistration, pluginregistration_v1_pb2),
    )
    for name, cls in vars(ours).items()
    if isinstance(cls, type) and issubclass(cls, msgspec.Struct) and cls.__module__ == ours.__name__
]
IDS = [f"{cls.__module__.rpartition('.')[2]}.{cls.__name__}" for cls, _ in PAIRS]

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30) | st.just("x" * 200)
_INTS = {
    "int32": st.integers(-(1 << 31), (1 << 31) - 1),
    "int64": st.integers(-(1 << 63), (1 << 63) - 1),
    "uint64": st.integers(0, (1 << 64) - 1),
}


@functools.cache
def values(cls: type) -> st.SearchStrategy[Any]:
    module = __import__(cls.__module__, fromlist=["_"])

    def of(kind: str, int_kind: str) -> st.SearchStrategy[Any]:
        if kind.startswith("tuple["):
            return st.lists(of(kind[6:].split(",", maxsplit=1)[0], int_kind), max_size=3).map(tuple)
        if kind.startswith("Mapping["):
            return st.dictionaries(_TEXT, _TEXT, max_size=3)
        if kind.endswith("| None"):
            return st.none() | of(kind.removesuffix("| None").strip(), int_kind)
        if kind in {"str", "bool", "int"}:
            return {"str": _TEXT, "bool": st.booleans(), "int": _INTS[int_kind]}[kind]
        return values(getattr(module, kind))

    return st.builds(cls, *(of(f.type, f.kind) for f in fields_of(cls)))


def to_theirs(msg: Any, theirs: Any) -> Any:
    """The same message as an object of google.protobuf, field by field, matched by number."""
    out = theirs()
    for spec in fields_of(type(msg)):
        value = getattr(msg, spec.name)
        name = theirs.DESCRIPTOR.fields_by_number[spec.number].name
        if isinstance(value, tuple):
            target = getattr(out, name)
            for item in value:
                if isinstance(item, msgspec.Struct):
                    target.add().CopyFrom(to_theirs(item, _class_of(theirs, name)))
                else:
                    target.append(item)
        elif isinstance(value, dict):
            getattr(out, name).update(value)
        elif isinstance(value, msgspec.Struct):
            getattr(out, name).CopyFrom(to_theirs(value, _class_of(theirs, name)))
            getattr(out, name).SetInParent()
        elif value is not None:
            setattr(out, name, value)
    return out


def _class_of(theirs: Any, name: str) -> Any:
    return theirs.DESCRIPTOR.fields_by_name[name].message_type._concrete_class
