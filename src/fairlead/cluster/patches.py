"""The four ways to change part of an object. One that is written whole loses others' changes: see `changes.py`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, TypeAlias

import msgspec
from msgspec import Struct


def pointer(*words: str) -> str:
    """A JSON pointer: `example.com/gpu` becomes `example.com~1gpu`."""
    return "".join("/" + word.replace("~", "~0").replace("/", "~1") for word in words)


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

    def encode(self) -> bytes:
        return msgspec.json.encode(self.ops)


class MergePatch(Struct, frozen=True):
    """Maps are merged, null removes, lists are replaced."""

    body: Any

    content_type: ClassVar[str] = "application/merge-patch+json"

    def encode(self) -> bytes:
        return msgspec.json.encode(self.body)


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


class StrategicPatch(Struct, frozen=True):
    """As a merge patch, but lists are merged by their keys. Only for the kinds that Kubernetes itself brings."""

    body: Any

    content_type: ClassVar[str] = "application/strategic-merge-patch+json"

    def encode(self) -> bytes:
        return msgspec.json.encode(self.body)


class Apply(Struct, frozen=True):
    """Server-side apply: the fields we care for. What we stop to mention goes, unless another owns it too."""

    body: Any
    manager: str
    force: bool = False  # take fields from other managers instead of a conflict

    content_type: ClassVar[str] = "application/apply-patch+yaml"

    def encode(self) -> bytes:
        return msgspec.json.encode(self.body)  # JSON is YAML


Patch: TypeAlias = JsonPatch | MergePatch | StrategicPatch | Apply


def json_patch(ops: Iterable[Op]) -> JsonPatch:
    return JsonPatch(tuple(ops))
