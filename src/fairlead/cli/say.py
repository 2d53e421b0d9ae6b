"""What a command says beside its answer: to standard error, line by line, each with the name of the program."""

from __future__ import annotations

import sys

from fairlead.model.text import printable

LINE_MAX = 4000  # a name that is quoted may be of any length


def say(text: object, program: str = "fairlead") -> None:
    for line in str(text).splitlines():
        shown = printable(line.removeprefix(f"{program}: "))
        sys.stderr.write(f"{program}: {shown if len(shown) <= LINE_MAX else shown[:LINE_MAX] + '...'}\n")
