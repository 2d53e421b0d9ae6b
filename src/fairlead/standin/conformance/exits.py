"""How a process ended: by its own wish, or by a crash. Owns what counts as a crash, and the line that tells of it.

Pure: it is fed what the process printed.
"""

import re
import signal
from dataclasses import dataclass, field

LONGEST = 500  # bytes of a line that are looked at
SHOWN = 200
# What runtimes print when a program crashes: Go, Rust, C++ and C.
_CRASH = re.compile(
    rb"(panic: |fatal error: |thread '[^']*' .*panicked at|terminate called|free\(\): |\*\*\* |Segmentation)"
)
_TRACEBACK = b"Traceback (most recent call last):"
_FAULTS = {signal.Signals[f"SIG{name}"] for name in ["SEGV", "ABRT", "BUS", "ILL", "FPE", "SYS", "TRAP", "KILL"]}


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended by itself."""

    code: int  # negative: a signal
    crash: str = ""  # the line that tells of the crash; empty if it ended by its own wish
    last: str = ""  # the last line it printed
    during: str = ""  # the scenario that was played
    note: str = ""  # what we know of this code
    provoked: bool = False  # the suite had done to this process what no kubelet does

    @property
    def crashed(self) -> bool:
        return bool(self.crash)

    def __str__(self) -> str:
        how = explain_exit(self.code) + (f" ({self.note})" if self.note else "")
        return f"{how}: {self.crash}" if self.crash and self.crash != how else how


@dataclass(slots=True)
class OutputScan:
    """What a process prints, as far as its end is concerned. Bounded, however much that is."""

    last: str = ""
    _crash: str = ""  # the first such line
    _traced: str = ""  # the last line of the last traceback
    _tracing: bool = False
    _half: bytes = field(default=b"")

    def feed(self, chunk: bytes) -> None:
        *lines, self._half = (self._half + chunk).split(b"\n")
        self._half = self._half[:LONGEST]
        for line in lines:
            self._read(line[:LONGEST])

    def end(self, code: int) -> Exit:
        """How it ended, once everything is read."""
        if self._half:
            self._read(self._half)
            self._half = b""
        crash = ""
        if code:
            crash = self._crash or (self._traced if self._traced == self.last else "")
            if not crash and (-code in _FAULTS or code - 128 in _FAULTS):
                crash = explain_exit(code)
        return Exit(code, crash, self.last)

    def _read(self, line: bytes) -> None:
        if not (text := printable(line)):
            return
        self.last = text
        if not self._crash and _CRASH.match(line):
            self._crash = text
        if line.startswith(_TRACEBACK):
            self._tracing = True
        elif self._tracing and not line.startswith(b" "):
            self._traced, self._tracing = text, False


def printable(line: bytes) -> str:
    """A line, fit for a terminal."""
    text = line.decode(errors="replace")
    return "".join(char if char.isprintable() else " " for char in text).strip()[:SHOWN]


def explain_exit(code: int) -> str:
    """An exit code in words."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
