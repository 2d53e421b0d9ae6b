"""Finds the daemons of this node by their sockets, and asks them.

Each daemon has a socket in one directory: `fairlead run` and every dialect under a name of its own. A command without
--status-socket asks the one that answers, or all of them.
"""

from __future__ import annotations

import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from fairlead.config.settings import overrides
from fairlead.config.spec import StatusSpec
from fairlead.model.errors import NotRunning, UsageError
from fairlead.observe.control import ask

MOST = 64  # sockets in one directory that are looked at


class Answer(Struct, frozen=True):
    socket: Path
    answer: Any


def ask_one(given: str | None, request: Mapping[str, Any]) -> Any:
    """The answer of the one daemon that is meant. UsageError when it could be any of several."""
    chosen = _chosen(given)
    if not chosen.is_dir():
        return ask(chosen, request)
    alive, silent = ask_all(given, {"ask": "journal", "count": 1})
    if not alive:
        raise silent[0]
    if len(alive) > 1:
        names = ", ".join(str(each.socket) for each in alive)
        raise UsageError(f"several daemons run here: {names}. Choose one with --status-socket")
    return ask(alive[0].socket, request)


def ask_all(given: str | None, request: Mapping[str, Any]) -> tuple[Sequence[Answer], Sequence[NotRunning]]:
    """The answers of all daemons that are meant, and what was wrong with those that gave none. Never neither."""
    chosen = _chosen(given)
    if not chosen.is_dir():
        return [Answer(chosen, ask(chosen, request))], []
    answers, silent = [], []
    for path in _sockets(chosen):
        try:
            answers.append(Answer(path, ask(path, request)))
        except NotRunning as error:
            silent.append(error)
    if not answers and not silent:
        silent.append(NotRunning(f"no daemon has a socket in {chosen}. Is `fairlead run` running?"))
    return answers, silent


def _chosen(given: str | None) -> Path:
    """A socket, or a directory of sockets: the flag's, the environment's, or the usual one."""
    found = next((str(item.value) for item in overrides({"--status-socket": given}) if item.path[0] == "status"), "")
    return Path(found or Path(StatusSpec().socket).parent)


def _sockets(directory: Path) -> list[Path]:
    try:
        return [path for path in sorted(directory.glob("*.sock"))[:MOST] if _is_socket(path)]
    except OSError as error:
        raise NotRunning(f"{directory}: {error.strerror}") from error


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.stat().st_mode)
    except FileNotFoundError:  # its daemon has just ended; the others are asked
        return False
