"""What every dialect's command does with its flags: help, version, the configuration that they mean, or the daemon.

The daemon's path loads no click, as `fairlead run`.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from msgspec import Struct

from fairlead._version import __version__
from fairlead.cli.say import say
from fairlead.config.settings import environment
from fairlead.dialects.goflags import BadFlag, Flag, masked, usage
from fairlead.dialects.order import Meant, Order, in_their_words
from fairlead.model.errors import ConfigError, FairleadError, Oversize

if TYPE_CHECKING:
    from fairlead.config.load import Loaded

FAILED = 1  # the one code with which these programs refuse, but for flags


class Program(Struct, frozen=True):
    name: str  # fairlead nvidia
    summary: str
    flags: tuple[Flag, ...]
    read: Callable[[Sequence[str], Mapping[str, str]], Order]
    bad_flag: int = FAILED  # the code for a flag that cannot be understood
    beside: Mapping[str, str] = {}  # words that choose another program, and its module
    too_small: str = ""  # what to do about a unit of memory that is, in its own words


def beside(modules: Mapping[str, str], args: Sequence[str]) -> Callable[[], int] | None:
    """Another program, if the first word chooses one. It is loaded when it is called."""
    if not args or args[0] not in modules:
        return None
    gc.enable()  # what the dispatcher turned off; only the daemon turns it on by itself
    main: Callable[[Sequence[str]], int] = import_module(modules[args[0]]).main
    return lambda: main(args[1:])


def play(program: Program, args: Sequence[str]) -> int:
    try:
        return _play(program, args)
    except FairleadError as error:
        say(error, program.name)
        if isinstance(error, Oversize):
            say(program.too_small, program.name)
        return program.bad_flag if isinstance(error, BadFlag) else FAILED
    except KeyboardInterrupt:
        return 130


def _play(program: Program, args: Sequence[str]) -> int:
    from fairlead.config.load import build  # noqa: PLC0415 - errors of flags need it not

    order = program.read(args, environment())
    values = order.parsed.values

    def hold(meant: Meant) -> Loaded:
        try:
            return build(dict(meant.config), order.source)
        except ConfigError as error:
            raise in_their_words(error, order.parsed, meant.config, program.name) from None

    if values["help"]:
        sys.stdout.write(usage(program.name, program.summary, program.flags))
        if program.beside:
            words = ", ".join(f"{program.name} {word}" for word in sorted(program.beside))
            sys.stdout.write(f"\nBeside it: {words}\n")
        return 0
    if values["version"]:
        sys.stdout.write(f"fairlead {__version__}\n")
        return 0
    meant = order.meant()
    for note in meant.notes:
        say(f"note: {note}", program.name)
    if values["print-config"]:
        import yaml  # noqa: PLC0415 - slow to load

        hold(meant)  # what is printed must
        sys.stdout.write(yaml.safe_dump(meant.config, sort_keys=False))
        return 0
    sys.argv[1:] = masked(program.flags, sys.argv[1:])  # the daemon writes its command line into its lock

    return _serve(lambda: hold(order.meant()))


def _serve(load: Callable[[], Loaded]) -> int:
    from fairlead.app.daemon import Daemon  # noqa: PLC0415 - as above
    from fairlead.app.process import run_daemon  # noqa: PLC0415 - as above
    from fairlead.model.clock import SystemClock  # noqa: PLC0415 - as above
    from fairlead.observe.journal import Journal, text_line, to_stderr  # noqa: PLC0415 - as above

    clock = SystemClock()
    journal = Journal(clock, to_stderr(text_line))
    run_daemon(Daemon(load(), reload=load, clock=clock, journal=journal))
    return 0
