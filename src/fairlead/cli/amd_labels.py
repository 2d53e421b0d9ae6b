"""`fairlead amd labels`: AMD's node labeller, drop-in."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from fairlead.cli import labels
from fairlead.model.ports import Clock
from fairlead.programs.labels.amd import command
from fairlead.programs.labels.rounds import Note


def main(args: Sequence[str]) -> int:
    return labels.main(command.PROGRAM, args, command.read_settings, _label, bad_flag=2)  # as Go's flag package ends


async def _label(settings: command.Settings, clock: Clock, stop: asyncio.Event, note: Note) -> None:
    if settings.output_file is not None:
        await command.run(settings, None, clock, stop, note)
        return
    async with labels.open_client(settings.kubeconfig, clock) as client:
        await command.run(settings, client, clock, stop, note)
