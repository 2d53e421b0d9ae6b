"""What all dialects share: a command line that was read, what it means, and the flags that are ours everywhere.

Knows no dialect: whose flags they are, and what becomes of them, is said in the rooms beside.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from fairlead.dialects import goflags
from fairlead.dialects.goflags import BadFlag, Flag, Kind, Parsed
from fairlead.model.errors import ConfigError

_RULE = re.compile(r"rules\[(\d+)\]")


class Meant(Struct, frozen=True):
    config: dict[str, Any]
    notes: tuple[str, ...] = ()  # what was overlooked or is otherwise here, for whoever started it


class Order(Struct, frozen=True):
    """A command line, read. A file that it names is read anew whenever somebody asks what it means."""

    parsed: Parsed
    environ: Mapping[str, str]

    @property
    @abstractmethod
    def source(self) -> str:
        """Whose fault it is, for errors; and the file to watch, if there is one."""

    @abstractmethod
    def meant(self) -> Meant: ...


class Places(Struct, frozen=True):
    """Where this process finds the kubelet and its own socket."""

    plugin_dir: str = "/var/lib/kubelet/device-plugins"
    status_socket: str = "/run/fairlead/fairlead.sock"
    pod_resources: str = "/var/lib/kubelet/pod-resources/kubelet.sock"


def places_of(parsed: Parsed) -> Places:
    return Places(*(str(parsed.values[name]) for name in ("plugin-dir", "status-socket", "pod-resources")))


# Where the flags of every dialect land in a configuration of ours.
_PLACES = {
    "kubelet.directory": "plugin-dir",
    "kubelet.podResources": "pod-resources",
    "kubelet.socket": "kubelet-socket",
    "status.socket": "status-socket",
}


def in_their_words(error: ConfigError, parsed: Parsed, config: Mapping[str, Any], program: str) -> ConfigError:
    """The same faults, by the flags and variables that were given: no one who wrote these knows our keys."""
    where = "" if error.source == program else f"{error.source}: "
    return ConfigError(program, [_in_their_words(where, one, parsed, config) for one in error.problems])


def _in_their_words(where: str, problem: str, parsed: Parsed, config: Mapping[str, Any]) -> str:
    key, _, text = problem.partition(": ")
    if (flag := _PLACES.get(key)) is not None:
        return f"{parsed.source.get(flag, f'--{flag}')}: {text}"
    if rule := _RULE.match(key):
        problem = f"{config['rules'][int(rule[1])].get('resource', key)}: {text}"
    return where + problem


def own_flags(name: str, whose: str) -> tuple[Flag, ...]:
    """Flags of our own, which stand beside those of the other system."""
    usual = Places()
    return (
        Flag("lenient", Kind.BOOL, False, ("FAIRLEAD_LENIENT",), help=f"Overlook what {whose} overlooks, as it does."),
        Flag("print-config", Kind.BOOL, False, help="Print the Fairlead configuration that this means, and end."),
        Flag("plugin-dir", Kind.TEXT, usual.plugin_dir, ("FAIRLEAD_PLUGIN_DIR",), help="Where our sockets go."),
        Flag(
            "status-socket",
            Kind.TEXT,
            f"/run/fairlead/{name}.sock",
            ("FAIRLEAD_STATUS_SOCKET",),
            help="For fairlead status.",
        ),
        Flag("pod-resources", Kind.TEXT, usual.pod_resources, ("FAIRLEAD_POD_RESOURCES",), help="Who holds what."),
    )


def last_flags(*version: str) -> tuple[Flag, ...]:
    """`version`: further spellings of that flag."""
    return (
        Flag("version", Kind.BOOL, False, aliases=version, help="Print the version, and end."),
        Flag("help", Kind.BOOL, False, aliases=("h",), help="Print this, and end."),
    )


def read_flags(flags: Sequence[Flag], args: Sequence[str], environ: Mapping[str, str], example: str) -> Parsed:
    """BadFlag for what cannot be understood, and for words that a Go program would pass over in silence."""
    parsed = goflags.parse(flags, args, environ)
    if parsed.rest and not parsed.values["lenient"]:
        raise BadFlag(
            f"{parsed.rest[0]!r} is no flag: it and all after it would be passed over. "
            f"A flag's value is joined to it with '=', such as {example}"
        )
    return parsed
