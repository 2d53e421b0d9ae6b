"""`fairlead journal`: what daemons of this node did, from their files and from the memory of one that runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from fairlead.cli.options import ask_daemon, json_option, print_answer, read_time, socket_option
from fairlead.cli.say import say
from fairlead.model.errors import NotRunning, UsageError

SHOWN = 50  # where nothing says which
MOST = 20_000  # rows in memory


@click.command()
@click.option("-n", "--count", type=click.IntRange(1), help=f"How many facts, the newest. Default: {SHOWN}.")
@click.option("--since", metavar="TIME", help="From then on, all of them: 2h ago, or 2026-11-17T14:00 (UTC).")
@click.option("--device", metavar="ID", help="Only what names this device, by the beginning of its id.")
@click.option("--pod", metavar="NAME", help="Only what names this pod, with or without its namespace.")
@click.option("--journal-dir", metavar="DIR", help="Where the files are. [FAIRLEAD_JOURNAL_DIR]")
@socket_option
@json_option
def journal(
    count: int | None,
    since: str | None,
    device: str | None,
    pod: str | None,
    journal_dir: str | None,
    socket: str | None,
    as_json: bool,
) -> None:
    """Show what the daemons of this node did.

    Reads the files, where there are some, with or without a running daemon; and asks the daemon that runs. With
    --status-socket only that daemon is asked.
    """
    from fairlead.cli import show  # noqa: PLC0415 - only this
    from fairlead.kit.clock import SystemClock  # noqa: PLC0415 - as above
    from fairlead.observe.journal import CAPACITY  # noqa: PLC0415 - as above
    from fairlead.observe.journalfile import is_about, read_journals, time_of  # noqa: PLC0415 - as above

    since_s = read_time("--since", since, SystemClock().now()) if since else 0.0
    most = count or (MOST if since or device or pod else SHOWN)

    def keep(row: Mapping[str, Any]) -> bool:
        return is_about(row, since_s, device or "", pod or "")

    rows: list[Mapping[str, Any]] = []
    found = False
    if socket is None and (directory := _directory(journal_dir)) is not None:
        try:
            rows, notes = read_journals(directory, keep, most)
            found = True
            for note in notes:
                say(note)
        except FileNotFoundError:
            if journal_dir is not None:
                raise UsageError(f"--journal-dir {directory}: there is no journal") from None
        except OSError as error:
            say(f"{directory}: {error.strerror or error}. The files are left out")
    try:
        rows += filter(keep, ask_daemon(socket, {"ask": "journal", "count": CAPACITY}))
    except (NotRunning, UsageError) as error:
        if not found:
            raise
        say(f"{error} What follows is from the files")
    # A fact that is in a file and in memory is one fact.
    merged = sorted({(time_of(row), row["event"]): row for row in rows}.values(), key=time_of)[-most:]
    print_answer(merged, as_json, show.journal)


def _directory(given: str | None) -> Path | None:
    from fairlead.config.settings import overrides  # noqa: PLC0415 - only this
    from fairlead.config.spec import LogSpec  # noqa: PLC0415 - as above

    set_to = [str(each.value) for each in overrides({"--journal-dir": given}) if each.path == ("log", "directory")]
    text = set_to[0] if set_to else LogSpec().directory
    return Path(text) if text else None
