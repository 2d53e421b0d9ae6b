"""Listening on a unix socket without a moment in which others could connect. Knows no protocol."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import struct
import threading
from pathlib import Path
from typing import Any

from fairlead.wire.method import Peer

# sun_path is 108 bytes on Linux and ends with a NUL.
MAX_PATH_BYTES = 107

# The umask belongs to the process: two threads must not hold it at once.
_umask_lock = threading.Lock()


_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


class SocketPathError(ValueError):
    """The path cannot be a socket."""


def check_path(path: str | os.PathLike[str]) -> str:
    """The path as text, when a socket address can hold it."""
    text = os.fspath(path)
    size = len(os.fsencode(text))
    if size > MAX_PATH_BYTES:
        raise SocketPathError(
            f"socket path {text} has {size} bytes; the system allows {MAX_PATH_BYTES}. Choose a shorter directory."
        )
    if not text or "\0" in text:
        raise SocketPathError(f"socket path {text!r} is not a file name")
    return text


def listen(
    path: str | os.PathLike[str],
    *,
    mode: int = 0o600,
    backlog: int = 128,
    kind: socket.SocketKind = socket.SOCK_STREAM,
) -> socket.socket:
    """A non-blocking listening socket. Replaces a socket file left behind, never a file of another kind."""
    text = check_path(path)
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.lstat(text).st_mode):
            raise SocketPathError(f"{text} exists and is not a socket; remove it or choose another path")
        Path(text).unlink()
    sock = socket.socket(socket.AF_UNIX, kind)
    try:
        sock.setblocking(False)
        with _umask_lock:
            # A file's mode is set when bind creates it: changing it afterwards would leave a gap.
            before = os.umask(0o777 & ~mode)
            try:
                sock.bind(text)
            finally:
                os.umask(before)
        sock.listen(backlog)
    except BaseException:
        sock.close()
        raise
    return sock


def peer_of(sock: Any) -> Peer:
    """Who is at the other end: who connected, or, for a socket of ours that connected, who listens."""
    try:
        pid, uid, _ = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    except (OSError, AttributeError, struct.error):
        return Peer()
    # The kernel gives pid 0 and uid -1 to what has no credentials, such as TCP.
    return Peer(pid, uid)
