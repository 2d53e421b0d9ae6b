"""Listening sockets: their mode, their path, and what they may replace."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from fairlead.wire.unix import MAX_PATH_BYTES, SocketPathError, listen


@pytest.mark.parametrize("mode", [0o600, 0o660])
def test_the_file_has_its_mode_from_the_first_instant(
    tmp_path: Path, mode: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "p.sock"
    seen: list[int] = []

    class Watched(socket.socket):
        def listen(self, backlog: int = 0, /) -> None:
            seen.append(stat.S_IMODE(path.stat().st_mode))
            super().listen(backlog)

    monkeypatch.setattr("fairlead.wire.unix.socket.socket", Watched)
    before = os.umask(0o022)
    try:
        with listen(path, mode=mode) as sock:
            assert seen == [mode]
            assert sock.getblocking() is False
        assert os.umask(0o022) == 0o022  # left as it was
    finally:
        os.umask(before)


def test_a_socket_left_behind_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "p.sock"
    listen(path).close()
    with listen(path), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))


def test_another_kind_of_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "p.sock"
    path.write_text("precious")
    with pytest.raises(SocketPathError, match="exists and is not a socket"):
        listen(path)
    protocol = tmp_path / "protocol.sock"
    protocol.symlink_to(path)
    with pytest.raises(SocketPathError):
        listen(protocol)
    assert path.read_text() == "precious"


def test_a_path_too_long_is_named_with_its_length(tmp_path: Path) -> None:
    path = f"/tmp/{'ä' * 60}"
    with pytest.raises(SocketPathError, match=rf"{path} has 125 bytes; the system allows {MAX_PATH_BYTES}"):
        listen(path)
    with pytest.raises(SocketPathError, match="is not a file name"):
        listen("")


def test_the_longest_path_works(tmp_path: Path) -> None:
    path = Path(f"{tmp_path}/".ljust(MAX_PATH_BYTES, "x"))
    with listen(path):
        assert path.is_socket()


def test_a_missing_directory_leaves_nothing_open(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        listen(tmp_path / "nowhere" / "p.sock")
