"""Sockets with a time in their name that an earlier process left. No later one takes their place, so they are removed.

Only files of this form that are sockets, and on which no process listens.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import stat
from pathlib import Path

STARTED = "{started}"
MOST = 1000  # that are looked at


def remove_dead_sockets(directory: Path, template: str) -> list[str]:
    """The names of those that were removed. `template`: with STARTED where the time is."""
    form = re.escape(template).replace(re.escape(STARTED), "[0-9]{1,12}")
    form = re.sub(r"\\\{(domain|name)\\\}", "[-A-Za-z0-9_.]+", form)
    names = [name for name in sorted(os.listdir(directory)) if re.fullmatch(form, name)]  # noqa: PTH208 - names
    removed = []
    for name in names[:MOST]:
        path = directory / name
        if _is_dead(path):
            with contextlib.suppress(OSError):
                path.unlink()
                removed.append(name)
    return removed


def _is_dead(path: Path) -> bool:
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            return False
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)
            probe.connect(os.fspath(path))
    except ConnectionRefusedError:
        return True
    except OSError:  # a full queue is a process that listens
        return False
    return False
