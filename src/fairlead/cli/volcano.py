"""`fairlead volcano`: the device plugin of volcano-sh/devices, drop-in."""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.cli.dialect import Program, play
from fairlead.dialects.volcano.meaning import FLAGS, OWN, SOURCE, read

SUMMARY = "Volcano's device plugin: its flags, environment, config file and contract, on Fairlead's engine."
TOO_SMALL = "In flags: --gpu-memory-factor, a number of MiB, or --unit-too-small=grow"


def main(args: Sequence[str]) -> int:
    return play(Program(SOURCE, SUMMARY, (*FLAGS, *OWN), read, too_small=TOO_SMALL), args)
