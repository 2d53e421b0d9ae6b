"""`fairlead generic …`: from a command line, an environment and a config file to a configuration of ours."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import UNSET

from fairlead.config.spec import KubeletSpec
from fairlead.dialects import configfile
from fairlead.dialects.configfile import BadFile
from fairlead.dialects.generic.devices import POLL, Devices, configure
from fairlead.dialects.goflags import Flag, Kind, Parsed
from fairlead.dialects.invocation import (
    HOST_ROOT,
    Invocation,
    Program,
    Translation,
    common_flags,
    find_refused,
    finish,
    help_flags,
    merge,
    place,
    read_flags,
)
from fairlead.kit import documents
from fairlead.kit.decoding import dotted, locate
from fairlead.model.errors import ConfigError

SOURCE = "fairlead generic"
WHOSE = "squat's plugin"
# Where theirs looks without --config.
_FOLDERS = ("/etc/generic-device-plugin", ".")
PLACES = tuple(f"{folder}/config.{end}" for folder in _FOLDERS for end in ("json", "yaml", "yml"))

LEVEL = Flag(
    "log-level",
    Kind.TEXT,
    "info",
    ("LOG_LEVEL",),
    key="log-level",
    choices=("all", "debug", "info", "warn", "error", "none"),
    refusal="unknown log level",
    help="all, debug, info, warn, error or none. No effect: the journal holds the facts, whatever the level.",
)
LISTEN = Flag(
    "listen",
    Kind.TEXT,
    ":8080",
    ("LISTEN",),
    key="listen",
    into="http.listen",
    always=True,
    help="Where /health and /metrics are served. Empty: nowhere.",
)
FLAGS = (
    Flag("config", Kind.TEXT, "", help=f"The config file. Left out: {', '.join(PLACES)}, if there is one."),
    Flag(
        "device",
        Kind.EACH,
        (),
        help="A resource, as YAML or JSON with name and groups. May be repeated; replaces the devices of the file.",
    ),
    Flag("domain", Kind.TEXT, "squat.ai", ("DOMAIN",), key="domain", help="What resource names begin with."),
    LEVEL,
    LISTEN,
    Flag(
        "plugin-directory",
        Kind.TEXT,
        KubeletSpec().directory,
        ("PLUGIN_DIRECTORY", "FAIRLEAD_PLUGIN_DIR"),
        aliases=("plugin-dir",),
        key="plugin-directory",
        into="kubelet.directory",
        always=True,
        help="Where our sockets go.",
    ),
)
OWN = (
    *(flag for flag in common_flags("generic", WHOSE) if flag.name not in {"plugin-dir", "http", "metric-names"}),
    HOST_ROOT,
    *help_flags(),
)


class GenericInvocation(Invocation, frozen=True):
    file: str  # empty: none

    @property
    def source(self) -> str:
        return self.file or SOURCE

    def translate(self) -> Translation:
        notes: list[str] = []
        devices, found = self._file(notes)
        parsed = merge(FLAGS, self.parsed, found, self.file)
        if given := parsed.values["device"]:
            read = [self._flag(number, text, notes) for number, text in enumerate(given, 1)]
            devices = [device for device in read if device is not None]
        problems = list(find_refused(FLAGS, parsed, lenient=False))
        if not devices:
            problems += [*notes, "at least one device must be specified, with --device or in the config file"]
        names = [device["name"] for device in devices]
        problems += [f"{name}: two devices have this name. Put their groups into one" for name in _twice(names)]
        if problems:
            raise ConfigError(self.source, problems)
        placed = place((*FLAGS, *OWN), parsed.values)
        entries, rules = configure(devices, parsed.values["domain"])
        backend = {"kind": "paths", "poll": POLL, **placed.pop("backend", {}), "devices": entries}
        if listening := placed.get("http"):
            listening["names"] = ["generic"]
        config = {**placed, "backends": [backend], "rules": rules, "instance": "generic"}
        return Translation(finish(config), tuple(notes))

    def _flag(self, number: int, text: str, notes: list[str]) -> dict[str, Any] | None:
        source = f"--device, the {number}." if len(self.parsed.values["device"]) > 1 else "--device"
        try:
            raw = documents.parse(text, source, loose=True)
        except ConfigError as error:
            raise BadFile(source, error.problems) from None
        read = Devices(source)
        made = read.read(raw, ())
        _check(read, text, source, notes)
        return made

    def _file(self, notes: list[str]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """The devices of the file, and what it has for flags."""
        if not self.file:
            return [], {}
        shape = configfile.shape("File", FLAGS, {"devices": Any, "device": Any})
        text = configfile.load(self.file, "failed to read config file", "Correct --config")
        found = configfile.decode(text, self.file, shape, expected="domain and devices", lenient=True, loose=True)
        if found.problems:
            raise BadFile(self.file, locate(text, found.problems))
        notes += [f"{self.file}: {dotted(key)}: unknown key, which is ignored" for key in found.dropped]
        key = "devices" if found.content.devices is not UNSET else "device"
        raw = getattr(found.content, key)
        read = Devices(self.file)
        if not isinstance(raw, list):
            if raw is not UNSET:
                read.problems.append(((key,), "expected a list of devices"))
            raw = []
        made = [read.read(one, (key, place)) for place, one in enumerate(raw)]
        _check(read, text, self.file, notes)
        return [one for one in made if one is not None], found.values(FLAGS)


def _check(read: Devices, text: str, source: str, notes: list[str]) -> None:
    notes += read.notes
    if read.problems:
        raise BadFile(source, locate(text, read.problems))


def _twice(names: Sequence[str]) -> list[str]:
    return sorted({name for name in names if names.count(name) > 1})


def read_command_line(args: Sequence[str], environ: Mapping[str, str]) -> GenericInvocation:
    """BadFlag for what cannot be understood. A variable that is empty counts as not set, as in theirs."""
    environ = {name: value for name, value in environ.items() if value}
    parsed: Parsed = read_flags((*FLAGS, *OWN), args, environ, "--domain=example.com")
    file = str(parsed.values["config"]) or next(filter(os.path.exists, PLACES), "")
    return GenericInvocation(parsed, environ, file)


PROGRAM = Program(
    SOURCE,
    "squat's generic-device-plugin: its flags, environment, config file and contract, on Fairlead's engine.",
    (*FLAGS, *OWN),
    read_command_line,
    bad_flag=2,  # as pflag ends
)
