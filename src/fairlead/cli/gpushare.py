"""`fairlead gpushare`: Aliyun's gpushare device plugin, drop-in."""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.cli.dialect import Program, beside, play

# Programs beside the plugin, by the words that choose them. Loaded when chosen.
BESIDE = {"inspect": "fairlead.cli.gpushare_inspect"}
SUMMARY = "Aliyun's gpushare device plugin: its flags and contract, on Fairlead's engine."
BAD_FLAG = 2  # as Go's flag package ends
TOO_SMALL = "In flags: --memory-unit=GiB, or --unit-too-small=grow"


def main(args: Sequence[str]) -> int:
    if (other := beside(BESIDE, args)) is not None:
        return other()
    from fairlead.dialects.gpushare.meaning import FLAGS, OWN, SOURCE, read  # noqa: PLC0415 - inspect needs it not

    return play(Program(SOURCE, SUMMARY, (*FLAGS, *OWN), read, BAD_FLAG, BESIDE, TOO_SMALL), args)
