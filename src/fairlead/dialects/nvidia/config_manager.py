"""NVIDIA's config-manager: a label of the node chooses the config file, a link puts it in place, a signal tells.

What upstream gets wrong is right here: the node is known before anything is chosen, a label that names no file keeps
what is in force, and an edited ConfigMap is told as well.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from fairlead.backends import files
from fairlead.cluster.nodes import NodeNow
from fairlead.dialects import goflags
from fairlead.dialects.goflags import BadFlag, Flag, Kind
from fairlead.model.errors import FairleadError, HostError
from fairlead.model.latest import Latest
from fairlead.model.ports import Clock

CMDLINE_MAX_BYTES = 8 * 2**20  # the kernel takes no longer command line by default
FLAGS = (
    Flag("oneshot", Kind.BOOL, False, ("ONESHOT",), help="Choose once, and end."),
    Flag("kubeconfig", Kind.TEXT, "", ("KUBECONFIG",), help="How to reach the API server. Empty: as a pod does."),
    Flag("node-name", Kind.TEXT, "", ("NODE_NAME",), help="The node whose label chooses. Needed."),
    Flag("node-label", Kind.TEXT, "nvidia.com/device-plugin.config", ("NODE_LABEL",), help="The label."),
    Flag("config-file-srcdir", Kind.TEXT, "", ("CONFIG_FILE_SRCDIR",), help="Directory of the files. Needed."),
    Flag("config-file-dst", Kind.TEXT, "", ("CONFIG_FILE_DST",), help="Where the chosen one is put. Needed."),
    Flag("default-config", Kind.TEXT, "", ("DEFAULT_CONFIG",), help="The file for a node without the label."),
    Flag("fallback-strategies", Kind.TEXTS, (), ("FALLBACK_STRATEGIES",), help="Some of named, single, empty."),
    Flag("send-signal", Kind.BOOL, True, ("SEND_SIGNAL",), help="Tell the process that reads the file."),
    Flag("signal", Kind.INT, int(signal.SIGHUP), ("SIGNAL",), help="The signal's number."),
    Flag("process-to-signal", Kind.TEXT, "nvidia-device-plugin", ("PROCESS_TO_SIGNAL",), help="Its name."),
    Flag("help", Kind.BOOL, False, aliases=("h",), help="Print this, and end."),
)
FALLBACKS = ("named", "single", "empty")
NAMED = "default"
NOTHING = Path("/dev/null")  # an empty config
EDITS_POLL_S = 5.0
# Ours, by the name of what they stand in for.
STAND_INS: Mapping[str, tuple[str, ...]] = {
    "nvidia-device-plugin": ("nvidia",),
    "gpu-feature-discovery": ("nvidia", "labels"),
    "mps-control-daemon": ("nvidia", "mps-daemon"),
}

Note = Callable[[str], None]


class Settings(Struct, frozen=True):
    oneshot: bool
    kubeconfig: str
    node_name: str
    node_label: str
    config_file_srcdir: str
    config_file_dst: str
    default_config: str
    fallback_strategies: tuple[str, ...]
    send_signal: bool
    signal: int
    process_to_signal: str


class NoChoice(FairleadError):
    """Nothing says which config to use."""


def read_settings(args: Sequence[str], environ: Mapping[str, str]) -> Settings | str:
    parsed = goflags.parse(FLAGS, args, environ)
    if parsed.values["help"]:
        return goflags.usage("fairlead nvidia config-manager", "A node label chooses the config file.", FLAGS)
    if parsed.rest:
        raise BadFlag(f"{parsed.rest[0]!r} is no flag: it and all after it would be passed over")
    values = {flag.name.replace("-", "_"): parsed.values[flag.name] for flag in FLAGS}
    made = Settings(**{key: values[key] for key in Settings.__struct_fields__})
    for name in ("node-name", "node-label", "config-file-srcdir", "config-file-dst"):
        if not values[name.replace("-", "_")]:
            variable = name.upper().replace("-", "_")
            raise BadFlag(f"invalid <{name}>: must not be empty string. Give --{name} or {variable}")
    for word in made.fallback_strategies:
        if word not in FALLBACKS:
            raise BadFlag(f"unknown fallback strategy: {word}. Use some of {', '.join(FALLBACKS)}")
    if not Path(made.config_file_dst).name:
        raise BadFlag(f"--config-file-dst: {made.config_file_dst!r} is a directory. Name the file in it")
    if made.signal not in {int(one) for one in signal.Signals}:
        raise BadFlag(f"--signal: there is no signal {made.signal}")
    return made


# --- Choice -----------------------------------------------------------------------------------------------------------


def choose(label: str, files: Sequence[str], default: str, fallbacks: Sequence[str]) -> str | None:
    """The file's name; None for the empty config. NoChoice says what was looked for."""
    if label:
        if label in files:
            return label
        raise NoChoice(f"specified config {label} does not exist. There are: {', '.join(sorted(files)) or 'none'}")
    if default:
        if default in files:
            return default
        raise NoChoice(f"the default config {default} does not exist. There are: {', '.join(sorted(files)) or 'none'}")
    for word in fallbacks:
        if word == "named" and NAMED in files:
            return NAMED
        if word == "single" and len(files) == 1:
            return files[0]
        if word == "empty":
            return None
    if not files:
        raise NoChoice("no configuration files available. Is the ConfigMap mounted?")
    tried = f" and none of {', '.join(fallbacks)} fits" if fallbacks else ""
    raise NoChoice(f"no config is set: the node has no label, there is no default{tried}. Label the node")


def list_files(directory: str) -> list[str]:
    """Those that are configs. A ConfigMap's own bookkeeping starts with two dots."""
    try:
        return sorted(
            entry.name for entry in Path(directory).iterdir() if not entry.name.startswith("..") and not entry.is_dir()
        )
    except OSError as error:
        raise HostError(
            f"{directory}: {error.strerror}. --config-file-srcdir is where the ConfigMap is mounted"
        ) from error


def put_in_place(source: Path, target: Path) -> bool:
    """Whether the link is another than before. Replaced in one step: the file is never missing."""
    if target.is_symlink() and target.readlink() == source:
        return False
    if target.exists() and target.resolve() == source.resolve():
        return False
    beside = target.with_name(f".{target.name}.new")
    try:
        beside.unlink(missing_ok=True)
        beside.symlink_to(source)
        beside.replace(target)
    except OSError as error:
        raise HostError(f"{target}: cannot be put in place ({error.strerror})") from error
    return True


# --- Telling ----------------------------------------------------------------------------------------------------------


def is_meant(argv: Sequence[str], name: str) -> bool:
    """Whether a process is the one of that name, or the one of ours that stands in for it."""
    if not argv:
        return False
    base = os.path.basename(name)  # noqa: PTH119 - a name that may be a path
    if argv[0] == name or os.path.basename(argv[0]) == base:  # noqa: PTH119 - as above
        return True
    wanted = STAND_INS.get(base)
    if wanted is None:
        return False
    words = [word for word in argv[:6] if not word.startswith("-")]  # python -m fairlead nvidia labels
    named = [number for number, word in enumerate(words) if os.path.basename(word) == "fairlead"]  # noqa: PTH119 - as above
    if not named:
        return False
    after = tuple(words[named[0] + 1 :])
    others = {words[1] for words in STAND_INS.values() if len(words) > 1} | {"config-manager"}
    return after[: len(wanted)] == wanted and (len(wanted) > 1 or not (set(after[1:2]) & others))


def find_processes(name: str, proc: Path = Path("/proc")) -> list[int]:
    found = []
    for entry in proc.iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            cmdline = files.read_bytes(entry / "cmdline", CMDLINE_MAX_BYTES)
            argv = cmdline.decode(errors="replace").rstrip("\0").split("\0")
        except OSError:
            continue  # it has ended meanwhile
        if is_meant(argv, name):
            found.append(int(entry.name))
    return sorted(found)


class Keeper:
    """Keeps the link true to the label, and its reader informed."""

    def __init__(self, settings: Settings, note: Note, proc: Path = Path("/proc")) -> None:
        self._settings = settings
        self._note = note
        self._proc = proc
        self._told = ""
        self._content = b""

    def follow(self, label: str) -> None:
        """Raises NoChoice or HostError if there is nothing to keep."""
        settings = self._settings
        files = list_files(settings.config_file_srcdir)
        target = Path(settings.config_file_dst)
        try:
            name = choose(label, files, settings.default_config, settings.fallback_strategies)
        except NoChoice as error:
            if not label:
                raise
            # Whatever the plugin runs with is better than no plugin.
            if target.exists():
                self._say(f"{error}; the config in force stays")
                return
            name = choose("", files, settings.default_config, settings.fallback_strategies)
            self._say(f"{error}; {name or 'the empty config'} is used instead")
        else:
            self._told = ""
        source = Path(settings.config_file_srcdir) / name if name is not None else NOTHING
        if put_in_place(source, target):
            self._note(f"config: {name or 'empty'}")
            self._content = digest(target)
            self._tell()

    def look(self) -> None:
        """Tells when the file that is in place reads otherwise."""
        content = digest(Path(self._settings.config_file_dst))
        if not self._content:
            self._content = content
        elif content and content != self._content:
            self._content = content
            self._note("the config in force was edited")
            self._tell()

    def _tell(self) -> None:
        settings = self._settings
        if not settings.send_signal:
            return
        found = find_processes(settings.process_to_signal, self._proc)
        if not found:
            self._note(f"no process found for {settings.process_to_signal!r}: nobody is told")
        for pid in found[:1]:
            try:
                os.kill(pid, settings.signal)
            except OSError as error:
                self._note(f"process {pid} cannot be told: {error.strerror}")

    def _say(self, text: str) -> None:
        if text != self._told:
            self._told = text
            self._note(text)


def digest(path: Path) -> bytes:
    try:
        return hashlib.blake2b(files.read_bytes(path)).digest()
    except OSError:
        return b""


async def run(
    settings: Settings, node: Latest[NodeNow], clock: Clock, note: Note, *, proc: Path = Path("/proc")
) -> None:
    """Until cancelled; with `oneshot`, until the first choice. Chooses nothing before the node is known."""
    keeper = Keeper(settings, note, proc)
    edits = asyncio.ensure_future(_follow_edits(keeper, clock)) if not settings.oneshot else None
    try:
        async for now in node.follow():
            if not now.complete:
                if now.problem:
                    note(now.problem)
                continue
            label = now.node.metadata.labels.get(settings.node_label, "") if now.node is not None else ""
            if now.node is None:
                note(f"there is no node {settings.node_name!r}: as without a label")
            keeper.follow(label)
            if settings.oneshot:
                return
    finally:
        if edits is not None:
            edits.cancel()


async def _follow_edits(keeper: Keeper, clock: Clock) -> None:
    while True:
        await clock.sleep(EDITS_POLL_S)
        keeper.look()
