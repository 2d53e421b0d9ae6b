"""NVIDIA's config-manager: a label of the node chooses the config file, a link puts it in place, a signal reports it.

What upstream gets wrong is right here: the node is known before anything is chosen, a label that names no file keeps
what is in force, and an edited ConfigMap is reported as well.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from fairlead.cluster.nodes import NodeSnapshot
from fairlead.config.choice import FALLBACKS, NoChoice, choose, list_files, path_of
from fairlead.dialects import goflags
from fairlead.dialects.goflags import BadFlag, Flag, Kind
from fairlead.dialects.invocation import HELP
from fairlead.dialects.nvidia.flags import KUBECONFIG
from fairlead.kit import files
from fairlead.kit.latest import Latest
from fairlead.model.errors import HostError
from fairlead.model.ports import Clock

INTERPRETER = re.compile(r"python[0-9.]*")
CMDLINE_MAX_BYTES = 8 * 2**20  # the kernel takes no longer command line by default
FLAGS = (
    Flag("oneshot", Kind.BOOL, False, ("ONESHOT",), help="Choose once, and end."),
    KUBECONFIG,
    Flag("node-name", Kind.TEXT, "", ("NODE_NAME",), help="The node whose label chooses. Needed."),
    Flag("node-label", Kind.TEXT, "nvidia.com/device-plugin.config", ("NODE_LABEL",), help="The label."),
    Flag("config-file-srcdir", Kind.TEXT, "", ("CONFIG_FILE_SRCDIR",), help="Directory of the files. Needed."),
    Flag("config-file-dst", Kind.TEXT, "", ("CONFIG_FILE_DST",), help="Where the chosen one is put. Needed."),
    Flag("default-config", Kind.TEXT, "", ("DEFAULT_CONFIG",), help="The file for a node without the label."),
    Flag("fallback-strategies", Kind.TEXTS, (), ("FALLBACK_STRATEGIES",), help="Some of named, single, empty."),
    Flag("send-signal", Kind.BOOL, True, ("SEND_SIGNAL",), help="Send a signal to the process that reads the file."),
    Flag("signal", Kind.INT, int(signal.SIGHUP), ("SIGNAL",), help="The signal's number."),
    Flag("process-to-signal", Kind.TEXT, "nvidia-device-plugin", ("PROCESS_TO_SIGNAL",), help="Its name."),
    HELP,
)
EDITS_POLL_S = 5.0
# Ours, by the name of what they stand in for.
OWN_COMMANDS: Mapping[str, tuple[str, ...]] = {
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
    for strategy in made.fallback_strategies:
        if strategy not in FALLBACKS:
            raise BadFlag(f"unknown fallback strategy: {strategy}. Use some of {', '.join(FALLBACKS)}")
    if not Path(made.config_file_dst).name:
        raise BadFlag(f"--config-file-dst: {made.config_file_dst!r} is a directory. Name the file in it")
    if made.signal not in {int(one) for one in signal.Signals}:
        raise BadFlag(f"--signal: there is no signal {made.signal}")
    return made


# --- Link -------------------------------------------------------------------------------------------------------------


def replace_link(source: Path, target: Path) -> bool:
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


def is_named(argv: Sequence[str], name: str) -> bool:
    """Whether a process is the one of that name, or the one of ours that stands in for it."""
    if not argv:
        return False
    base = os.path.basename(name)  # noqa: PTH119 - a name that may be a path
    if argv[0] == name or _called(argv) == base:
        return True
    wanted = OWN_COMMANDS.get(base)
    if wanted is None:
        return False
    arguments = [argument for argument in argv[:6] if not argument.startswith("-")]  # python -m fairlead nvidia labels
    names = [os.path.basename(argument) for argument in arguments]  # noqa: PTH119 - as above
    if "fairlead" not in names:
        return False
    after = tuple(arguments[names.index("fairlead") + 1 :])
    others = {command[1] for command in OWN_COMMANDS.values() if len(command) > 1} | {"config-manager"}
    return after[: len(wanted)] == wanted and (len(wanted) > 1 or not (set(after[1:2]) & others))


def _called(argv: Sequence[str]) -> str:
    """The name of the program; of a script, and not of its interpreter: ours are called by NVIDIA's names too."""
    program = os.path.basename(argv[0])  # noqa: PTH119 - as above
    if INTERPRETER.fullmatch(program):
        script = next((argument for argument in argv[1:] if not argument.startswith("-")), program)
        return os.path.basename(script)  # noqa: PTH119 - as above
    return program


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
        if is_named(argv, name):
            found.append(int(entry.name))
    return sorted(found)


class ConfigLink:
    """Keeps the link true to the label, and its reader informed."""

    def __init__(self, settings: Settings, note: Note, proc: Path = Path("/proc")) -> None:
        self._settings = settings
        self._note = note
        self._proc = proc
        self._last_note = ""
        self._content = b""

    def follow(self, label: str) -> None:
        """Raises NoChoice or HostError if there is nothing to keep."""
        settings = self._settings
        files = list_files(settings.config_file_srcdir, "--config-file-srcdir")
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
            self._last_note = ""
        if replace_link(path_of(settings.config_file_srcdir, name), target):
            self._note(f"config: {name or 'empty'}")
            self._content = digest(target)
            self._signal()

    def look(self) -> None:
        """Signals when the content of the file has changed."""
        content = digest(Path(self._settings.config_file_dst))
        if not self._content:
            self._content = content
        elif content and content != self._content:
            self._content = content
            self._note("the config in force was edited")
            self._signal()

    def _signal(self) -> None:
        settings = self._settings
        if not settings.send_signal:
            return
        found = find_processes(settings.process_to_signal, self._proc)
        if not found:
            self._note(f"no process found for {settings.process_to_signal!r}: no signal is sent")
        for pid in found[:1]:
            try:
                os.kill(pid, settings.signal)
            except OSError as error:
                self._note(f"process {pid} cannot be signalled: {error.strerror}")

    def _say(self, text: str) -> None:
        if text != self._last_note:
            self._last_note = text
            self._note(text)


def digest(path: Path) -> bytes:
    try:
        return hashlib.blake2b(files.read_bytes(path)).digest()
    except OSError:
        return b""


async def run(
    settings: Settings, node: Latest[NodeSnapshot], clock: Clock, note: Note, *, proc: Path = Path("/proc")
) -> None:
    """Until cancelled; with `oneshot`, until the first choice. Chooses nothing before the node is known."""
    link = ConfigLink(settings, note, proc)
    edits = asyncio.ensure_future(_follow_edits(link, clock)) if not settings.oneshot else None
    try:
        async for now in node.follow():
            if not now.complete:
                if now.problem:
                    note(now.problem)
                continue
            label = now.node.metadata.labels.get(settings.node_label, "") if now.node is not None else ""
            if now.node is None:
                note(f"there is no node {settings.node_name!r}: as without a label")
            link.follow(label)
            if settings.oneshot:
                return
    finally:
        if edits is not None:
            edits.cancel()


async def _follow_edits(link: ConfigLink, clock: Clock) -> None:
    while True:
        await clock.sleep(EDITS_POLL_S)
        link.look()
