"""The journal of facts: what happened, to what, when. Kept short in memory, written to the log, and to the disk where
there is a place for it (`journalfile`).

A fact is an event name with keys. Recording never blocks: the log line is written after the present call has
been answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from fairlead.kit.text import encodable, show_json
from fairlead.model.ports import Clock

if TYPE_CHECKING:
    from fairlead.observe.journalfile import JournalFile

CAPACITY = 1000
# A grant may name thousands of slots; a log line names a few and counts the rest.
VALUES_SHOWN = 8
# Lines of one moment are written together, when the calls that caused them have been answered.
FLUSH_S = 0.02
AT_ONCE_S = 0.5  # for the disk, before a process that hangs is ended


class Fact(msgspec.Struct, frozen=True):
    seq: int
    at_s: float
    kind: str
    keys: Mapping[str, Any]


def row_of(fact: Fact) -> dict[str, Any]:
    """As one flat object: on the daemon's socket, on its page and on disk."""
    return {"seq": fact.seq, "at_s": fact.at_s, "event": fact.kind, **fact.keys}


Write = Callable[[Sequence[Fact]], None]


class Journal:
    def __init__(
        self, clock: Clock, write: Write | None = None, capacity: int = CAPACITY, disk: JournalFile | None = None
    ) -> None:
        self._clock = clock
        self._write = write
        self._disk = disk
        self.on_fact: Callable[[Fact], None] | None = None  # counts; called for each fact as it is recorded
        self._facts: deque[Fact] = deque(maxlen=capacity)
        self._unwritten: list[Fact] = []
        self._seq = 0

    def record(self, kind: str, **keys: Any) -> None:
        # Shortened here, not when written: a thousand grants of 16,000 slots each must not be kept.
        for key, value in keys.items():
            keys[key] = encodable(value) if type(value) is str else plain(value)
        fact = Fact(self._seq, self._clock.now(), kind, keys)
        self._seq += 1
        self._facts.append(fact)
        if self.on_fact is not None:
            self.on_fact(fact)
        if self._write is None and self._disk is None:
            return
        self._unwritten.append(fact)
        if len(self._unwritten) == 1:
            try:
                asyncio.get_running_loop().call_later(FLUSH_S, self.flush)
            except RuntimeError:  # no loop: a command, or a daemon that ends
                self.flush()

    def record_at_once(self, kind: str, **keys: Any) -> None:
        """From a thread, about a loop that hangs: the line is written now, and nothing is kept."""
        fact = Fact(self._seq, self._clock.now(), kind, {key: plain(value) for key, value in keys.items()})
        if self._write is not None:
            self._write([fact])
        if self._disk is not None:
            self._disk.put([fact])
            self._disk.drain(AT_ONCE_S)

    @property
    def problem(self) -> str:
        """Why facts are not on the disk; empty where all is well, and where none are to be there."""
        return self._disk.problem if self._disk is not None else ""

    def flush(self) -> None:
        facts, self._unwritten = self._unwritten, []
        if self._write is not None and facts:
            self._write(facts)
        if self._disk is not None and facts:
            self._disk.put(facts)

    def tail(self, count: int = CAPACITY, *, after: int = -1) -> list[Fact]:
        facts = [fact for fact in self._facts if fact.seq > after]
        return facts[-count:]


def text_line(fact: Fact) -> str:
    """`2026-11-15T21:35:00.123Z allocated resource=nvidia.com/gpu slots=[a b]`"""
    parts = [stamp(fact.at_s), fact.kind]
    parts += [f"{key}={_text(value)}" for key, value in fact.keys.items() if value is not None and value != ""]
    return " ".join(parts)


def json_line(fact: Fact) -> str:
    keys = {key: plain(value) for key, value in fact.keys.items()}
    return show_json(msgspec.json.encode({"at": stamp(fact.at_s), "event": fact.kind, **keys}).decode())


def to_stderr(form: Callable[[Fact], str]) -> Write:
    """Writes lines to standard error, and drops them rather than wait: a log that is not read must not stop a node."""
    dropped = 0

    def write(facts: Sequence[Fact]) -> None:
        nonlocal dropped
        lines = [form(fact) for fact in facts]
        if dropped:
            lines.insert(0, form(Fact(facts[0].seq, facts[0].at_s, "log-dropped", {"lines": dropped})))
        for count, chunk in _chunks(lines):
            dropped = 0 if _put(chunk) else dropped + count

    return write


def _chunks(lines: Iterable[str]) -> Iterator[tuple[int, bytes]]:
    """Lines put together, each chunk small enough to be written without waiting; and how many each holds."""
    count, chunk = 0, b""
    for line in lines:
        data = line.encode(errors="replace")[: select.PIPE_BUF - 1] + b"\n"
        if chunk and len(chunk) + len(data) > select.PIPE_BUF:
            yield count, chunk
            count, chunk = 0, b""
        count, chunk = count + 1, chunk + data
    if chunk:
        yield count, chunk


def _put(data: bytes) -> bool:
    """Whether the data was taken. A pipe that polls as writable takes PIPE_BUF bytes without waiting."""
    try:
        fd = sys.stderr.fileno()
        poll = select.poll()
        poll.register(fd, select.POLLOUT)
        ready = poll.poll(0)
        if not ready or not ready[0][1] & select.POLLOUT:
            return False
        os.write(fd, data)
    except (OSError, ValueError, AttributeError):
        # Closed, or not a file at all. The reader of the log may have gone, which is no reason to stop serving.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stderr.write(data.decode(errors="replace"))
    return True


@lru_cache(maxsize=2)
def _second(at_s: int) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def stamp(at_s: float) -> str:
    second, rest = divmod(at_s, 1)
    return f"{_second(int(second))}.{int(rest * 1000):03d}Z"


def plain(value: Any) -> Any:
    """A value as JSON has it, with long lists cut to a few items and a count."""
    if isinstance(value, (list, tuple, set, frozenset)):
        if len(value) <= VALUES_SHOWN:
            return [encodable(str(item)) for item in value]
        some = [encodable(str(item)) for item in islice(value, VALUES_SHOWN)]
        return [*some, f"and {len(value) - VALUES_SHOWN} more"]
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float):  # as the plain type: a duration of the configuration is more than a number
        return float(value) if isinstance(value, float) else int(value)
    return encodable(value if isinstance(value, str) else str(value))


def _text(value: Any) -> str:
    if type(value) is str:
        return _quoted(value)
    shown = plain(value)
    if isinstance(shown, list):
        return "[" + " ".join(_quoted(item) for item in shown) + "]"
    if isinstance(shown, float):
        return f"{shown:g}"
    return _quoted(str(shown))


def _quoted(text: str) -> str:
    plain_word = text.isprintable() and not (" " in text or '"' in text or "=" in text)
    return text if plain_word else show_json(msgspec.json.encode(text).decode())
