"""The devices of squat's generic-device-plugin, from its flags and its config file, checked. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fairlead.backends.paths.bundle import Bundle
from fairlead.dialects import configfile
from fairlead.kit import decoding
from fairlead.kit.decoding import Problem, did_you_mean, dotted
from fairlead.kit.documents import Path

NAME = re.compile(r"[a-z0-9][-a-z0-9]*[a-z0-9]")
KINDS = ("device", "file", "directory", "socket")  # what is no device is a mount, or named as a fault
POLL = "5s"  # as often as theirs looks, where no notice of the kernel reaches
_STEP = re.compile(r"([A-Za-z]+)|\[(\d+)\]")
_KNOWN = ("name", "groups", "count", "paths", "usb", "path", "mountPath", "permissions", "readOnly", "type", "limit")
KEYS = (*_KNOWN, "optional", "vendor", "product", "serial")


# What theirs takes, and serves without sense: a device with such a fault is left out, and the others are served.
OVERLOOKED: frozenset[Path] = frozenset({("type",), ("permissions",), ("path",), ("mountPath",)})


class Devices:
    """Those of one text: a flag, or a file. Collects what is wrong with them, and what people should know."""

    def __init__(self, source: str) -> None:
        self._source = source
        self.problems: list[Problem] = []
        self.notes: list[str] = []

    def read(self, raw: Any, at: Path) -> dict[str, Any] | None:
        """One device as options of a bundle; None: left out. Unknown keys are ignored, as theirs does, and named."""
        dropped: list[Path] = []
        made = configfile.as_go(raw if isinstance(raw, dict) else {}, Bundle, at, dropped, lenient=True)
        if not isinstance(raw, dict):
            self.problems.append((at, "expected a mapping with name and groups"))
            return None
        for path in dropped:
            self._note(path, f"unknown key, which is ignored{did_you_mean(path[-1], (), also=KEYS)}")
        made = {"name": made.get("name", ""), "groups": self._groups(made, at)}
        found = list(_faults(made))
        self.problems += [((*at, *path), text) for path, text in found if path[-1:] not in OVERLOOKED]
        overlooked = [(path, text) for path, text in found if path[-1:] in OVERLOOKED]
        for path, text in overlooked:
            self._note((*at, *path), f"{text}. {made['name']} is left out")
        return None if overlooked else made

    def _groups(self, made: Mapping[str, Any], at: Path) -> list[Any]:
        groups = made.get("groups")
        if not isinstance(groups, list | None):
            self.problems.append(((*at, "groups"), "expected a list"))
            return []
        return [self._group(one, (*at, "groups", place)) for place, one in enumerate(groups or ())]

    def _group(self, group: Any, at: Path) -> Any:
        if not isinstance(group, dict):
            return group
        made = _given(group)
        if isinstance(paths := made.get("paths"), list):
            made["paths"] = [_given(part) if isinstance(part, dict) else part for part in paths]
        if isinstance(specs := made.get("usb"), list):
            made["usb"] = [self._usb(spec, (*at, "usb", place)) for place, spec in enumerate(specs)]
        return made

    def _usb(self, spec: Any, at: Path) -> Any:
        if not isinstance(spec, dict):
            return spec
        made = {key: value for key, value in spec.items() if value not in (None, "")}
        for key in ("vendor", "product"):
            value = made.setdefault(key, "0000")
            if key not in spec:
                self._note((*at, key), "is missing, and stands for 0000, which no device has. Give it")
            elif isinstance(value, int) and not isinstance(value, bool):
                made[key] = f"{value:0>4}"
                self._note((*at, key), f"{value} is a number to YAML, and is read as {value:0>4}. Put it in quotes")
        return {"vendor": made.pop("vendor"), "product": made.pop("product"), **made}

    def _note(self, at: Path, text: str) -> None:
        self.notes.append(f"{self._source}: {dotted(at)}: {text}")


def _faults(made: dict[str, Any]) -> Iterator[Problem]:
    bundle, problems = decoding.decode(made, Bundle)
    yield from problems
    if isinstance(made["name"], str):
        made["name"] = made["name"].strip()
        if not NAME.fullmatch(made["name"]):
            rule = "lower-case letters, digits and dashes, two or more, with no dash at an end"
            yield ("name",), f"{made['name']!r:.80} does not match {NAME.pattern}: {rule}"
    for fault in bundle.faults() if bundle is not None and not problems else ():
        key, _, text = fault.partition(": ")
        yield tuple(word or int(number) for word, number in _STEP.findall(key.partition(" ")[0])), text


def _given(part: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is Go's zero: it stands for the default. Blanks around paths do not count."""
    trimmed = {key: value.strip() if isinstance(value, str) else value for key, value in part.items()}
    return {key: value for key, value in trimmed.items() if key == "path" or value not in (None, "", 0, False)}


def configure(bundles: Sequence[Mapping[str, Any]], domain: str) -> tuple[list[Any], list[Any]]:
    """The devices of the backend, and a rule for each resource."""
    entries = [
        {
            "name": f"{bundle['name']}-{{name}}",
            "allow": list(KINDS),
            "attributes": {"resource": bundle["name"]},
            "bundle": dict(bundle),
        }
        for bundle in bundles
    ]
    rules = [
        {"match": {"attributes": {"resource": bundle["name"]}}, "resource": f"{domain}/{bundle['name']}"}
        for bundle in bundles
    ]
    return entries, rules
