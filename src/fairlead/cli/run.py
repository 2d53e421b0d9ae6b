"""`fairlead run`: the daemon. Its flags come from the settings table; no click on this path."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import NoReturn

from fairlead.cli.say import say
from fairlead.config.settings import SETTINGS, config_path, overrides
from fairlead.model.errors import FairleadError

FLAGS = ("--config", *(setting.flag for setting in SETTINGS))


def parse(args: list[str]) -> Mapping[str, str | None] | None:
    """The flags, or None when click should see them: for help, and for its better errors."""
    found: dict[str, str | None] = {}
    rest = list(args)
    while rest:
        flag, equals, value = rest.pop(0).partition("=")
        if flag not in FLAGS or (not equals and not rest):
            return None
        found[flag] = value if equals else rest.pop(0)
    return found


def run(flags: Mapping[str, str | None]) -> int:
    """Runs the daemon to its end; the exit code."""
    # Imported here: the parser above is also used by the command's help.
    from fairlead.app.daemon import Daemon  # noqa: PLC0415 - see above
    from fairlead.app.process import run_daemon  # noqa: PLC0415 - see above
    from fairlead.config.load import Loaded, load  # noqa: PLC0415 - see above
    from fairlead.config.spec import LogFormat  # noqa: PLC0415 - see above
    from fairlead.model.clock import SystemClock  # noqa: PLC0415 - see above
    from fairlead.observe.journal import Journal, json_line, text_line, to_stderr  # noqa: PLC0415 - see above

    path, given = config_path(flags.get("--config")), overrides(flags)

    def read() -> Loaded:
        return load(path, given)

    try:
        loaded = read()
        clock = SystemClock()
        form = json_line if loaded.config.log.format is LogFormat.JSON else text_line
        run_daemon(Daemon(loaded, reload=read, clock=clock, journal=Journal(clock, to_stderr(form))))
    except FairleadError as error:
        return complain(error)
    except KeyboardInterrupt:
        return 130
    return 0


def complain(error: FairleadError) -> int:
    say(error)
    return error.exit_code


def fail(error: FairleadError) -> NoReturn:
    sys.exit(complain(error))
