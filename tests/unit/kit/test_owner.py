"""The owner thread: a blocking library that hangs becomes an error, and never a second thread."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Iterator

import pytest
from tests.clock import FakeClock, settle

from fairlead.kit.owner import Owner
from fairlead.model.errors import BackendError


class Library:
    """A library whose call blocks until it is let go."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.let_go = threading.Event()

    def query(self) -> str:
        self.entered.set()
        assert self.let_go.wait(30)
        return "late"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def owner(clock: FakeClock) -> Iterator[Owner]:
    owner = Owner("nvml", clock)
    yield owner
    owner.close()


@pytest.fixture
def library() -> Iterator[Library]:
    library = Library()
    yield library
    library.let_go.set()


async def entered(library: Library) -> None:
    await asyncio.to_thread(library.entered.wait, 30)


async def stick(owner: Owner, library: Library, clock: FakeClock) -> None:
    call = asyncio.create_task(owner.call(library.query, deadline_s=5))
    await entered(library)
    await clock.advance(5)
    with pytest.raises(BackendError, match=r"^nvml: query has not answered for 5 s$"):
        await call


async def test_a_call_gives_what_the_function_gives(owner: Owner) -> None:
    assert await owner.call(divmod, 7, 3) == (2, 1)


async def test_a_call_raises_what_the_function_raises(owner: Owner) -> None:
    with pytest.raises(ZeroDivisionError):
        await owner.call(divmod, 7, 0)
    assert await owner.call(int, "3") == 3


@pytest.mark.parametrize("failure", [StopIteration, SystemExit, KeyboardInterrupt])
async def test_an_exception_that_would_end_the_loop_becomes_an_error(
    owner: Owner, failure: type[BaseException]
) -> None:
    def end() -> None:
        raise failure("enough")

    with pytest.raises(BackendError, match=f"{failure.__name__}: enough"):
        await owner.call(end)
    assert await owner.call(int, "3") == 3


async def test_all_calls_run_on_one_thread(owner: Owner) -> None:
    threads = await asyncio.gather(*(owner.call(threading.get_ident) for _ in range(5)))
    assert len(set(threads)) == 1
    assert threads[0] != threading.get_ident()


async def test_a_call_past_its_deadline_is_an_error_that_says_what_and_how_long(
    owner: Owner, library: Library, clock: FakeClock
) -> None:
    await stick(owner, library, clock)
    assert owner.stuck() == "nvml: query has not answered for 5 s"


async def test_a_call_that_says_now_and_then_that_it_lives_may_go_on(owner: Owner, clock: FakeClock) -> None:
    turns: queue.SimpleQueue[bool] = queue.SimpleQueue()
    heard: queue.SimpleQueue[bool] = queue.SimpleQueue()

    def go_on() -> str:
        while turns.get(timeout=30):
            owner.beat()
            heard.put(True)
        return "over"

    call = asyncio.create_task(owner.call(go_on, deadline_s=5))
    for _ in range(4):
        await clock.advance(4)
        turns.put(True)
        await asyncio.to_thread(heard.get, timeout=30)
    assert owner.stuck() == ""
    assert not call.done()
    await clock.advance(5)
    with pytest.raises(BackendError, match=r"^nvml: go_on has not answered for 5 s$"):
        await call
    turns.put(False)


async def test_calls_behind_a_stuck_one_fail_at_once(owner: Owner, library: Library, clock: FakeClock) -> None:
    await stick(owner, library, clock)
    await clock.advance(7)
    before = threading.active_count()
    for _ in range(3):
        with pytest.raises(BackendError, match=r"^nvml: query has not answered for 12 s$"):
            await owner.call(int, "3")
    assert threading.active_count() == before


async def test_the_owner_recovers_when_the_stuck_call_returns(owner: Owner, library: Library, clock: FakeClock) -> None:
    await stick(owner, library, clock)
    library.let_go.set()
    await asyncio.to_thread(_until_idle, owner)
    assert await owner.call(int, "3") == 3


async def test_a_call_that_waits_its_turn_too_long_says_who_is_in_the_way(
    owner: Owner, library: Library, clock: FakeClock
) -> None:
    ran: list[int] = []
    slow = asyncio.create_task(owner.call(library.query, deadline_s=60))
    await entered(library)
    behind = asyncio.create_task(owner.call(ran.append, 1, deadline_s=5))
    await clock.advance(5)
    with pytest.raises(BackendError, match=r"nvml: append had no turn within 5 s"):
        await behind
    library.let_go.set()
    assert await slow == "late"
    assert await owner.call(int, "3") == 3
    assert ran == []  # a call that nobody waits for is not made


async def test_a_cancelled_call_leaves_the_owner_in_use(owner: Owner, library: Library) -> None:
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    call = asyncio.create_task(owner.call(library.query))
    await entered(library)
    call.cancel()
    await settle()
    assert call.cancelled()
    library.let_go.set()
    assert await owner.call(int, "3") == 3
    assert complaints == []


async def test_closing_does_not_wait_for_a_stuck_call(owner: Owner, library: Library, clock: FakeClock) -> None:
    await stick(owner, library, clock)
    owner.close()
    owner.close()
    with pytest.raises(BackendError, match="nvml: closed"):
        await owner.call(int, "3")
    thread = owner._thread
    assert thread is not None
    assert thread.daemon
    library.let_go.set()
    thread.join(30)
    assert not thread.is_alive()


def test_an_answer_for_a_loop_that_is_gone_is_dropped(library: Library) -> None:
    owner = Owner("nvml")

    async def leave() -> None:
        call = asyncio.create_task(owner.call(library.query))
        await entered(library)
        call.cancel()

    asyncio.run(leave())
    library.let_go.set()
    assert asyncio.run(owner.call(int, "3")) == 3
    owner.close()


def _until_idle(owner: Owner) -> None:
    for _ in range(10_000):
        if owner._running is None:
            return
        threading.Event().wait(0.001)
    raise AssertionError("the call has returned and the owner does not know")
