"""Draws docs/demo.svg, a moving picture of a real run of the demo: `python -m docs.picture`.

The lines of the story appear one after the other, and the table below shows the node as it was then. It moves by CSS
alone; a reader who asked for less motion sees the whole story, and the table at the moment of the fault.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from msgspec import Struct
from rich.color_triplet import ColorTriplet
from rich.console import Console, RenderableType
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import SVG_EXPORT_THEME as THEME
from rich.text import Text

from fairlead.cli.demo.show import STYLES
from fairlead.cli.demo.stage import Stage
from fairlead.cli.demo.story import Event, Story
from fairlead.cli.demo.view import draw
from fairlead.cli.draw import duration

TARGET = Path(__file__).with_name("demo.svg")
COLOURS = {"accent": "cyan", "good": "green", "warn": "yellow"}
WIDTH = 104  # characters
CELL, LINE, EDGE, TOP = 8.4, 18, 14, 46  # pixels: a character, a line, the rim, the bar with the title
STEP_S, LAST_S = 1.4, 5.0  # how long a moment is shown, and the last one


class Moment(Struct, frozen=True):
    """A line of the story, and the table below it at that time."""

    line: Text
    table: RenderableType
    fault: bool = False


def line(event: Event) -> Text:
    text = Text(f"{event.kind:>8}  ", style=COLOURS[STYLES[event.kind]])
    text.append(event.text.split(" in /")[0], style="default")  # without the directory of this run
    text.append(f" {duration(event.took_s)}", style="dim default")
    return text


async def record() -> list[Moment]:
    moments: list[Moment] = []
    table: RenderableType = ""
    async with Stage("h100x8") as stage:
        story = Story(stage)
        async for event in story.tell():
            if event.kind != "kubelet" or moments:  # before that there is no daemon to ask
                table = draw(await stage.status(), "")
            moments.append(Moment(line(event), table, fault=event.kind == "fault"))
        moments.append(Moment(line(await story.epilogue()), ""))
    return moments


def animate(moments: Sequence[Moment]) -> str:
    """The picture as SVG."""
    total_s = STEP_S * (len(moments) - 1) + LAST_S
    still = next((number for number, moment in enumerate(moments) if moment.fault), 0)
    tables = [_lines(moment.table) for moment in moments]
    below = len(moments) + 1  # of the story, with the command
    height = TOP + (below + max(map(len, tables))) * LINE + EDGE
    width = EDGE * 2 + WIDTH * CELL
    moving, parts = [], [_row(0, _lines(Text("$ make demo", style="bold"))[0])]
    for number, (moment, table) in enumerate(zip(moments, tables, strict=True)):
        begin = 100 * STEP_S * number / total_s
        end = 100 * STEP_S * (number + 1) / total_s if number + 1 < len(moments) else 100.0
        moving.append(f"@keyframes l{number}{{0%{{opacity:0}}{begin:.2f}%,100%{{opacity:1}}}}")
        moving.append(f"@keyframes t{number}{{0%{{opacity:0}}{begin:.2f}%{{opacity:1}}{end:.2f}%,100%{{opacity:0}}}}")
        moving.append(f"#l{number}{{animation-name:l{number}}}#t{number}{{animation-name:t{number}}}")
        parts.append(f'<g id="l{number}">{_row(number + 1, _lines(moment.line)[0])}</g>')
        rows = "".join(_row(below + place, row) for place, row in enumerate(table))
        parts.append(f'<g id="t{number}" opacity="{int(number == still)}">{rows}</g>')
    lights = "".join(
        f'<circle cx="{EDGE + 8 + 18 * place}" cy="20" r="6" fill="{colour}"/>'
        for place, colour in enumerate(("#ff5f57", "#febc2e", "#28c840"))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" role="img" '
        'aria-label="The demo: a simulated node, pods, a fault, a kubelet restart">\n<style>\n'
        "text{font:14px ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace;white-space:pre}\n"
        "@media (prefers-reduced-motion:no-preference){\n"
        f"g[id]{{animation:{total_s:g}s step-end infinite}}\n" + "\n".join(moving) + "\n}\n</style>\n"
        f'<rect width="100%" height="100%" rx="8" fill="{THEME.background_color.hex}"/>{lights}\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _lines(what: RenderableType) -> list[list[Segment]]:
    console = Console(width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    return console.render_lines(what, pad=False) if what != "" else []


def _row(number: int, segments: Sequence[Segment]) -> str:
    spans = "".join(_spans(segments))
    return f'<text y="{TOP + number * LINE}">{spans}</text>\n' if spans else ""


def _spans(segments: Sequence[Segment]) -> Iterator[str]:
    """Each run of characters at its own place, as a terminal has it: fonts differ in width."""
    column = 0
    for text, style, _ in segments:
        if text.strip():
            begin = column + len(text) - len(text.lstrip())
            weight = ' font-weight="bold"' if style and style.bold else ""
            length = len(text.strip()) * CELL
            yield (
                f'<tspan x="{EDGE + begin * CELL:.1f}" textLength="{length:.1f}" fill="{_colour(style)}"{weight}>'
                f"{escape(text.strip())}</tspan>"
            )
        column += len(text)


def _colour(style: Style | None) -> str:
    plain = THEME.foreground_color
    colour = style.color.get_truecolor(THEME) if style and style.color and not style.color.is_default else plain
    if style and style.dim:
        colour = ColorTriplet(
            *((2 * part + behind) // 3 for part, behind in zip(colour, THEME.background_color, strict=True))
        )
    return colour.hex


def main() -> None:
    TARGET.write_text(animate(asyncio.run(record())), encoding="utf-8")


if __name__ == "__main__":
    main()
