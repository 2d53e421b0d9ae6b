"""The record of calls: what was asked of whom, how long it took, how it ended.

Owns the record only; those who make a call write into it.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from fairlead.standin.changes import Changes


@dataclass(slots=True)
class Call:
    """One call. `seconds` is None while it runs; `error` is empty when it went well."""

    resource: str
    method: str
    summary: str = ""
    seconds: float | None = None
    error: str = ""


@dataclass(slots=True)
class Calls:
    changes: Changes
    made: list[Call] = field(default_factory=list)

    @contextmanager
    def record(self, resource: str, method: str, summary: str = "") -> Iterator[Call]:
        """Note a call when it starts, and its end when the block is left."""
        call = Call(resource, method, summary)
        self.made.append(call)
        self.changes.notify()
        started_s = time.perf_counter()
        try:
            yield call
        except BaseException as error:
            call.error = call.error or str(error) or type(error).__name__
            raise
        finally:
            call.seconds = time.perf_counter() - started_s
            self.changes.notify()
