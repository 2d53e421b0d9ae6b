"""`fairlead smarter …`: from a command line and a config file to a configuration of ours."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from fairlead.backends.paths.tree import Tree
from fairlead.dialects import configfile
from fairlead.dialects.configfile import BadFile
from fairlead.dialects.goflags import Flag, Kind
from fairlead.dialects.invocation import (
    GLOG,
    HOST_ROOT,
    Invocation,
    Program,
    Translation,
    common_flags,
    find_refused,
    finish,
    help_flags,
    place,
    read_flags,
)
from fairlead.fronts.checkpoint import read_checkpoint
from fairlead.kit import decoding, documents
from fairlead.kit.decoding import Problem, did_you_mean, locate
from fairlead.model.errors import ConfigError

SOURCE = "fairlead smarter"
WHOSE = "smarter-device-manager"
DOMAIN = "smarter-devices"
GPU = "nvidia-gpu"  # the one word that is no expression
CONTROL_NODES = ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"]
PLACES = ("config/conf.yaml", "/root/config/conf.yaml")  # theirs runs in /root
_TWENTY = ("^gpiochip[0-9]*$", "^rtc0$", "^video[0-9]*$", "^vchiq$", "^vcsm.*$", "^snd$")
_ONE = ("hci", "i2c-", "ttyUSB", "ttyACM", "ttyTHS", "ttyS")
# What its image has as conf.yaml.
DEFAULT = (
    *((match, 20) for match in _TWENTY),
    ("^gpiomem$", 40),
    *((f"^{head}[0-9]*$", 1) for head in _ONE),
    (GPU, 10),
)

IDS = Flag(
    "ids",
    Kind.TEXT,
    "auto",
    ("FAIRLEAD_SMARTER_IDS",),
    choices=("auto", "numbers", "characters"),
    help="numbers: 0, 1, 2. characters: U+0000, U+0001, as releases up to 1.20.12 have them. auto: characters while "
    "the kubelet's checkpoint names pods with such ids, else numbers.",
)
FLAGS = (
    Flag("config", Kind.TEXT, "", help=f"The config file. Left out: {' or '.join(PLACES)}, else that of its image."),
    Flag("pass-device-specs", Kind.BOOL, False, help="Whether containers with a Jetson GPU get its control nodes too."),
    *GLOG,
)
OWN = (
    *common_flags("smarter", WHOSE),
    IDS,
    HOST_ROOT,
    *help_flags(),
)


class Wanted(Struct, frozen=True, forbid_unknown_fields=True):
    """One item of the config file."""

    devicematch: str
    nummaxdevices: int = 0


class SmarterInvocation(Invocation, frozen=True):
    file: str  # empty: the config file of its image

    @property
    def source(self) -> str:
        return self.file or SOURCE

    def translate(self) -> Translation:
        values, notes = self.parsed.values, list[str]()
        if refused := list(find_refused((IDS,), self.parsed, lenient=False)):
            raise ConfigError(SOURCE, refused)
        wanted = read_file(self.file, notes) if self.file else [Wanted(match, count) for match, count in DEFAULT]
        if not self.file:
            notes.append(f"there is no config file: the devices are those that {WHOSE}'s image has by default")
        characters = values[IDS.name] == "characters" or (
            values[IDS.name] == "auto" and _holds_characters(Path(values["plugin-dir"]))
        )
        placed = place((*FLAGS, *OWN), values)
        nodes = CONTROL_NODES if values["pass-device-specs"] else []
        entries, rules = _configure(wanted, nodes, characters=characters)
        backend = {"kind": "paths", **placed.pop("backend", {}), "devices": entries}
        config = {**placed, "backends": [backend], "rules": rules, "instance": "smarter"}
        return Translation(finish(config), tuple(notes))


def _configure(wanted: Sequence[Wanted], nodes: list[str], *, characters: bool) -> tuple[list[Any], list[Any]]:
    matches = [(one.devicematch, one.nummaxdevices) for one in wanted]
    more: dict[str, Any] = {"characters": True} if characters else {}
    entries: list[Any] = []
    rules: list[Any] = []
    if files := [{"match": match, "count": count} for match, count in matches if match != GPU]:
        tree = {"matches": files, **more}
        entries.append({"allow": ["device", "directory"], "attributes": {"kind": "file"}, "tree": tree})
        rules.append({"match": {"attributes": {"kind": "file"}}, "resource": f"{DOMAIN}/{{resource}}"})
    if gpus := [{"match": r"^gpu\.[0-9]+$", "count": count} for match, count in matches if match == GPU]:
        tree = {"directory": "/sys/devices", "depth": 0, "matches": gpus, "nodes": nodes, **more}
        entries.append({"name": f"{GPU}{{number}}", "allow": ["directory"], "attributes": {"kind": GPU}, "tree": tree})
        env = {"NVIDIA_VISIBLE_DEVICES": "{indexes}"}
        rules.append({"match": {"attributes": {"kind": GPU}}, "resource": f"{DOMAIN}/{GPU}{{number}}", "env": env})
    return entries, rules


def read_file(path: str, notes: list[str]) -> list[Wanted]:
    """An item with a mistake is left out and named; BadFile names them all where none is left.

    Unknown keys are ignored, as theirs does, and named.
    """
    text = configfile.load(path, "cannot be read", "Correct --config")
    try:
        raw = documents.parse(text, path, loose=True)
    except ConfigError as error:
        raise BadFile(path, error.problems) from None
    if not isinstance(raw, list) or not raw:
        raise BadFile(path, ["expected a list of devicematch and nummaxdevices"])
    problems: list[Problem] = []
    wanted: list[Wanted] = []
    unknown: list[str] = []
    zeros: list[str] = []
    for number, item in enumerate(raw):
        known = (
            {key: value for key, value in item.items() if key in Wanted.__struct_fields__} if _is_map(item) else item
        )
        for key in item.keys() - known.keys() if _is_map(item) else ():
            hint = did_you_mean(key, Wanted.__struct_fields__)
            unknown.append(f"{path}: [{number}].{key}: unknown key, which is ignored{hint}")
        found, faults = decoding.decode(known, Wanted)
        faulty: list[Problem] = [((number, *at), fault) for at, fault in faults]
        if found is not None and not faults:
            faulty += [((number,), fault) for fault in _faults(found)]
        problems += faulty
        if found is None or faulty:
            continue
        wanted.append(found)
        if not found.nummaxdevices:
            zeros.append(
                f"{path}: [{number}].nummaxdevices: is 0 or missing: no device of {found.devicematch!r} is offered"
            )
    named = locate(text, problems)
    if not wanted:  # a key that is unknown may be why another is missing
        raise BadFile(path, [*named, *(note.removeprefix(f"{path}: ") for note in unknown)])
    notes += [f"{path}: {problem}. The item is left out, and the others are served: correct it" for problem in named]
    notes += [*unknown, *zeros]
    return wanted


def _faults(wanted: Wanted) -> list[str]:
    if not wanted.devicematch:
        return ["devicematch: is empty, which would be every file of /dev. Give an expression such as ^video[0-9]*$"]
    match = "" if wanted.devicematch == GPU else wanted.devicematch  # a word, and no expression
    tree = msgspec.convert({"matches": [{"match": match, "count": wanted.nummaxdevices}]}, Tree)
    words = {"matches[0].match": "devicematch", "matches[0].count": "nummaxdevices"}
    return [f"{words.get(key, key)}: {text}" for key, _, text in (fault.partition(": ") for fault in tree.faults())]


def _is_map(item: Any) -> bool:
    return isinstance(item, dict)


def _holds_characters(directory: Path) -> bool:
    """Whether a pod holds an id that is no number: those of releases whose ids are characters."""
    checkpoint = read_checkpoint(directory)
    held = checkpoint.held.items() if checkpoint is not None else ()
    return any(not slot.isdigit() for name, slots in held if name.startswith(f"{DOMAIN}/") for slot in slots)


def read_command_line(args: Sequence[str], environ: Mapping[str, str]) -> SmarterInvocation:
    """BadFlag for what cannot be understood."""
    parsed = read_flags((*FLAGS, *OWN), args, environ, "--config=conf.yaml")
    file = str(parsed.values["config"]) or next(filter(os.path.exists, PLACES), "")
    return SmarterInvocation(parsed, environ, file)


PROGRAM = Program(
    SOURCE,
    "smarter-device-manager: its flags, config file and contract, on Fairlead's engine.",
    (*FLAGS, *OWN),
    read_command_line,
    bad_flag=2,  # as Go's flag package ends
)
