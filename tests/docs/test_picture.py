"""The picture of the README is made from a run of the demo, moves by CSS alone, and stands still on request."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest
from rich.text import Text

from docs import picture
from fairlead.cli.demo.story import Event

SVG = "{http://www.w3.org/2000/svg}"
MOST_BYTES = 200_000


def _moments() -> list[picture.Moment]:
    return [
        picture.Moment(picture.line(Event("kubelet", "listens in /tmp/x", 0.02)), ""),
        picture.Moment(picture.line(Event("fault", "GPU <7> fails", 0.01)), Text("7 unhealthy"), fault=True),
        picture.Moment(picture.line(Event("stop", "over", 0.01)), ""),
    ]


def _texts(svg: str) -> list[str]:
    """The lines of the story, each without its time."""
    groups = ET.fromstring(svg).iter(f"{SVG}g")
    lines = [list(group.iter(f"{SVG}tspan")) for group in groups if group.get("id", "").startswith("l")]
    return ["  ".join(str(span.text) for span in spans[:-1]) for spans in lines]


def test_each_line_appears_in_its_turn_and_stays_and_each_table_goes_with_the_next():
    svg = picture.animate(_moments())
    total_s = 2 * picture.STEP_S + picture.LAST_S
    begins = [f"{100 * picture.STEP_S * number / total_s:.2f}" for number in range(3)]
    for number, begin in enumerate(begins):
        assert f"@keyframes l{number}{{0%{{opacity:0}}{begin}%,100%{{opacity:1}}}}" in svg
    for number, end in enumerate([*begins[1:], "100.00"]):
        assert f"@keyframes t{number}{{0%{{opacity:0}}{begins[number]}%{{opacity:1}}{end}%,100%{{opacity:0}}}}" in svg
    assert _texts(svg) == ["kubelet  listens", "fault  GPU <7> fails", "stop  over"]


def test_without_motion_there_is_the_whole_story_and_the_table_of_the_fault():
    svg = picture.animate(_moments())
    shown = {group.get("id"): group.get("opacity") for group in ET.fromstring(svg).iter(f"{SVG}g")}
    assert shown == {"l0": None, "l1": None, "l2": None, "t0": "0", "t1": "1", "t2": "0"}
    before, motion, after = svg.partition("@media (prefers-reduced-motion:no-preference){")
    assert motion
    assert "animation" not in before
    assert after.count("@keyframes") == svg.count("@keyframes")


async def test_the_picture_shows_what_the_demo_does():
    """Once as it is told now. Times differ from run to run, and are not compared."""
    now = picture.animate(await picture.record())
    assert _texts(picture.TARGET.read_text(encoding="utf-8")) == _texts(now), "run: python -m docs.picture"


def test_the_picture_is_small_and_loads_nothing():
    svg = picture.TARGET.read_text(encoding="utf-8")
    assert len(svg.encode()) < MOST_BYTES
    assert not re.search(r"<script|<image|url\(|@import|href", svg)
    assert set(re.findall(r"https?://[^\"]+", svg)) == {"http://www.w3.org/2000/svg"}


@pytest.mark.parametrize(
    ("style", "colour"), [("default", "#c5c8c6"), ("dim default", "#919391"), ("green", "#98a84b")]
)
def test_colours_are_those_of_a_terminal(style: str, colour: str):
    line = Text("x", style=style)
    assert f'fill="{colour}"' in picture.animate([picture.Moment(line, "")])
