"""`fairlead nvidia`: NVIDIA's device plugin, drop-in. The daemon's path loads no click, as `fairlead run`."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from fairlead._version import __version__
from fairlead.config.settings import environment
from fairlead.model.errors import FairleadError

if TYPE_CHECKING:
    from fairlead.config.load import Loaded

FAILED = 1  # the one code with which NVIDIA's programs refuse

# Programs beside the plugin, by the words that choose them. Loaded when chosen.
BESIDE = {
    "config-manager": "fairlead.cli.nvidia_config_manager",
    "labels": "fairlead.cli.nvidia_labels",
    "mps-daemon": "fairlead.cli.nvidia_mps_daemon",
}
SUMMARY = "NVIDIA's device plugin: its flags, environment and config file, on Fairlead's engine."


def main(args: Sequence[str]) -> int:
    if args and args[0] in BESIDE:
        gc.enable()  # what the dispatcher turned off; only the daemon turns it on by itself
        beside: Callable[[Sequence[str]], int] = import_module(BESIDE[args[0]]).main
        return beside(args[1:])
    try:
        return _main(args)
    except FairleadError as error:
        for line in str(error).splitlines():
            sys.stderr.write(f"fairlead nvidia: {line.removeprefix('fairlead nvidia: ')}\n")
        return FAILED
    except KeyboardInterrupt:
        return 130


def _main(args: Sequence[str]) -> int:
    from fairlead.config.load import build  # noqa: PLC0415 - after `lean.load`, see the dispatcher
    from fairlead.dialects.nvidia.flags import FLAGS, OWN  # noqa: PLC0415 - as above
    from fairlead.dialects.nvidia.meaning import read  # noqa: PLC0415 - as above

    order = read(args, environment())
    if order.own["help"]:
        from fairlead.dialects.goflags import usage  # noqa: PLC0415 - as above

        sys.stdout.write(usage("fairlead nvidia", SUMMARY, (*FLAGS, *OWN)))
        sys.stdout.write(f"\nBeside it: {', '.join(f'fairlead nvidia {word}' for word in sorted(BESIDE))}\n")
        return 0
    if order.own["version"]:
        sys.stdout.write(f"fairlead {__version__}\n")
        return 0
    meant = order.meant()
    for note in meant.notes:
        sys.stderr.write(f"fairlead nvidia: note: {note}\n")
    if order.own["print-config"]:
        import yaml  # noqa: PLC0415 - slow to load

        build(dict(meant.config), order.source)  # what is printed must hold
        sys.stdout.write(yaml.safe_dump(meant.config, sort_keys=False))
        return 0

    def load() -> Loaded:
        return build(order.meant().config, order.source)

    return _serve(load)


def _serve(load: Callable[[], Loaded]) -> int:
    import asyncio  # noqa: PLC0415 - as above

    from fairlead.app.daemon import Daemon  # noqa: PLC0415 - as above
    from fairlead.model.clock import SystemClock  # noqa: PLC0415 - as above
    from fairlead.observe.journal import Journal, text_line, to_stderr  # noqa: PLC0415 - as above

    clock = SystemClock()
    journal = Journal(clock, to_stderr(text_line))
    asyncio.run(Daemon(load(), reload=load, clock=clock, journal=journal).run())
    return 0
