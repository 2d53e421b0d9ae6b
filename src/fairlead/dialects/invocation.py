"""What all dialects share: a command line that was read, the flags that are ours everywhere, and what a table says.

Knows no dialect: each one has its own table of flags, in the packages beside this module.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from fairlead.config.spec import Config, KubeletSpec, MetricNames
from fairlead.dialects import goflags
from fairlead.dialects.goflags import BadFlag, Flag, Kind, Parsed
from fairlead.model.errors import ConfigError

_RULE = re.compile(r"rules\[(\d+)\]")


class Translation(Struct, frozen=True):
    config: dict[str, Any]
    notes: tuple[str, ...] = ()  # what was overlooked, or differs here


class Invocation(Struct, frozen=True):
    """A command line that was read. Each translation reads the file that it names again."""

    parsed: Parsed
    environ: Mapping[str, str]

    @property
    @abstractmethod
    def source(self) -> str:
        """What errors blame; and the file to watch, if there is one."""

    @abstractmethod
    def translate(self) -> Translation: ...


FAILED = 1  # the one code with which these programs refuse, but for flags


class Program(Struct, frozen=True):
    """A dialect as a command."""

    name: str  # fairlead nvidia
    summary: str
    flags: tuple[Flag, ...]
    read: Callable[[Sequence[str], Mapping[str, str]], Invocation]
    bad_flag: int = FAILED  # the code for a flag that cannot be understood
    config_flag: str = ""  # names its config file; such a program has CONFIG_CHOICE among its flags
    not_offered: str = ""  # what to do, by its flags, where the devices do not allow what they mean


# --- What a table says ------------------------------------------------------------------------------------------------


def merge(flags: Iterable[Flag], parsed: Parsed, found: Mapping[str, Any], path: str) -> Parsed:
    """Flags and variables over the config file over defaults. `found`: what the file has, by key."""
    ours = [flag for flag in flags if flag.key in found and flag.name not in parsed.given]
    return replace(
        parsed,
        values=parsed.values | {flag.name: found[flag.key] for flag in ours},
        source=parsed.source | {flag.name: f"{path}: {flag.key}" for flag in ours},
    )


def find_refused(flags: Iterable[Flag], parsed: Parsed, *, lenient: bool) -> Iterator[str]:
    """Values that are no choice. The lenient overlook those that the other program takes."""
    for flag in flags:
        if not flag.choices or (lenient and not flag.refusal):
            continue
        several = flag.kind is Kind.TEXTS
        hint = f"Use some of {', '.join(flag.choices)}" if several else f"Use {' or '.join(flag.choices)}"
        for value in parsed.values[flag.name] if several else (parsed.values[flag.name],):
            if value not in flag.choices:
                text = f"{flag.refusal} {value}" if flag.refusal else f"--{flag.name}: unknown word {value!r}"
                yield blame(parsed, flag.name, f"{text}. {hint}")


def blame(parsed: Parsed, name: str, problem: str) -> str:
    """A problem with a flag's value, and where to change it. A problem names the flag already."""
    given = parsed.source.get(name, "")
    return problem if not given or given.startswith("--") else f"{given}: {problem}"


def place(flags: Iterable[Flag], values: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration of what the table alone can say: each value at its key, unless it is the default."""
    made: dict[str, Any] = {}
    for flag in flags:
        value = flag.convert(values[flag.name])
        if flag.into and (flag.always or value != flag.convert(flag.default)):
            *above, last = flag.into.split(".")
            here = made
            for step in above:
                here = here.setdefault(step, {})
            here[last] = value
    return made


def finish(config: Mapping[str, Any]) -> dict[str, Any]:
    """In the order in which the reference has its keys; without empty parts."""
    kubelet = {key: config["kubelet"][key] for key in KubeletSpec.__struct_encode_fields__ if key in config["kubelet"]}
    parts = {**config, "kubelet": kubelet}
    return {key: parts[key] for key in Config.__struct_encode_fields__ if parts.get(key)}


def name_flags(
    error: ConfigError, flags: Iterable[Flag], parsed: Parsed, config: Mapping[str, Any], program: str
) -> ConfigError:
    """The same faults, by flag, variable or key of the file that was given: the operator did not write our keys."""
    by_key = {flag.into: flag for flag in flags if flag.into}
    where = "" if error.source == program else f"{error.source}: "
    problems = []
    for problem in error.problems:
        key, _, text = problem.partition(": ")
        if (flag := by_key.get(key)) is not None:
            given = parsed.source.get(flag.name, f"--{flag.name}")
            in_file = where and flag.key and flag.name not in parsed.given
            problems.append(f"{where}{flag.key}: {text}" if in_file else f"{given}: {text}")
        elif rule := _RULE.match(key):
            problems.append(f"{where}{config['rules'][int(rule[1])].get('resource', key)}: {text}")
        else:
            problems.append(where + problem)
    return ConfigError(program, problems)


# --- Flags of our own -------------------------------------------------------------------------------------------------


def lenient_flag(help_text: str) -> Flag:
    return Flag("lenient", Kind.BOOL, False, ("FAIRLEAD_LENIENT",), help=help_text)


HOST_ROOT = Flag(
    "host-root",
    Kind.TEXT,
    "/",
    ("FAIRLEAD_HOST_ROOT",),
    into="backend.hostRoot",
    help="Where the host's /dev and /sys are seen. Paths stay those of the host.",
)
# Of the library that writes the logs of many Go programs.
GLOG = (
    Flag("logtostderr", Kind.BOOL, False, help="No effect: the journal goes to standard error anyway."),
    Flag("alsologtostderr", Kind.BOOL, False, help="No effect, as --logtostderr."),
    Flag("stderrthreshold", Kind.TEXT, "", help="No effect, as --logtostderr."),
    Flag("v", Kind.INT, 0, help="No effect: the journal holds the facts, whatever the level."),
    Flag("log_dir", Kind.TEXT, "", help="No effect: the journal goes to standard error."),
    Flag("log_link", Kind.TEXT, "", help="No effect, as --log_dir."),
    Flag("logbuflevel", Kind.INT, 0, help="No effect: the journal is not held back."),
    Flag("log_backtrace_at", Kind.TEXT, "", help="No effect."),
    Flag("vmodule", Kind.TEXT, "", help="No effect."),
)


def note_log_files(given: Collection[str]) -> Iterator[str]:
    """What is lost without the files that these flags ask for."""
    files = [f"--{name}" for name in ("log_dir", "log_link", "log_backtrace_at", "vmodule") if name in given]
    if files:
        yield f"{', '.join(files)}: no effect. The journal goes to standard error"


HELP = Flag("help", Kind.BOOL, False, aliases=("h",), help="Print this, and end.")


def common_flags(name: str, whose: str) -> tuple[Flag, ...]:
    """Flags of our own, beside those of the other system."""
    kubelet = KubeletSpec()
    return (
        lenient_flag(f"Overlook what {whose} overlooks, as it does."),
        Flag("print-config", Kind.BOOL, False, help="Print the Fairlead configuration that this means, and end."),
        Flag(
            "plugin-dir",
            Kind.TEXT,
            kubelet.directory,
            ("FAIRLEAD_PLUGIN_DIR",),
            into="kubelet.directory",
            always=True,
            help="Where our sockets go.",
        ),
        Flag(
            "page-token-file",
            Kind.TEXT,
            "",
            ("FAIRLEAD_PAGE_TOKEN_FILE",),
            into="http.tokenFile",
            help="File with the token that the page asks for.",
        ),
        Flag(
            "status-socket",
            Kind.TEXT,
            f"/run/fairlead/{name}.sock",
            ("FAIRLEAD_STATUS_SOCKET",),
            into="status.socket",
            always=True,
            help="For fairlead status.",
        ),
        Flag(
            "pod-resources",
            Kind.TEXT,
            kubelet.pod_resources,
            ("FAIRLEAD_POD_RESOURCES",),
            into="kubelet.podResources",
            always=True,
            help="Who holds what.",
        ),
        Flag(
            "take-over",
            Kind.BOOL,
            False,
            ("FAIRLEAD_TAKE_OVER",),
            into="takeOver",
            help="Take over from a daemon that serves the same directory, without a gap.",
        ),
        Flag(
            "scan-remember",
            Kind.BOOL,
            True,
            ("FAIRLEAD_SCAN_REMEMBER",),
            into="scan.remember",
            help="Offer what a daemon of the same boot found while a first scan is slow.",
        ),
        Flag(
            "http",
            Kind.TEXT,
            "",
            ("FAIRLEAD_HTTP",),
            into="http.listen",
            help="Serve probes and metrics there, such as 127.0.0.1:9402.",
        ),
        Flag(
            "metric-names",
            Kind.TEXTS,
            (),
            ("FAIRLEAD_METRIC_NAMES",),
            choices=tuple(names.value for names in MetricNames),
            into="http.names",
            help="With --http: metrics under the names of these systems too: generic, gke, hami.",
        ),
    )


# For programs with a config file: without a second container that follows the label.
CONFIG_CHOICE = (
    Flag(
        "config-label",
        Kind.TEXT,
        "",
        ("FAIRLEAD_CONFIG_LABEL",),
        help="The node's label that names the config file; the flag of that file is the directory of them then.",
    ),
    Flag(
        "config-default",
        Kind.TEXT,
        "",
        ("FAIRLEAD_CONFIG_DEFAULT",),
        help="With --config-label: the file for a node without the label.",
    ),
    Flag(
        "config-fallbacks",
        Kind.TEXTS,
        ("named", "single"),
        ("FAIRLEAD_CONFIG_FALLBACKS",),
        help="With --config-label, where there is no default: some of named, single, empty.",
    ),
)


def help_flags(*version: str) -> tuple[Flag, ...]:
    """`version`: further spellings of that flag."""
    return (Flag("version", Kind.BOOL, False, aliases=version, help="Print the version, and end."), HELP)


def read_flags(flags: Sequence[Flag], args: Sequence[str], environ: Mapping[str, str], example: str) -> Parsed:
    """BadFlag for what cannot be understood, and for words that a Go program would pass over in silence."""
    parsed = goflags.parse(flags, args, environ)
    if parsed.rest and not parsed.values["lenient"]:
        raise BadFlag(
            f"{parsed.rest[0]!r} is no flag: it and all after it would be passed over. "
            f"A flag's value is joined to it with '=', such as {example}"
        )
    return parsed
