"""Progress lines with the elapsed time, and waiting for a condition."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")
LOOK_S = 0.05


class NodeFailedError(Exception):
    """The node did not do what it must; the text says what, and where to look."""


class NodeMissingError(Exception):
    """This machine cannot run a node; the text says why."""


@contextmanager
def step(what: str) -> Iterator[None]:
    began = time.monotonic()
    print(f"· {what}", end="", file=sys.stderr, flush=True)
    try:
        yield
    except BaseException:
        print(f": failed after {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)
        raise
    print(f": {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)


def until(condition: Callable[[], T], what: str, patience_s: float = 30.0, look_s: float = LOOK_S) -> T:
    """The first answer of the condition that is true."""
    end = time.monotonic() + patience_s
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > end:
            raise NodeFailedError(f"{what}: not within {patience_s:.0f} s; the last answer was {answer!r}")
        time.sleep(look_s)
