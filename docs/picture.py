"""Draws docs/demo.svg from a real run of the demo: `python -m docs.picture`."""

from __future__ import annotations

import asyncio
import io
import re
from pathlib import Path

from rich.console import Console
from rich.text import Text

from fairlead.cli.demo.show import MARKS
from fairlead.cli.demo.stage import Stage
from fairlead.cli.demo.story import Story, Told
from fairlead.cli.demo.view import draw
from fairlead.cli.draw import duration

COLOURS = {"accent": "cyan", "good": "green", "warn": "yellow"}
TARGET = Path(__file__).with_name("demo.svg")


def line(told: Told) -> Text:
    text = Text(f"{told.mark:>8}  ", style=COLOURS[MARKS[told.mark]])
    text.append(told.text.split(" in /")[0], style="default")  # the directory of this run is nobody's business
    text.append(f" {duration(told.took_s)}", style="dim default")
    return text


async def record() -> Console:
    console = Console(record=True, width=104, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text("$ make demo", style="bold"))
    picture = None
    async with Stage("h100x8") as stage:
        story = Story(stage)
        async for told in story.tell():
            console.print(line(told))
            if told.mark == "fault" and picture is None:
                picture = draw(await stage.ask("status"), "")
        console.print(line(await story.epilogue()))
    console.print(Text("\nthe live table, at the moment of the fault:", style="dim"))
    if picture is not None:
        console.print(picture)
    return console


def main() -> None:
    console = asyncio.run(record())
    svg = console.export_svg(title="fairlead", unique_id="fairlead")
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)  # no fonts from elsewhere
    svg = re.sub(r"\s*<!--.*?-->", "", svg, flags=re.DOTALL)
    TARGET.write_text(svg.replace("Fira Code", "ui-monospace, DejaVu Sans Mono"))


if __name__ == "__main__":
    main()
