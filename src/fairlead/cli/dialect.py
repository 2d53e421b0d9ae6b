"""What every dialect's command does with its flags: help, version, the configuration that they mean, or the daemon.

The daemon's path loads no click, as `fairlead run`.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from fairlead._version import __version__
from fairlead.cli.say import command_line, say
from fairlead.config.settings import environment
from fairlead.dialects.goflags import BadFlag, masked, usage
from fairlead.dialects.invocation import FAILED, Invocation, Program, Translation, name_flags
from fairlead.kit import documents
from fairlead.model.errors import ConfigError, FairleadError, NotOffered

if TYPE_CHECKING:
    from fairlead.app.nodeconfig import NodeConfig
    from fairlead.config.load import Loaded

# What other systems ship beside their plugin, by subcommand. Loaded when chosen.
SUBCOMMANDS: Mapping[str, Mapping[str, str]] = {
    "amd": {"labels": "fairlead.cli.amd_labels"},
    "nvidia": {
        "config-manager": "fairlead.cli.nvidia_config_manager",
        "labels": "fairlead.cli.nvidia_labels",
        "mps-daemon": "fairlead.cli.nvidia_mps_daemon",
    },
    "gpushare": {"inspect": "fairlead.cli.gpushare_inspect"},
}


def main(dialect: str, args: Sequence[str]) -> int:
    subcommands = SUBCOMMANDS.get(dialect, {})
    if args and args[0] in subcommands:
        gc.enable()  # what the dispatcher turned off; only the daemon turns it on by itself
        other: Callable[[Sequence[str]], int] = import_module(subcommands[args[0]]).main
        return other(args[1:])
    program: Program = import_module(f"fairlead.dialects.{dialect}.command").PROGRAM
    try:
        return _run(program, args, sorted(subcommands))
    except FairleadError as error:
        say(error, program.name)
        if isinstance(error, NotOffered):
            say(program.not_offered, program.name)
        if isinstance(error, BadFlag) and subcommands and args and not args[0].startswith("-"):
            words = ", ".join(f"{program.name} {word}" for word in sorted(subcommands))
            say(f"beside it there is: {words}", program.name)
        return program.bad_flag if isinstance(error, BadFlag) else FAILED
    except KeyboardInterrupt:
        return 130


def _run(program: Program, args: Sequence[str], subcommands: Sequence[str]) -> int:
    from fairlead.config.load import build  # noqa: PLC0415 - errors of flags need it not

    invocation = program.read(args, environment())
    values = invocation.parsed.values
    choice = _choice(program, values)

    def translate() -> tuple[Invocation, Translation]:
        if choice is None:
            return invocation, invocation.translate()
        parsed = replace(invocation.parsed, values={**values, program.config_flag: choice.path})
        chosen = replace(invocation, parsed=parsed)
        return chosen, chosen.translate()

    def load(invocation: Invocation, translation: Translation) -> Loaded:
        for note in translation.notes:
            say(f"note: {note}", program.name)
        try:
            return build(dict(translation.config), invocation.source)
        except ConfigError as error:
            raise name_flags(error, program.flags, invocation.parsed, translation.config, program.name) from None

    if values["help"]:
        sys.stdout.write(usage(program.name, program.summary, program.flags))
        if subcommands:
            sys.stdout.write(f"\nBeside it: {', '.join(f'{program.name} {word}' for word in subcommands)}\n")
        return 0
    if values["version"]:
        sys.stdout.write(f"fairlead {__version__}\n")
        return 0
    if choice is not None and not choice.begin():
        return 0
    chosen, translation = translate()
    loaded = load(chosen, translation)
    if values["print-config"]:
        sys.stdout.write(documents.to_yaml(translation.config))
        return 0
    from fairlead.app.start import run  # noqa: PLC0415 - as above

    run(loaded, lambda: load(*translate()), command_line(masked(program.flags, sys.argv[1:])), choice)
    return 0


def _choice(program: Program, values: Mapping[str, Any]) -> NodeConfig | None:
    """What a label of the node chooses, where one is to."""
    if not program.config_flag or not values["config-label"] or values["help"] or values["version"]:
        return None
    from fairlead.cli.nodeconfig import follow_label  # noqa: PLC0415 - what speaks to a cluster costs megabytes

    return follow_label(
        values["config-label"],
        values[program.config_flag],
        values["config-default"],
        values["config-fallbacks"],
        flag=f"--{program.config_flag}",
        remembered=Path(values["plugin-dir"]) / f".{program.name.replace(' ', '-')}.config",
        program=program.name,
    )
