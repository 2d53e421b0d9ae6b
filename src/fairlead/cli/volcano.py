"""`fairlead volcano`: the device plugin of volcano-sh/devices, drop-in."""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.cli.dialect import Program, play
from fairlead.dialects.volcano.meaning import FLAGS, OWN, SOURCE, read

SUMMARY = "Volcano's device plugin: its flags, environment, config file and contract, on Fairlead's engine."


def main(args: Sequence[str]) -> int:
    return play(Program(SOURCE, SUMMARY, (*FLAGS, *OWN), read), args)
