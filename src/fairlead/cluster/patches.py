"""Patches: changes of part of an object. An object that is written whole loses others' changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, TypeAlias

import msgspec
from msgspec import Struct


def pointer(*keys: str) -> str:
    """A JSON pointer: `example.com/gpu` becomes `example.com~1gpu`."""
    return "".join("/" + key.replace("~", "~0").replace("/", "~1") for key in keys)


class Op(Struct, frozen=True):
    """One step of a JSON patch."""

    op: str  # add (which replaces, too), remove, test
    path: str
    value: Any = msgspec.UNSET


def put(value: Any, *path: str) -> Op:
    return Op("add", pointer(*path), value)


def drop(*path: str) -> Op:
    return Op("remove", pointer(*path))


def expect(value: Any, *path: str) -> Op:
    """The whole patch is refused unless the value stands there."""
    return Op("test", pointer(*path), value)


class JsonPatch(Struct, frozen=True):
    ops: tuple[Op, ...]

    content_type: ClassVar[str] = "application/json-patch+json"
    query: ClassVar[Mapping[str, str]] = {}

    def encode(self) -> bytes:
        return msgspec.json.encode(self.ops)


class MergePatch(Struct, frozen=True):
    """Maps are merged, null removes, lists are replaced."""

    body: Any

    content_type: ClassVar[str] = "application/merge-patch+json"
    query: ClassVar[Mapping[str, str]] = {}

    def encode(self) -> bytes:
        return msgspec.json.encode(self.body)


class StrategicPatch(MergePatch, frozen=True):
    """As a merge patch, but lists of named things are merged by their names: a node's conditions by their type."""

    content_type: ClassVar[str] = "application/strategic-merge-patch+json"


class ApplyPatch(Struct, frozen=True):
    """Server-side apply: what this manager applied before and leaves out now is removed."""

    body: Any
    manager: str

    content_type: ClassVar[str] = "application/apply-patch+yaml"

    @property
    def query(self) -> Mapping[str, str]:
        return {"fieldManager": self.manager, "force": "true"}

    def encode(self) -> bytes:
        return msgspec.json.encode(self.body)  # JSON is YAML


def merge(target: Any, patch: Any) -> Any:
    """What a merge patch makes of a value, as the API server does it."""
    if not isinstance(patch, dict):
        return patch
    made = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            made.pop(key, None)
        else:
            made[key] = merge(made.get(key), value)
    return made


Patch: TypeAlias = JsonPatch | MergePatch | ApplyPatch


def json_patch(ops: Iterable[Op]) -> JsonPatch:
    return JsonPatch(tuple(ops))
