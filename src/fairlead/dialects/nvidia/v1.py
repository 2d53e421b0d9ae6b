"""NVIDIA's config file, version v1: what it may say, and what NVIDIA's plugin overlooks in it.

Its flags are those of the table. Strict by default: an unknown key is named. Lenient: read as the Go program reads it,
which ignores unknown keys and takes those of its structs in any case.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from fairlead.dialects import configfile
from fairlead.dialects.configfile import BadFile, ByHand, Document
from fairlead.dialects.nvidia.flags import FLAGS, LABEL_FLAGS
from fairlead.kit.decoding import Problem, dotted, locate, touches
from fairlead.kit.documents import Path

PREFIX = "nvidia.com/"
NAME_MAX = 63
SUFFIX = ".shared"
MIN_REPLICAS = 2

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_UUID = r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_DEVICE = re.compile(rf"\d+|\d+:\d+|GPU-{_UUID}|MIG-{_UUID}|MIG-GPU-{_UUID}/\d+/\d+")

# Where NVIDIA's plugin has an error text of its own for a value of the wrong type.
_THEIRS: Mapping[Path, str] = {("flags", "plugin", "deviceListStrategy"): "invalid deviceListStrategy: "}

# --- As it is written -------------------------------------------------------------------------------------------------


class _Pattern(ByHand, frozen=True):
    pattern: Any = None
    name: str | None = None


class _Replicated(ByHand, frozen=True):
    name: str | UnsetType = UNSET
    replicas: int | UnsetType | None = UNSET
    rename: str | None = None
    devices: Any = "all"


class _Sharing(ByHand, frozen=True):
    rename_by_default: bool | None = None
    fail_requests_greater_than_one: bool | None = None
    resources: list[_Replicated] | None = None


@cache
def _shape() -> type[Struct]:
    return configfile.shape(
        "File",
        (*FLAGS, *LABEL_FLAGS),
        {
            "version": Any,
            "resources": {"gpus": list[_Pattern], "mig": list[_Pattern]},
            "sharing": {"timeSlicing": _Sharing, "mps": _Sharing},
        },
    )


# --- As it is used ----------------------------------------------------------------------------------------------------


class Shared(Struct, frozen=True):
    """One line of a sharing block."""

    name: str
    replicas: int
    rename: str = ""
    devices: str | int | tuple[str, ...] = "all"
    at: str = ""  # where it stands, for errors


class Sharing(Struct, frozen=True):
    resources: tuple[Shared, ...]
    rename_by_default: bool = False
    fail_over_one: bool | None = None


class Named(Struct, frozen=True):
    """One line of the resources block."""

    pattern: str
    name: str


class V1(Struct, frozen=True):
    flags: Mapping[str, Any] = {}  # by key, such as flags.plugin.passDeviceSpecs; only what is given
    gpus: tuple[Named, ...] = ()
    mig: tuple[Named, ...] = ()
    time_slicing: Sharing | None = None
    mps: Sharing | None = None
    ignored: tuple[str, ...] = ()  # keys that are unknown, for a note to the lenient

    @property
    def sharing(self) -> tuple[str, Sharing | None]:
        """The block that counts, and its kind."""
        if self.mps is not None:
            return "mps", self.mps
        return ("time-slicing", self.time_slicing) if self.time_slicing is not None else ("none", None)


EMPTY = V1()


def load(path: str, *, lenient: bool = False) -> V1:
    """Nothing for no path. BadFile names everything that is wrong."""
    return parse(configfile.load(path, "error opening config file"), path, lenient=lenient) if path else EMPTY


def parse(text: str, source: str, *, lenient: bool = False) -> V1:
    expected = "version, flags and sharing"
    document = configfile.decode(text, source, _shape(), expected=expected, lenient=lenient, loose=lenient)
    reader = _Reader(lenient=lenient)
    made = reader.read(document) if document.content is not None else EMPTY
    problems = [(at, f"{_THEIRS.get(at, '')}{problem}") for at, problem in document.problems]
    problems += [one for one in reader.problems if not touches(one[0], document.problems)]
    if problems:
        raise BadFile(source, locate(text, problems))
    return made


class _Reader:
    """What the types cannot say, with the error texts of NVIDIA's plugin where it has some."""

    def __init__(self, *, lenient: bool) -> None:
        self.lenient = lenient
        self.problems: list[Problem] = []

    def read(self, document: Document) -> V1:
        file = document.content
        if file.version not in (UNSET, "", "v1"):
            self._refuse(("version",), f"unknown version: {file.version}. This reads v1")
        resources = {key: getattr(file.resources, key, UNSET) or () for key in ("gpus", "mig")}
        sharing = {key: getattr(file.sharing, key, UNSET) or None for key in ("timeSlicing", "mps")}
        return V1(
            flags=document.values((*FLAGS, *LABEL_FLAGS)),
            gpus=self._named(resources["gpus"], ("resources", "gpus")),
            mig=self._named(resources["mig"], ("resources", "mig")),
            time_slicing=self._sharing(sharing["timeSlicing"], ("sharing", "timeSlicing")),
            mps=self._sharing(sharing["mps"], ("sharing", "mps")),
            ignored=tuple(map(dotted, document.dropped)),
        )

    def _refuse(self, at: Path, text: str) -> None:
        self.problems.append((at, text))

    def _name(self, text: str, at: Path) -> str:
        full = text if text.startswith(PREFIX) else PREFIX + text
        if len(full) > NAME_MAX:
            self._refuse(at, f"fully-qualified resource name must be {NAME_MAX} characters or less: {full}")
        elif not _NAME.fullmatch(full.removeprefix(PREFIX)):
            rule = "lower-case letters, digits, '-' and '.', with a letter or digit at both ends"
            self._refuse(at, f"incorrect format for resource name {text!r}: after {PREFIX} come {rule}")
        return full

    def _named(self, lines: Iterable[_Pattern], at: Path) -> tuple[Named, ...]:
        made = []
        for number, line in enumerate(lines):
            here = (*at, number)
            missing = [key for key in ("pattern", "name") if getattr(line, key) is None]
            for key in missing:
                self._refuse(here, f"resources must have a '{key}' field set")
            if not missing:
                made.append(Named(str(line.pattern), self._name(line.name or "", (*here, "name"))))
        return tuple(made)

    def _sharing(self, block: _Sharing | None, at: Path) -> Sharing | None:
        if block is None:
            return None
        by_default = block.rename_by_default or False
        if not block.resources:
            self._refuse((*at, "resources"), "no resources specified. Give at least one, with name and replicas")
        shared = [
            self._shared(line, (*at, "resources", number), by_default=by_default)
            for number, line in enumerate(block.resources or ())
        ]
        return Sharing(
            tuple(one for one in shared if one is not None), by_default, block.fail_requests_greater_than_one
        )

    def _shared(self, line: _Replicated, at: Path, *, by_default: bool) -> Shared | None:
        if line.name is UNSET:
            self._refuse(at, "no resource name specified")
            return None
        name = self._name(line.name, (*at, "name"))
        rename = self._name(line.rename, (*at, "rename")) if line.rename else ""
        if not rename and by_default:
            rename = name + SUFFIX if self.lenient else self._name(name + SUFFIX, (*at, "name"))
        return Shared(name, self._replicas(line.replicas, at), rename, self._devices(line.devices, at), dotted(at))

    def _replicas(self, value: int | UnsetType | None, at: Path) -> int:
        if value is UNSET:
            self._refuse(at, "no replicas specified")
        elif value is None or value < MIN_REPLICAS:
            got = "nothing" if value is None else value
            self._refuse((*at, "replicas"), f"number of replicas must be >= {MIN_REPLICAS}, got {got}")
        else:
            return value
        return MIN_REPLICAS

    def _devices(self, value: Any, at: Path) -> str | int | tuple[str, ...]:
        here = (*at, "devices")
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if value == "all":
            return "all"
        if value is None or isinstance(value, str):
            self._refuse(here, f"devices set as '{value or ''}' but the only valid string input is 'all'")
        elif isinstance(value, int) and not isinstance(value, bool):
            if value > 0:
                return value
            self._refuse(here, f"devices set as '{value}' but a count of devices must be > 0")
        elif isinstance(value, list):
            for number, one in enumerate(value):
                if isinstance(one, bool) or not _DEVICE.fullmatch(str(one)):
                    kinds = "an index, gpu:instance, a GPU or a MIG UUID"
                    text = f"unsupported type for device in devices list: {one!r}. Give {kinds}"
                    self._refuse((*here, number), text)
            return tuple(str(one) for one in value)
        else:
            text = f"unrecognized type for devices spec: {value!r:.80}. Give all, a count or a list"
            self._refuse(here, text)
        return "all"
