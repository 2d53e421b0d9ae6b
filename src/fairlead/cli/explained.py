"""How a command ends: errors become one line and their exit code, and a wrong name gets the likely right one.

Also how a group lists its commands: each with its whole first sentence.
"""

from __future__ import annotations

import sys
from typing import Any

import click

from fairlead.cli.say import say
from fairlead.model.errors import FairleadError, UsageError


class Listed(click.Group):
    """Shows the first sentence of each command in full, in help and in completion. click cuts it to a width."""

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        cmd.short_help = cmd.get_short_help_str(limit=sys.maxsize)
        super().add_command(cmd, name)


class Explained(Listed):
    """Turns errors that can be explained into one line and their exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except FairleadError as error:
            say(error)
            ctx.exit(error.exit_code)
        except BrokenPipeError:  # `| head`
            sys.stderr.close()
            ctx.exit(0)

    def main(self, *args: Any, **keys: Any) -> Any:
        """As click's own, but Ctrl-C ends with the code that shells expect, and prints nothing."""
        try:
            code = super().main(*args, **{**keys, "standalone_mode": False})
        except click.Abort:
            raise KeyboardInterrupt from None
        except click.ClickException as error:
            error.show()
            code = error.exit_code
        sys.exit(code if isinstance(code, int) else 0)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        name = args[0] if args else ""
        if name and not name.startswith("-") and self.get_command(ctx, name) is None:
            from fairlead.kit.decoding import did_you_mean  # noqa: PLC0415 - only an error needs it

            raise UsageError(f"no command {name!r}{did_you_mean(name, self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)
