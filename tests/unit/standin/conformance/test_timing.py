"""A limit does not count the time in which there was no core to run on, and ends all the same."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from fairlead.standin.conformance.timing import MOST_S, MOST_TIMES, LoadAwareTimer

LIMIT_S = 10.0
PLUGIN, CHILD = 71, 72


class Threads:
    """As much of /proc as is looked at: one thread per process."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def put(self, pid: int, waited_s: float, *children: int) -> None:
        thread = self._root / str(pid) / "task" / str(pid)
        thread.mkdir(parents=True, exist_ok=True)
        (thread / "schedstat").write_text(f"5 {int(waited_s * 1e9)} 9\n")
        (thread / "children").write_text("".join(f"{child} " for child in children))


@pytest.fixture
def threads(tmp_path: Path) -> Threads:
    return Threads(tmp_path)


class Watch:
    """A clock that the test turns."""

    def __init__(self) -> None:
        self.now_s = 500.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def timer(tmp_path: Path, watch: Watch) -> LoadAwareTimer:
    return LoadAwareTimer(lambda: [PLUGIN], tmp_path, watch)


def test_a_limit_is_over_when_nobody_waited_for_a_core(timer: LoadAwareTimer, threads: Threads, watch: Watch):
    threads.put(PLUGIN, 3.0)
    span = timer.begin(LIMIT_S)
    watch.now_s += 4.0
    assert span.left_s() == pytest.approx(6.0)
    watch.now_s += 6.0
    assert (span.left_s(), span.lost_s()) == (0.0, 0.0)


def test_what_the_plugin_waited_for_a_core_is_given_back(timer: LoadAwareTimer, threads: Threads, watch: Watch):
    threads.put(PLUGIN, 3.0)
    span = timer.begin(LIMIT_S)
    watch.now_s += LIMIT_S
    threads.put(PLUGIN, 7.0)
    assert span.left_s() == pytest.approx(4.0)
    watch.now_s += 4.0
    assert span.left_s() == 0


@pytest.mark.parametrize("pid", [CHILD, os.getpid()], ids=["its child", "this process"])
def test_what_the_plugin_started_and_what_we_wait_counts_too(
    pid: int, timer: LoadAwareTimer, threads: Threads, watch: Watch
):
    threads.put(PLUGIN, 0.0, CHILD)
    span = timer.begin(LIMIT_S)
    watch.now_s += LIMIT_S
    threads.put(pid, 2.0)  # it was not there before: all of it counts
    assert span.left_s() == pytest.approx(2.0)


def test_a_process_that_never_rests_does_not_stretch_a_limit_for_ever(
    timer: LoadAwareTimer, threads: Threads, watch: Watch
):
    threads.put(PLUGIN, 0.0)
    span = timer.begin(LIMIT_S)
    threads.put(PLUGIN, 10_000.0)
    watch.now_s += LIMIT_S * MOST_TIMES + MOST_S
    assert span.left_s() == pytest.approx(LIMIT_S)
    watch.now_s += LIMIT_S
    assert span.left_s() == 0


def test_a_kernel_that_does_not_count_leaves_the_limit_as_it_is(timer: LoadAwareTimer, watch: Watch):
    span = timer.begin(LIMIT_S)
    watch.now_s += LIMIT_S
    assert span.left_s() == 0


async def test_work_that_is_late_is_cancelled_and_work_in_time_is_not():
    timer, forever = LoadAwareTimer(), asyncio.Event()
    with pytest.raises(TimeoutError):
        await timer.within(0.01, forever.wait())
    assert await timer.within(60.0, asyncio.sleep(0, "done")) == "done"
    with pytest.raises(LookupError):
        await timer.within(60.0, fail())


async def fail() -> None:
    raise LookupError


async def test_a_rest_ends():
    await LoadAwareTimer().rest(0.01)


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="this kernel does not count")
def test_the_real_kernel_is_asked_about_this_process():
    waits = LoadAwareTimer().waits()
    assert os.getpid() in waits
    assert all(waited_s >= 0 for waited_s in waits.values())
