"""NVIDIA's config file, version v1: what it may say, and what NVIDIA's plugin overlooks in it.

Strict by default: a key that nobody knows is named. Lenient: read as the Go program reads it, which ignores unknown
keys and takes those of its structs in any case.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from fairlead.backends import documents, files
from fairlead.backends.documents import Path
from fairlead.backends.strict import did_you_mean, dotted
from fairlead.dialects.goflags import duration
from fairlead.model.errors import ConfigError

PREFIX = "nvidia.com/"
NAME_MAX = 63
SUFFIX = ".shared"
MIN_REPLICAS = 2

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_UUID = r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_DEVICE = re.compile(rf"\d+|\d+:\d+|GPU-{_UUID}|MIG-{_UUID}|MIG-GPU-{_UUID}/\d+/\d+")

_FLAGS: Mapping[str, Any] = {
    "migStrategy": str,
    "failOnInitError": bool,
    "mpsRoot": str,
    "nvidiaDriverRoot": str,
    "nvidiaDevRoot": str,
    "gdrcopyEnabled": bool,
    "gdsEnabled": bool,
    "mofedEnabled": bool,
    "useNodeFeatureAPI": bool,
    "deviceDiscoveryStrategy": str,
    "plugin": {
        "passDeviceSpecs": bool,
        "deviceListStrategy": "texts",
        "deviceIDStrategy": str,
        "cdiAnnotationPrefix": str,
        "nvidiaCTKPath": str,
        "containerDriverRoot": str,
        "sharedDevicesAllocationPolicy": str,
    },
    "gfd": {
        "oneshot": bool,
        "noTimestamp": bool,
        "sleepInterval": "duration",
        "outputFile": str,
        "machineTypeFile": str,
    },
}
_FILE: Mapping[str, Any] = {
    "version": "any",
    "flags": _FLAGS,
    "resources": {"gpus": "any", "mig": "any"},
    "sharing": {"timeSlicing": "any", "mps": "any"},
    "imex": {"channelIDs": "ints", "required": bool},
}
_WORDS = {str: "text", bool: "true or false"}


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
    flags: Mapping[str, Any] = {}  # by path, such as flags.plugin.passDeviceSpecs; only what is given
    gpus: tuple[Named, ...] = ()
    mig: tuple[Named, ...] = ()
    time_slicing: Sharing | None = None
    mps: Sharing | None = None

    @property
    def sharing(self) -> tuple[str, Sharing | None]:
        """The block that counts, and its kind."""
        if self.mps is not None:
            return "mps", self.mps
        return ("time-slicing", self.time_slicing) if self.time_slicing is not None else ("none", None)


class BadFile(ConfigError):
    exit_code = 1  # as NVIDIA's plugin ends


EMPTY = V1()


def load(path: str, *, lenient: bool = False) -> V1:
    try:
        text = files.read_text(path)
    except OSError as error:
        reason = error.strerror or error
        raise BadFile(path, [f"error opening config file: {reason}. Correct --config-file or CONFIG_FILE"]) from None
    return parse(text, path, lenient=lenient)


def parse(text: str, source: str, *, lenient: bool = False) -> V1:
    try:
        raw = documents.parse(text, source, loose=lenient)
    except ConfigError as error:
        raise BadFile(source, error.problems) from None
    if raw is None:
        return EMPTY
    if not isinstance(raw, dict):
        raise BadFile(source, [f"expected keys such as version, flags and sharing, got {type(raw).__name__}"])
    reader = _Reader(lenient=lenient)
    found = reader.fit(raw, _FILE, ())
    version = found.get("version")
    if version not in (None, "", "v1"):
        reader.say(("version",), f"unknown version: {version}. This reads v1")
    resources, sharing = found.get("resources", {}), found.get("sharing", {})
    made = V1(
        flags=dict(_flat(found)),
        gpus=reader.named(resources.get("gpus"), ("resources", "gpus")),
        mig=reader.named(resources.get("mig"), ("resources", "mig")),
        time_slicing=reader.sharing(sharing.get("timeSlicing"), ("sharing", "timeSlicing")),
        mps=reader.sharing(sharing.get("mps"), ("sharing", "mps")),
    )
    if reader.problems:
        from fairlead.config.load import located  # noqa: PLC0415 - only an error needs it

        raise BadFile(source, located(text, reader.problems))
    return made


def _flat(found: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in found.items():
        if not path and key not in {"flags", "imex"}:
            continue
        here = f"{path}.{key}" if path else key
        if isinstance(value, dict):
            yield from _flat(value, here)
        else:
            yield here, value


class _Reader:
    def __init__(self, *, lenient: bool) -> None:
        self.lenient = lenient
        self.problems: list[tuple[Path, str]] = []

    def say(self, at: Path, text: str) -> None:
        self.problems.append((at, text))

    def fit(self, raw: Mapping[Any, Any], keys: Mapping[str, Any], at: Path) -> dict[str, Any]:
        """What is known and not null, with the types that the keys have."""
        found: dict[str, Any] = {}
        folded = {key.lower(): key for key in keys}
        for given, value in raw.items():
            key = folded.get(str(given).lower()) if self.lenient else (given if given in keys else None)
            if key is None:
                if not self.lenient:
                    self.say((*at, str(given)), f"nobody knows this key{did_you_mean(str(given), sorted(keys))}")
                continue
            if value is None:
                continue
            fitted = self._one(value, keys[key], (*at, key))
            if fitted is not None:
                found[key] = fitted
        return found

    def _one(self, value: Any, kind: Any, at: Path) -> Any:
        if isinstance(kind, Mapping):
            if isinstance(value, dict):
                return self.fit(value, kind, at)
            self.say(at, f"expected keys, got {_told(value)}")
        elif kind == "any":
            return value
        elif isinstance(kind, type):
            if isinstance(value, kind):
                return value
            self.say(at, f"expected {_WORDS[kind]}, got {_told(value)}")
        else:
            return getattr(self, f"_{kind}")(value, at)
        return None

    def _texts(self, value: Any, at: Path) -> tuple[str, ...] | None:
        if isinstance(value, str):
            return (value,)
        if isinstance(value, list) and all(isinstance(word, str) for word in value):
            return tuple(value)
        self.say(at, f"invalid deviceListStrategy: expected a word or a list of words, got {_told(value)}")
        return None

    def _ints(self, value: Any, at: Path) -> tuple[int, ...] | None:
        if isinstance(value, list) and all(isinstance(one, int) and not isinstance(one, bool) for one in value):
            return tuple(value)
        self.say(at, f"expected a list of whole numbers, got {_told(value)}")
        return None

    def _duration(self, value: Any, at: Path) -> float | None:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return value * 1e-9  # a plain number is in nanoseconds there
        try:
            return duration(value)
        except (ValueError, TypeError, AttributeError):
            self.say(at, f"expected a duration such as 60s, or infinite, got {_told(value)}")
            return None

    # --- Names ----------------------------------------------------------------------------------------------------

    def name(self, text: Any, at: Path) -> str:
        if not isinstance(text, str):
            self.say(at, f"expected text, got {_told(text)}")
            return ""
        full = text if text.startswith(PREFIX) else PREFIX + text
        if len(full) > NAME_MAX:
            self.say(at, f"fully-qualified resource name must be {NAME_MAX} characters or less: {full}")
        elif not _NAME.fullmatch(full.removeprefix(PREFIX)):
            rule = "lower-case letters, digits, '-' and '.', with a letter or digit at both ends"
            self.say(at, f"incorrect format for resource name {text!r}: after {PREFIX} come {rule}")
        return full

    def named(self, raw: Any, at: Path) -> tuple[Named, ...]:
        if raw is None:
            return ()
        if not isinstance(raw, list):
            self.say(at, f"expected a list, got {_told(raw)}")
            return ()
        made = []
        for number, entry in enumerate(raw):
            here = (*at, number)
            if not isinstance(entry, dict):
                self.say(here, f"expected pattern and name, got {_told(entry)}")
                continue
            missing = [key for key in ("pattern", "name") if entry.get(key) is None]
            for key in missing:
                self.say(here, f"resources must have a '{key}' field set")
            self._unknown(entry, {"pattern", "name"}, here)
            if not missing:
                made.append(Named(str(entry["pattern"]), self.name(entry["name"], (*here, "name"))))
        return tuple(made)

    # --- Sharing --------------------------------------------------------------------------------------------------

    def sharing(self, raw: Any, at: Path) -> Sharing | None:
        if raw is None:
            return None
        if not isinstance(raw, dict):
            self.say(at, f"expected keys, got {_told(raw)}")
            return None
        self._unknown(raw, {"renameByDefault", "failRequestsGreaterThanOne", "resources"}, at)
        by_default = self._bool(raw, "renameByDefault", at) or False
        listed = raw.get("resources")
        if not isinstance(listed, list) or not listed:
            self.say((*at, "resources"), "no resources specified. Give at least one, with name and replicas")
            listed = []
        shared = tuple(
            one
            for number, entry in enumerate(listed)
            if (one := self._shared(entry, (*at, "resources", number), by_default=by_default)) is not None
        )
        return Sharing(shared, by_default, self._bool(raw, "failRequestsGreaterThanOne", at))

    def _bool(self, raw: Mapping[str, Any], key: str, at: Path) -> bool | None:
        value = raw.get(key)
        if value is None or isinstance(value, bool):
            return value
        self.say((*at, key), f"expected true or false, got {_told(value)}")
        return None

    def _shared(self, raw: Any, at: Path, *, by_default: bool) -> Shared | None:
        if not isinstance(raw, dict):
            self.say(at, f"expected name and replicas, got {_told(raw)}")
            return None
        self._unknown(raw, {"name", "replicas", "rename", "devices"}, at)
        if "name" not in raw:
            self.say(at, "no resource name specified")
            return None
        name = self.name(raw["name"], (*at, "name"))
        rename = self.name(raw["rename"], (*at, "rename")) if raw.get("rename") else ""
        if not rename and by_default:
            rename = name + SUFFIX if self.lenient else self.name(name + SUFFIX, (*at, "name"))
        return Shared(name, self._replicas(raw, at), rename, self._devices(raw, at), dotted(at))

    def _replicas(self, raw: Mapping[str, Any], at: Path) -> int:
        here = (*at, "replicas")
        value = raw.get("replicas")
        if "replicas" not in raw:
            self.say(at, "no replicas specified")
        elif value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            self.say(here, f"expected a whole number, got {_told(value)}")
        elif value is None or value < MIN_REPLICAS:
            self.say(here, f"number of replicas must be >= {MIN_REPLICAS}, got {_told(value)}")
        else:
            return int(value)
        return MIN_REPLICAS

    def _devices(self, raw: Mapping[str, Any], at: Path) -> str | int | tuple[str, ...]:
        if "devices" not in raw:
            return "all"
        here, value = (*at, "devices"), raw["devices"]
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if value == "all":
            return "all"
        if value is None or isinstance(value, str):
            self.say(here, f"devices set as '{value or ''}' but the only valid string input is 'all'")
        elif isinstance(value, bool):
            self.say(here, f"unrecognized type for devices spec: {_told(value)}. Give all, a count or a list")
        elif isinstance(value, int):
            if value > 0:
                return value
            self.say(here, f"devices set as '{value}' but a count of devices must be > 0")
        elif isinstance(value, list):
            for number, one in enumerate(value):
                if isinstance(one, bool) or not _DEVICE.fullmatch(str(one)):
                    kinds = "an index, gpu:instance, a GPU or a MIG UUID"
                    self.say((*here, number), f"unsupported type for device in devices list: {one!r}. Give {kinds}")
            return tuple(str(one) for one in value)
        else:
            self.say(here, f"unrecognized type for devices spec: {_told(value)}. Give all, a count or a list")
        return "all"

    def _unknown(self, raw: Mapping[Any, Any], known: set[str], at: Path) -> None:
        if not self.lenient:
            for key in raw.keys() - known:
                self.say((*at, str(key)), f"nobody knows this key{did_you_mean(str(key), sorted(known))}")


def _told(value: Any) -> str:
    return "nothing" if value is None else f"{value!r}"[:80]
