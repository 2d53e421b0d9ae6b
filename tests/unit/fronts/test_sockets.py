"""Socket files: which is which, who looks how often, and who holds a directory."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from tests.clock import FakeClock

from fairlead.fronts.sockets import (
    HURRY_CALM_S,
    HURRY_MAX_S,
    HURRY_MIN_S,
    POLL_S,
    QUIET_S,
    DirectoryLock,
    SocketWatch,
    identity,
)
from fairlead.model.errors import HostError


def listen(path: Path) -> socket.socket:
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    return server


def test_a_socket_has_an_identity_and_other_files_have_none(kubelet_root: Path):
    path = kubelet_root / "a.sock"
    assert identity(path) is None
    path.write_text("")
    assert identity(path) is None
    path.unlink()
    with listen(path):
        assert identity(path) is not None


def test_a_socket_made_again_is_another_one_even_with_the_same_inode(kubelet_root: Path):
    path = kubelet_root / "a.sock"
    with listen(path):
        first = identity(path)
        path.unlink()
    with listen(path):
        assert identity(path) != first


def test_watchers_are_told_of_changes_and_of_nothing_else(kubelet_root: Path):
    watch, seen = SocketWatch(kubelet_root, FakeClock()), list[Any]()
    leave = watch.follow("a.sock", seen.append)
    watch.look()
    assert seen == []
    with listen(kubelet_root / "a.sock"):
        watch.look()
        watch.look()
        assert seen == [identity(kubelet_root / "a.sock")]
        (kubelet_root / "a.sock").unlink()
    watch.look()
    assert seen[-1] is None
    leave()
    leave()  # twice is once
    with listen(kubelet_root / "a.sock"):
        watch.look()
    assert len(seen) == 2


def test_what_we_made_ourselves_is_no_news(kubelet_root: Path):
    watch, seen = SocketWatch(kubelet_root, FakeClock()), list[Any]()
    watch.follow("a.sock", seen.append)
    with listen(kubelet_root / "a.sock"):
        watch.expect("a.sock")
        watch.look()
    assert seen == []


async def test_the_look_is_slow_until_somebody_waits_then_quick_then_slower(
    kubelet_root: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(fcntl, "fcntl", _refuse)  # no notices: the look does the work
    clock = FakeClock()
    watch, seen = SocketWatch(kubelet_root, clock), list[Any]()
    watch.follow("a.sock", seen.append)
    assert watch.pause_s == POLL_S
    running = asyncio.create_task(watch.run())
    await clock.advance(1)
    watch.hurry("me", waits=True)
    assert watch.pause_s == HURRY_MIN_S
    with listen(kubelet_root / "a.sock"):
        await clock.advance(HURRY_MIN_S)
        assert len(seen) == 1
        await clock.advance(1)
        assert watch.pause_s == pytest.approx(0.02, rel=0.01)
        await clock.advance(600)
        assert watch.pause_s == HURRY_MAX_S
        watch.hurry("me", waits=True)  # still the same wait
        assert watch.pause_s == HURRY_MAX_S
        watch.hurry("me", waits=False)
        assert watch.pause_s == POLL_S
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def _refuse(*_args: object) -> int:
    raise OSError("not supported")


async def test_where_the_kernel_gives_notice_nobody_looks_often(kubelet_root: Path):
    clock = FakeClock()
    watch = SocketWatch(kubelet_root, clock)
    running = asyncio.create_task(watch.run())
    await clock.advance(1)
    assert watch.pause_s == QUIET_S
    watch.hurry("me", waits=True)
    assert watch.pause_s == HURRY_CALM_S
    await clock.advance(600)
    assert watch.pause_s == HURRY_MAX_S
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_the_kernel_tells_of_a_change_long_before_the_next_look(kubelet_root: Path):
    clock, changed = FakeClock(), asyncio.Event()  # time stands still: no look comes by itself
    watch = SocketWatch(kubelet_root, clock)
    watch.follow("a.sock", lambda _now: changed.set())
    running = asyncio.create_task(watch.run())
    await clock.advance(0)
    with listen(kubelet_root / "a.sock"):
        await asyncio.wait_for(changed.wait(), 10)
    changed.clear()
    (kubelet_root / "a.sock").unlink()
    await asyncio.wait_for(changed.wait(), 10)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    (kubelet_root / "b.sock").touch()  # a late notice must not end us


async def test_a_replaced_directory_is_watched_again(kubelet_root: Path):
    clock, changed = FakeClock(), asyncio.Event()
    directory = kubelet_root / "plugins"
    directory.mkdir()
    watch = SocketWatch(directory, clock)
    watch.follow("a.sock", lambda _now: changed.set())
    running = asyncio.create_task(watch.run())
    await clock.advance(0)
    directory.rmdir()
    await clock.advance(QUIET_S)
    assert watch.pause_s == POLL_S  # there is nothing that could give notice
    directory.mkdir()
    await clock.advance(POLL_S)
    assert watch.pause_s == QUIET_S
    with listen(directory / "a.sock"):
        await asyncio.wait_for(changed.wait(), 10)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_two_watches_are_both_told(kubelet_root: Path):
    clock, told = FakeClock(), [asyncio.Event(), asyncio.Event()]
    watches = [SocketWatch(kubelet_root, clock) for _ in told]
    tasks = []
    for watch, event in zip(watches, told, strict=True):
        watch.follow("a.sock", lambda _now, event=event: event.set())  # type: ignore[misc]  # bound per watch
        tasks.append(asyncio.create_task(watch.run()))
    await clock.advance(0)
    with listen(kubelet_root / "a.sock"):
        for event in told:
            await asyncio.wait_for(event.wait(), 10)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def test_the_second_holder_learns_who_the_first_is(tmp_path: Path):
    first, second = DirectoryLock(tmp_path), DirectoryLock(tmp_path)
    first.acquire("fairlead run --config x")
    with pytest.raises(HostError, match=rf"pid {os.getpid()} \(fairlead run --config x\)"):
        second.acquire("fairlead run")
    first.release()
    first.release()
    second.acquire("fairlead run")
    second.release()


def test_two_names_share_a_directory(tmp_path: Path):
    one, other = DirectoryLock(tmp_path, "one"), DirectoryLock(tmp_path, "other")
    one.acquire("a")
    other.acquire("b")
    one.release()
    other.release()


def test_the_lock_is_a_dot_file(tmp_path: Path):
    """The kubelet counts every other entry of its directory as a checkpoint."""
    lock = DirectoryLock(tmp_path)
    lock.acquire("x")
    assert all(path.name.startswith(".") for path in tmp_path.iterdir())
    lock.release()


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path):
    with pytest.raises(HostError, match="cannot write here"):
        DirectoryLock(tmp_path / "nowhere").acquire("x")


def _fifo(path: Path, _victim: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path, _victim: Path) -> None:
    listen(path).close()


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda path, victim: path.symlink_to(victim), "a symbolic link"),
        (lambda path, victim: path.symlink_to(victim.with_name("gone")), "a symbolic link"),
        (lambda path, victim: path.hardlink_to(victim), "a file with several names"),
        (lambda path, victim: path.mkdir(), "a directory"),
        (_fifo, "a FIFO"),
        (_socket, "a socket"),
    ],
)
def test_what_is_no_lock_file_is_refused_and_left_as_it_is(make, what: str, kubelet_root: Path):
    victim, path = kubelet_root / "victim", kubelet_root / ".fairlead.lock"
    victim.write_text("precious")
    make(path, victim)
    with pytest.raises(HostError, match=rf"\.fairlead\.lock is {what}, where a lock file must be.*remove it") as caught:
        DirectoryLock(kubelet_root).acquire("x")
    assert caught.value.exit_code == 3
    assert victim.read_text() == "precious"
    assert path.is_symlink() or path.exists()


@pytest.mark.parametrize("call", ["ftruncate", "pwrite"])
def test_a_full_disk_keeps_the_name_out_of_the_lock_and_nobody_out_of_the_directory(call, tmp_path, monkeypatch):
    def full(*_args: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    first, second = DirectoryLock(tmp_path), DirectoryLock(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        first.acquire("x")
        with pytest.raises(HostError, match="already served by an unknown process"):
            second.acquire("y")
        first.release()
    second.acquire("y")  # nothing was left behind
    second.release()


def test_a_lock_that_cannot_be_had_leaves_nothing_behind(tmp_path, monkeypatch):
    def broken(*_args: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    lock = DirectoryLock(tmp_path)
    before = len(list(Path("/proc/self/fd").iterdir()))
    with monkeypatch.context() as patch:
        patch.setattr("fcntl.flock", broken)
        with pytest.raises(HostError, match="cannot be locked: No locks available"):
            lock.acquire("x")
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    lock.acquire("x")
    lock.release()


def test_a_full_directory_is_named_as_such(tmp_path, monkeypatch):
    def full(*_args: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", full)
        with pytest.raises(HostError, match=r"No space left on device\). Make room there"):
            DirectoryLock(tmp_path).acquire("x")


def test_a_name_that_is_not_utf8_is_told_to_the_second(tmp_path):
    first, second = DirectoryLock(tmp_path), DirectoryLock(tmp_path)
    first.acquire("fairlead run --config c\udcff\x1b[2J")
    with pytest.raises(HostError, match=r"--config c\\xff\\x1b\[2J\)"):
        second.acquire("fairlead run")
    first.release()
