"""The `fairlead` command. The daemon's own path is short: `run` is parsed here, everything else loads click."""

from __future__ import annotations

import sys


def main(argv: list[str] | None = None) -> None:
    """Entry point. Every error that can be explained is one line and an exit code; no traceback reaches a user."""
    args = sys.argv[1:] if argv is None else argv
    if args[:1] == ["run"]:
        from fairlead.cli.run import parse, run  # noqa: PLC0415 - the daemon loads no click: start-up and memory

        if (plain := parse(args[1:])) is not None:
            sys.exit(run(plain))
    from fairlead.cli.commands import cli  # noqa: PLC0415 - see above

    cli(args, prog_name="fairlead")
