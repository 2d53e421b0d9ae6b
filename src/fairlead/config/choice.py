"""Which file of a directory is the configuration of a node: a label of the node names it.

Pure but for the listing of the directory. Shared by the daemon, which follows the label itself, and by the program that
follows it for others.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from fairlead.model.errors import FairleadError, HostError

FALLBACKS = ("named", "single", "empty")  # what a node without the label gets, in the order in which they are given
NAMED = "default"
NOTHING = Path("/dev/null")  # an empty configuration
FILES_MAX = 4096  # a ConfigMap of 1 MiB has fewer


class NoChoice(FairleadError):
    """Nothing says which configuration to use."""


def choose(label: str, files: Sequence[str], default: str, fallbacks: Sequence[str]) -> str | None:
    """The file's name; None for the empty configuration. NoChoice says what was looked for."""
    for name, kind in ((label, "specified config"), (default, "the default config")):
        if name in files:
            return name
        if name:
            raise NoChoice(f"{kind} {name} does not exist. There are: {', '.join(sorted(files)) or 'none'}")
    for strategy in fallbacks:
        if strategy == "named" and NAMED in files:
            return NAMED
        if strategy == "single" and len(files) == 1:
            return files[0]
        if strategy == "empty":
            return None
    if not files:
        raise NoChoice("no configuration files available. Is the ConfigMap mounted?")
    tried = f" and none of {', '.join(fallbacks)} fits" if fallbacks else ""
    raise NoChoice(f"no config is set: the node has no label, there is no default{tried}. Label the node")


def list_files(directory: str, flag: str) -> list[str]:
    """Those that are configurations. A ConfigMap's own bookkeeping starts with two dots."""
    try:
        entries = islice(Path(directory).iterdir(), FILES_MAX)
        return sorted(entry.name for entry in entries if not entry.name.startswith("..") and not entry.is_dir())
    except OSError as error:
        raise HostError(f"{directory}: {error.strerror}. {flag} is where the ConfigMap is mounted") from error


def path_of(directory: str, name: str | None) -> Path:
    return Path(directory) / name if name is not None else NOTHING
