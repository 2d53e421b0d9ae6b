"""Calls into a backend: each runs in a task of its own, so that whatever its code raises stays there.

`sys.exit`, a KeyboardInterrupt or a cancellation that a backend makes itself becomes a BackendError, also in tasks that
it starts. Only a cancellation of the caller is passed on. A call that does not end when it is cancelled is left behind,
and the same call is refused until it has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import ContextVar
from typing import Any, TypeVar

from fairlead.model.errors import BackendError, FairleadError

R = TypeVar("R")
GRACE_S = 1.0  # for a cancelled call to end
REASON_MAX = 2000  # characters of an error: it is logged, and kept in the status
_within: ContextVar[str] = ContextVar("within", default="")  # the call that this code belongs to; its tasks inherit it


def explain(error: BaseException) -> str:
    """One line for people: an error of ours says enough itself, any other needs its name."""
    try:
        text = str(error)
    except BaseException as worse:  # noqa: BLE001 - `__str__` may be foreign code
        text = f"its text cannot be shown: {type(worse).__name__}"
    return (text if isinstance(error, FairleadError) else f"{type(error).__name__}: {text}")[:REASON_MAX]


class Calls:
    """The calls of one backend."""

    def __init__(self) -> None:
        self._left: dict[str, asyncio.Task[Any]] = {}  # cancelled, and still running

    async def call(self, what: str, function: Callable[..., Awaitable[R]], *args: Any) -> R:
        if (left := self._left.pop(what, None)) is not None and not left.done():
            self._left[what] = left
            raise BackendError(f"{what} was cancelled and has not ended yet")
        task = asyncio.create_task(_run(what, function, *args), name=what)
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait({task}, timeout=GRACE_S)
            if not task.done():
                self._left[what] = task
            elif not task.cancelled():
                task.exception()  # it ended at the same moment: its answer has no reader
            raise
        if task.cancelled():
            raise BackendError(f"{what} ended by a cancellation that was not the daemon's")
        return task.result()


async def _run(what: str, function: Callable[..., Awaitable[R]], *args: Any) -> R:
    """Inside the task: one that raises SystemExit or KeyboardInterrupt would end the event loop."""
    _within.set(what)
    try:
        return await function(*args)
    except (Exception, asyncio.CancelledError):
        raise
    except BaseException as error:
        if isinstance(error, GeneratorExit) and not _is_loop_running():  # a call that was left behind, at the exit
            raise
        raise BackendError(f"{what} raised {explain(error)}") from error


def _is_loop_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def contain_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """From now on, tasks that a call starts cannot end the loop either. Other tasks are made as ever."""
    loop.set_task_factory(_make_task)


def _make_task(loop: asyncio.AbstractEventLoop, work: Any, **more: Any) -> asyncio.Task[Any]:
    what = _within.get()
    return asyncio.Task(_Contained(work, what) if what else work, loop=loop, **more)


class _Contained(Coroutine[Any, Any, Any]):
    """A coroutine, step by step. An `async def` around it that never starts would leave the inner one unawaited."""

    __slots__ = ("_what", "_work")

    def __init__(self, work: Coroutine[Any, Any, Any], what: str) -> None:
        self._work, self._what = work, what

    def send(self, value: Any) -> Any:
        return self._step(self._work.send, value)

    def throw(self, *error: Any) -> Any:
        return self._step(self._work.throw, *error)

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._work.__await__()

    def _step(self, step: Callable[..., Any], *args: Any) -> Any:
        try:
            return step(*args)
        except (SystemExit, KeyboardInterrupt) as error:
            raise BackendError(f"a task of {self._what} raised {explain(error)}") from error


def plain(what: str, function: Callable[..., R]) -> Callable[..., R]:
    """The same for a plain function on the loop, in which nothing can cancel the daemon."""

    def call(*args: Any) -> R:
        try:
            return function(*args)
        except Exception:
            raise
        except BaseException as error:
            raise BackendError(f"{what} raised {explain(error)}") from error

    return call
