"""Files that others write: only regular ones, only so much of them, and never a wait."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from fairlead.kit.files import check, read_bytes, read_once, read_text


def _fifo(path: Path) -> str:
    os.mkfifo(path)
    return str(path)


def _socket(path: Path) -> str:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))
    return str(path)


def _loop(path: Path) -> str:
    path.symlink_to(path)
    return str(path)


def _large(path: Path) -> str:
    with path.open("wb") as file:
        file.truncate(50 * 2**20)
    return str(path)


REFUSED: dict[str, tuple[Callable[[Path], str], str]] = {
    "FIFO": (_fifo, "it is a FIFO. Give a regular file"),
    "socket": (_socket, "it is a socket"),
    "directory": (str, "No such file|directory"),
    "loop": (_loop, "Too many levels of symbolic links"),
    "zero": (lambda _: "/dev/zero", "it is a character device"),
    "large": (_large, "it has 52,428,800 bytes, and 1,048,576 are the limit"),
    "NUL": (lambda _: "a\0b", "the path holds a NUL byte"),
}


@pytest.mark.parametrize("kind", [*REFUSED])
@pytest.mark.parametrize("read", [read_bytes, read_text])
def test_what_is_no_regular_file_or_too_large_is_refused(kind, read, tmp_path) -> None:
    make, reason = REFUSED[kind]
    with pytest.raises(OSError, match=reason):
        read(make(tmp_path / "file"))


def test_a_small_file_of_the_kernel_is_read_in_one_go_and_nothing_else_is(tmp_path) -> None:
    file = tmp_path / "numa_node"
    file.write_bytes(b"1\n" * 10)
    assert read_once(str(file), 20) == b"1\n" * 10
    with pytest.raises(OSError, match="it has more than 19 bytes"):
        read_once(str(file), 19)
    (tmp_path / "link").symlink_to(file)
    with pytest.raises(OSError, match="it is a symbolic link") as caught:
        read_once(str(tmp_path / "link"))
    assert caught.value.errno == errno.ELOOP
    for other in (_fifo(tmp_path / "fifo"), str(tmp_path), "/dev/zero"):
        with pytest.raises(OSError, match="it is a"):
            read_once(other)


def test_the_null_device_is_an_empty_file(tmp_path) -> None:
    """What NVIDIA's config manager links to where no configuration is chosen, and what runtimes mask files with."""
    link = tmp_path / "config.yaml"
    link.symlink_to(os.devnull)
    assert read_bytes(link) == b""
    assert read_text(os.devnull) == ""
    with pytest.raises(OSError, match="a character device"):
        check(os.devnull)  # a library is a file


def test_a_directory_is_refused_by_name(tmp_path) -> None:
    with pytest.raises(IsADirectoryError, match="it is a directory"):
        read_bytes(tmp_path)


def test_a_file_that_ends_behind_its_size_is_read_to_the_limit() -> None:
    assert read_bytes("/proc/self/cmdline")  # its size is 0
    with pytest.raises(OSError, match="it has more than 2 bytes"):
        read_bytes("/proc/self/status", 2)


def test_a_swap_between_check_and_open_does_not_wait(tmp_path, monkeypatch) -> None:
    path = _fifo(tmp_path / "f")
    monkeypatch.setattr("fairlead.kit.files.check", lambda *_: None)
    with pytest.raises(OSError, match="it is a FIFO"):
        read_bytes(path)


def test_text_may_begin_with_a_byte_order_mark(tmp_path) -> None:
    (tmp_path / "f").write_bytes(b"\xef\xbb\xbfa")
    assert read_text(tmp_path / "f") == "a"


def test_text_that_is_none_is_refused_with_its_line(tmp_path) -> None:
    (tmp_path / "f").write_bytes(b"a\nb\xff")
    with pytest.raises(OSError, match="line 2 holds the byte 0xff"):
        read_text(tmp_path / "f")
    assert read_text(tmp_path / "f", errors="replace") == "a\nb\ufffd"


def test_a_library_may_be_of_any_size_but_must_be_a_file(tmp_path) -> None:
    check(_large(tmp_path / "large"))
    with pytest.raises(OSError, match="it is a FIFO"):
        check(_fifo(tmp_path / "fifo"))
