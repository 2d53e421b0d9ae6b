"""The dialects as commands among others, for `fairlead --help` and the reference. They read their flags themselves."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click

from fairlead.cli import DIALECTS, dialect


def commands() -> Iterator[click.Command]:
    for word, text in DIALECTS.items():
        yield _command(word, text)


def _command(word: str, text: str) -> click.Command:
    def run(args: tuple[str, ...]) -> None:
        sys.exit(dialect.main(word, args))

    return click.Command(
        word,
        callback=run,
        params=[click.Argument(["args"], nargs=-1, type=click.UNPROCESSED)],
        help=text,
        add_help_option=False,
        context_settings={"ignore_unknown_options": True},
    )
