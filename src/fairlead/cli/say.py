"""What a command says beside its answer: to standard error, line by line, each with the name of the program."""

from __future__ import annotations

import sys

from fairlead.model.text import printable


def say(text: object, program: str = "fairlead") -> None:
    for line in str(text).splitlines():
        sys.stderr.write(f"{program}: {printable(line.removeprefix(f'{program}: '))}\n")
