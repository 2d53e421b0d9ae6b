"""What a command says beside its answer: to standard error, line by line, each with the name of the program."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from fairlead.kit.text import printable

LINE_MAX = 4000  # a name that is quoted may be of any length


def say(text: object, program: str = "fairlead") -> None:
    for line in str(text).splitlines():
        shown = printable(line.removeprefix(f"{program}: "))
        sys.stderr.write(f"{program}: {shown if len(shown) <= LINE_MAX else shown[:LINE_MAX] + '...'}\n")


def command_line(args: Iterable[str] | None = None) -> str:
    """How this process was started, in one line: the description of a daemon. `args`: without secrets."""
    return " ".join([Path(sys.argv[0]).name, *(sys.argv[1:] if args is None else args)])
