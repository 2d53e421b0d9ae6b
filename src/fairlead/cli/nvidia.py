"""`fairlead nvidia`: NVIDIA's device plugin, drop-in."""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.cli.dialect import Program, beside, play

# Programs beside the plugin, by the words that choose them. Loaded when chosen.
BESIDE = {
    "config-manager": "fairlead.cli.nvidia_config_manager",
    "labels": "fairlead.cli.nvidia_labels",
    "mps-daemon": "fairlead.cli.nvidia_mps_daemon",
}
SUMMARY = "NVIDIA's device plugin: its flags, environment and config file, on Fairlead's engine."


def main(args: Sequence[str]) -> int:
    if (other := beside(BESIDE, args)) is not None:
        return other()
    from fairlead.dialects.nvidia.flags import FLAGS, OWN  # noqa: PLC0415 - programs beside it need it not
    from fairlead.dialects.nvidia.meaning import read  # noqa: PLC0415 - as above

    return play(Program("fairlead nvidia", SUMMARY, (*FLAGS, *OWN), read, beside=BESIDE), args)
