"""The dialects as commands among others, for `fairlead --help` and the reference. Their flags are their own affair."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module

import click

from fairlead.cli import DIALECTS


def commands() -> Iterator[click.Command]:
    for word, text in DIALECTS.items():
        yield _command(word, text)


def _command(word: str, text: str) -> click.Command:
    def play(args: tuple[str, ...]) -> None:
        sys.exit(import_module(f"fairlead.cli.{word}").main(args))

    return click.Command(
        word,
        callback=play,
        params=[click.Argument(["args"], nargs=-1, type=click.UNPROCESSED)],
        help=text,
        add_help_option=False,
        context_settings={"ignore_unknown_options": True},
    )
