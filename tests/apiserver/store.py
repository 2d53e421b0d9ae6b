"""The objects, every version of them, and patches."""

from __future__ import annotations

import asyncio
import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Key = tuple[str, str, str]  # plural, namespace, name
Object = dict[str, Any]


class RefusedError(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass
class Happening:
    version: int
    plural: str
    namespace: str
    before: Object | None
    after: Object | None


class Store:
    def __init__(self) -> None:
        self.version = 100
        self.objects: dict[Key, Object] = {}
        self.history: list[Happening] = []
        self.oldest = 100  # a watch from before this is too old
        self.muted = False  # watches are told nothing
        self._news = asyncio.Event()

    def put(self, plural: str, thing: Object, namespace: str = "") -> Object:
        """Sets an object as it is, whatever was there."""
        key = (plural, namespace, thing["metadata"]["name"])
        before = self.objects.get(key)
        after = copy.deepcopy(thing)
        self.version += 1
        after["metadata"]["resourceVersion"] = str(self.version)
        if namespace:
            after["metadata"]["namespace"] = namespace
        self.objects[key] = after
        self._tell(Happening(self.version, plural, namespace, before, after))
        return after

    def remove(self, plural: str, name: str, namespace: str = "") -> None:
        before = self.objects.pop((plural, namespace, name), None)
        if before is None:
            raise RefusedError(404, f'{plural} "{name}" not found')
        self.version += 1
        self._tell(Happening(self.version, plural, namespace, before, None))

    def get(self, plural: str, name: str, namespace: str = "") -> Object:
        try:
            return self.objects[plural, namespace, name]
        except KeyError:
            raise RefusedError(404, f'{plural} "{name}" not found') from None

    def all(self, plural: str, namespace: str, fields: str) -> list[Object]:
        return [
            thing
            for (kind, where, _), thing in sorted(self.objects.items())
            if kind == plural and namespace in {"", where} and selects(fields, thing)
        ]

    def forget_history(self) -> None:
        """What etcd does when it compacts: an old version is no place to watch from any more."""
        self.version += 1
        self.oldest = self.version

    def since(self, version: int, plural: str, namespace: str, fields: str) -> Iterator[tuple[int, str, Object]]:
        """What a watch with these selectors would be told."""
        for one in () if self.muted else self.history:
            if one.version <= version or one.plural != plural or namespace not in {"", one.namespace}:
                continue
            was = one.before is not None and selects(fields, one.before)
            is_now = one.after is not None and selects(fields, one.after)
            if is_now:
                assert one.after is not None
                yield one.version, "MODIFIED" if was else "ADDED", one.after
            elif was:
                assert one.before is not None
                gone = copy.deepcopy(one.before)
                gone["metadata"]["resourceVersion"] = str(one.version)
                yield one.version, "DELETED", gone

    async def news(self) -> None:
        await self._news.wait()

    def _tell(self, happening: Happening) -> None:
        self.history.append(happening)
        self.wake()

    def wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()


def selects(fields: str, thing: Object) -> bool:
    for term in filter(None, fields.split(",")):
        path, differs, wanted = re.split(r"(!?)==?", term, maxsplit=1)
        value: Any = thing
        for word in path.split("."):
            value = value.get(word, "") if isinstance(value, dict) else ""
        if (value == wanted) == bool(differs):
            return False
    return True


def merge(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    made = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            made.pop(key, None)
        else:
            made[key] = merge(made.get(key), value)
    return made


def merge_strategic(target: Any, patch: Any) -> Any:
    """As a merge patch, but lists of objects with a type are merged by it, as a node's conditions are."""
    if isinstance(patch, list) and patch and all(isinstance(one, dict) and "type" in one for one in patch):
        known = {one["type"]: one for one in target or ()}
        for one in patch:
            if one.get("$patch") == "delete":
                known.pop(one["type"], None)
            else:
                known[one["type"]] = merge_strategic(known.get(one["type"]), one)
        return list(known.values())
    if not isinstance(patch, dict):
        return patch
    made = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            made.pop(key, None)
        else:
            made[key] = merge_strategic(made.get(key), value)
    return made


def apply_ops(thing: Object, ops: list[dict[str, Any]]) -> Object:
    """RFC 6902, of which we use add, remove, replace and test."""
    made = copy.deepcopy(thing)
    for op in ops:
        words = [word.replace("~1", "/").replace("~0", "~") for word in op["path"].split("/")[1:]]
        *above, last = words
        here: Any = made
        for word in above:
            if not isinstance(here, dict) or word not in here:
                raise RefusedError(422, f"doc is missing path: {op['path']}: missing value")
            here = here[word]
        if op["op"] == "test":
            if here.get(last) != op.get("value"):
                raise RefusedError(422, f"testing value {op['path']} failed: test failed")
        elif op["op"] in {"remove", "replace"} and last not in here:
            raise RefusedError(422, f"unable to remove nonexistent key: {last}: missing value")
        elif op["op"] == "remove":
            del here[last]
        else:
            here[last] = op["value"]
    return made
