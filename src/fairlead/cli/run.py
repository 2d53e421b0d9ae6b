"""`fairlead run`: the daemon. Its flags come from the settings table; no click on this path."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from fairlead.cli.say import command_line, say
from fairlead.config.settings import SETTINGS, Override, config_label, config_path, overrides
from fairlead.model.errors import FairleadError

if TYPE_CHECKING:
    from fairlead.app.nodeconfig import NodeConfig

FLAGS = ("--config", "--config-label", "--config-default", *(setting.flag for setting in SETTINGS))
SWITCHES = frozenset(setting.flag for setting in SETTINGS if setting.switch)
WEB = "127.0.0.1:9402"  # what --web stands for


def parse(args: list[str]) -> Mapping[str, str | None] | None:
    """The flags, or None when click should see them: for help, and for its better errors."""
    found: dict[str, str | None] = {}
    rest = list(args)
    while rest:
        flag, equals, value = rest.pop(0).partition("=")
        if flag == "--web" and not equals:
            found.setdefault("--http", WEB)
            continue
        if flag in SWITCHES and not equals:
            found[flag] = "true"
            continue
        if flag not in FLAGS or (not equals and not rest):
            return None
        found[flag] = value if equals else rest.pop(0)
    return found


def run(flags: Mapping[str, str | None]) -> int:
    """Runs the daemon to its end; the exit code."""
    # Imported here: the parser above is also used by the command's help.
    from fairlead.app import start  # noqa: PLC0415 - see above
    from fairlead.config.load import Loaded, load  # noqa: PLC0415 - see above

    path, given = config_path(flags.get("--config")), overrides(flags)

    def read() -> Loaded:
        return load(choice.path if choice is not None else path, given)

    choice = None
    try:
        choice = _choice(flags, path, given)
        if choice is not None and not choice.begin():
            return 0
        start.run(read(), read, command_line(), choice)
    except FairleadError as error:
        return complain(error)
    except KeyboardInterrupt:
        return 130
    return 0


def _choice(flags: Mapping[str, str | None], path: str, given: Sequence[Override]) -> NodeConfig | None:
    """What a label of the node chooses, where one is to."""
    label, default = config_label(flags.get("--config-label"), flags.get("--config-default"))
    if not label:
        return None
    from fairlead.cli.nodeconfig import follow_label  # noqa: PLC0415 - what speaks to a cluster costs megabytes
    from fairlead.config.spec import Config  # noqa: PLC0415 - as above

    values = {item.path: str(item.value) for item in given}
    usual = Config()
    place = Path(values.get(("kubelet", "directory"), usual.kubelet.directory))
    remembered = place / f".{values.get(('instance',), usual.instance)}.config"
    return follow_label(label, path, default, ("named", "single"), flag="--config", remembered=remembered)


def complain(error: FairleadError) -> int:
    say(error)
    return error.exit_code


def fail(error: FairleadError) -> NoReturn:
    sys.exit(complain(error))
