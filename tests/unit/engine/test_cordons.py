"""Cordons are kept in a file, end with their time, and no file that lies there instead can do harm."""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.clock import FakeClock

from fairlead.engine.cordons import FILE_MAX_BYTES, LOOK_S, Cordons
from fairlead.kit import files
from fairlead.model.errors import UsageError
from fairlead.policy.cordon import CORDONS_MAX, make_cordon


class Kept:
    """Cordons on a path, with what they said."""

    def __init__(self, path: Path, clock: FakeClock) -> None:
        self.facts: list[tuple[str, dict[str, Any]]] = []
        self.problems: dict[str, str] = {}
        self.changes = 0
        self.clock = clock
        self.cordons = Cordons(clock, lambda kind, **keys: self.facts.append((kind, keys)), self._note, self._changed)
        self.cordons.open(path)

    def _note(self, topic: str, problem: str) -> None:
        self.problems[topic] = problem

    def _changed(self) -> None:
        self.changes += 1

    async def add(self, device: str, for_s: float | None = None) -> str:
        return await self.cordons.add(make_cordon(device, "fan", self.clock.now(), for_s), uid=0, pid=1)


@asynccontextmanager
async def kept(path: Path, clock: FakeClock | None = None) -> AsyncIterator[Kept]:
    made = Kept(path, clock or FakeClock())
    try:
        yield made
    finally:
        made.cordons.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / ".fairlead.cordons"


async def test_a_cordon_outlasts_the_daemon(path: Path):
    async with kept(path) as first:
        assert await first.add("a") == ""
        assert await first.add("b") == ""
        assert await first.cordons.remove("b") == ""
    async with kept(path) as second:
        assert second.cordons.by_device == first.cordons.by_device
        assert set(second.cordons.conditions) == {"a"}
        assert second.facts == [("cordons-kept", {"devices": ["a"]})]
        assert not second.problems["cordons"]
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600  # noqa: PTH116 - as below
    assert os.listdir(path.parent) == [path.name]  # noqa: PTH208 - names


async def test_each_order_is_a_fact_with_its_caller_and_counts_at_once(path: Path):
    async with kept(path) as it:
        await it.add("a", 60.0)
        await it.cordons.remove("a", uid=0, pid=2)
        assert it.facts == [
            ("cordoned", {"device": "a", "reason": "fan", "until_s": 1_700_000_060, "uid": 0, "pid": 1}),
            ("uncordoned", {"device": "a", "reason": "ordered", "was": "fan", "uid": 0, "pid": 2}),
        ]
        assert it.changes == 2


async def test_a_cordon_ends_with_its_time(path: Path):
    clock = FakeClock()
    async with kept(path, clock) as it:
        await it.add("a", 7200.0)
        await it.add("b")
        await clock.advance(7199.0)
        assert set(it.cordons.conditions) == {"a", "b"}
        await clock.advance(1.0)
        assert set(it.cordons.conditions) == {"b"}
        assert it.facts[-1] == ("uncordoned", {"device": "a", "reason": "its time is over", "was": "fan"})
        assert it.changes == 3
        assert not clock.sleeping, "a cordon without an end needs no alarm"


async def test_a_cordon_that_ended_while_no_daemon_ran_does_not_come_back(path: Path):
    async with kept(path) as it:
        await it.add("a", 60.0)
    async with kept(path, FakeClock(1_700_000_061.0)) as later:
        assert not later.cordons.conditions


async def test_a_clock_that_is_set_forward_ends_a_cordon_within_a_minute(path: Path):
    clock = FakeClock()
    async with kept(path, clock) as it:
        await it.add("a", 7200.0)
        clock._start_s += 7200.0
        await clock.advance(LOOK_S)
        assert not it.cordons.conditions


async def test_the_condition_of_a_cordon_does_not_change_with_another_cordon(path: Path):
    clock = FakeClock()
    async with kept(path, clock) as it:
        await it.add("a")
        before = it.cordons.conditions["a"]
        await clock.advance(5.0)
        await it.add("b")
        assert it.cordons.conditions["a"] is before


async def test_a_cordon_counts_even_if_it_cannot_be_written(path: Path, monkeypatch: pytest.MonkeyPatch):
    async with kept(path) as it:

        def full(*_args: Any, **_keys: Any) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(files, "replace", full)
            assert "No space left on device" in await it.add("a")
        assert "give the order again" in it.problems["cordons"]
        assert "a" in it.cordons.conditions
        assert await it.add("a") == ""
        assert not it.problems["cordons"]


async def test_a_disk_that_hangs_holds_up_neither_the_loop_nor_the_order(path: Path, monkeypatch: pytest.MonkeyPatch):
    clock, gate = FakeClock(), asyncio.Event()
    async with kept(path, clock) as it:
        loop, release = asyncio.get_running_loop(), threading.Event()

        def hangs(*_args: Any, **_keys: Any) -> None:
            loop.call_soon_threadsafe(gate.set)
            release.wait(30)

        monkeypatch.setattr(files, "replace", hangs)
        order = asyncio.create_task(it.add("a"))
        await gate.wait()
        assert "a" in it.cordons.conditions
        await clock.advance(10.0)
        assert "has not answered" in await order
        release.set()


async def test_the_number_of_cordons_is_bounded(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(files, "replace", lambda *_args, **_keys: None)
    async with kept(path) as it:
        for number in range(CORDONS_MAX):
            await it.add(f"d{number}")
        with pytest.raises(UsageError, match="Uncordon another"):
            await it.add("one-more")
        assert await it.add("d0") == "", "one that is cordoned already may have another reason"


def entry(**keys: Any) -> dict[str, Any]:
    return {"device": "a", "reason": "fan", "at_s": 1.0, "until_s": None, **keys}


def saved(*cordons: Any, version: int = 1) -> bytes:
    return msgspec.json.encode({"version": version, "cordons": cordons})


def write(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    path.chmod(0o600)


def place(path: Path, kind: str) -> None:
    good = path.with_name("elsewhere")
    good.write_bytes(saved(entry()))
    if kind == "link":
        path.symlink_to(good)
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        good.rename(path)
        path.chmod(0o666)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "something else"),
        (b"[" * 100_000, "something else"),
        (b"\xff\xfe", "something else"),
        (saved(entry())[:-4], "something else"),
        (saved(entry(), version=2), "version"),
        (saved(entry(reason="\x1b[2J")), "printable"),
        (saved(entry(reason="x" * 10_000)), "printable"),
        (saved(entry(device="")), "names no device"),
        (saved(entry(device="x" * 10_000)), "names no device"),
        (saved(entry(at_s=-1.0)), "no time"),
        (saved(entry(until_s=1e300)), "no time"),
        (saved(entry(at_s="soon")), "something else"),
        (saved(*[entry(device=f"d{number}") for number in range(CORDONS_MAX + 1)]), "over 256"),
        (b" " * (FILE_MAX_BYTES + 1), "bytes"),
    ],
)
async def test_a_damaged_file_is_a_problem_and_no_cordon(path: Path, content: bytes, said: str):
    write(path, content)
    async with kept(path) as it:
        assert said in it.problems["cordons"]
        assert str(path) in it.problems["cordons"]
        assert not it.cordons.conditions
        assert await it.add("a") == "", "the next order writes a good one"
    async with kept(path) as again:
        assert not again.problems["cordons"]
        assert "a" in again.cordons.conditions


@pytest.mark.parametrize("kind", ["link", "fifo", "directory", "others"])
async def test_what_is_no_file_of_ours_is_neither_followed_nor_waited_for(path: Path, kind: str):
    place(path, kind)
    async with kept(path) as it:
        assert str(path) in it.problems["cordons"]
        assert not it.cordons.conditions


async def test_a_field_of_a_newer_version_is_passed_over(path: Path):
    write(path, saved(entry(colour="red")))
    async with kept(path) as it:
        assert "a" in it.cordons.conditions
