"""`fairlead doslab`: PTTQ/kube-device-plugin-mini, drop-in."""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.cli.dialect import Program, play
from fairlead.dialects.doslab.meaning import FLAGS, OWN, SOURCE, read

SUMMARY = "The device plugin of doslab.io (kube-device-plugin-mini): its flags and contract, on Fairlead's engine."
BAD_FLAG = 2  # as Go's flag package ends
TOO_SMALL = "In flags: --unit-too-small=grow. A pod's number then counts larger units"


def main(args: Sequence[str]) -> int:
    return play(Program(SOURCE, SUMMARY, (*FLAGS, *OWN), read, BAD_FLAG, too_small=TOO_SMALL), args)
