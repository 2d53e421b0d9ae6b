"""What the labellers share as commands: signals, settings that are read anew, errors and exit codes."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from fairlead.cli.say import say
from fairlead.config.settings import environment
from fairlead.dialects.goflags import BadFlag
from fairlead.kit.clock import SystemClock
from fairlead.model.errors import FairleadError
from fairlead.model.ports import Clock
from fairlead.programs.labels.rounds import Note

if TYPE_CHECKING:
    from fairlead.cluster.client import Client

FAILED = 1
S = TypeVar("S")
Read = Callable[[Sequence[str], Mapping[str, str]], S | str]  # a text is the help that was asked for
Label = Callable[[S, Clock, asyncio.Event, Note], Awaitable[None]]


def main(program: str, args: Sequence[str], read: Read[S], label: Label[S], bad_flag: int = FAILED) -> int:
    note = partial(say, program=program)
    try:
        settings = read(args, environment())
        if isinstance(settings, str):
            sys.stdout.write(settings)
            return 0
        asyncio.run(_run(settings, lambda: read(args, environment()), label, note))
    except FairleadError as error:
        note(str(error))
        return bad_flag if isinstance(error, BadFlag) else FAILED
    except KeyboardInterrupt:
        return 130
    return 0


@asynccontextmanager
async def open_client(kubeconfig: str, clock: Clock) -> AsyncIterator[Client]:
    from fairlead.cluster.access import find_access  # noqa: PLC0415 - loads TLS; labels in a file need it not
    from fairlead.cluster.client import Client as Caller  # noqa: PLC0415 - as above

    client = Caller(find_access(environment(), clock, kubeconfig=kubeconfig), clock)
    try:
        yield client
    finally:
        await client.close()


async def _run(settings: S, read_again: Callable[[], S | str], label: Label[S], note: Note) -> None:
    """Listens to signals from here to the end: one that comes between two rounds must not end us, nor be lost."""
    stop, again = asyncio.Event(), asyncio.Event()
    events = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT):
        events.add_signal_handler(number, stop.set)
    events.add_signal_handler(signal.SIGHUP, again.set)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
    while await _ended_by(again, label(settings, SystemClock(), stop, note)):
        # SIGHUP: everything anew, the config file too. A bad one keeps what was.
        again.clear()
        try:
            fresh = read_again()
        except FairleadError as error:
            note(f"the settings stay as they were: {error}")
            continue
        assert not isinstance(fresh, str)
        settings = fresh


async def _ended_by(event: asyncio.Event, work: Awaitable[None]) -> bool:
    """Whether it was the event that has ended the work."""
    working, waiting = asyncio.ensure_future(work), asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
        return not working.done()
    finally:
        for task in (working, waiting):
            task.cancel()
        await asyncio.gather(working, waiting, return_exceptions=True)
