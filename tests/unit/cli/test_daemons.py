"""Which sockets of a directory are asked."""

from __future__ import annotations

import socket
from pathlib import Path

from fairlead.cli.daemons import ask_all


def test_a_socket_that_goes_away_does_not_hide_the_others(tmp_path: Path):
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "a.sock"))
    (tmp_path / "b.sock").symlink_to("gone")  # found in the directory, and not there
    answers, silent = ask_all(str(tmp_path), {"ask": "status"})
    assert not answers
    assert [str(tmp_path / "a.sock") in str(error) for error in silent] == [True]
