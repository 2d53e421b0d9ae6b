"""The README's table of plugins that Fairlead replaces: every row names a command that exists and a guide of it."""

from __future__ import annotations

import re

import pytest
from tests.docs.blocks import ROOT
from tests.system.process import fairlead

from fairlead.cli import DIALECTS
from fairlead.cli.dialect import SUBCOMMANDS

HEADINGS = {"README.md": "## Plugins that it replaces", "README.zh.md": "## 可以替代的插件"}
OTHER = "any-device-path"  # the row for what no plugin knows: a backend, and no command
_LINK = re.compile(r"\[`fairlead ([a-z -]+)`\]\(docs/guide/([a-z-]+)\.md\)")
# What the rows promise beside commands, by the word in the README and the subcommand.
BESIDE = {"feature discovery": ("nvidia", "labels"), "config-manager": ("nvidia", "config-manager")}


def rows(page: str = "README.md") -> dict[str, str]:
    text = (ROOT / page).read_text(encoding="utf-8").partition(HEADINGS[page])[2].partition("\n## ")[0]
    found = re.findall(r"^\| (.+?) \| (.+) \|$", text, re.MULTILINE)
    return {system: state for system, state in found if not set(system) <= set("- ") and "fairlead" in state.lower()}


def linked(page: str = "README.md") -> list[tuple[str, str, str]]:
    """The system, the command and the guide of each link."""
    return [(system, *link) for system, state in rows(page).items() for link in _LINK.findall(state)]


def test_every_dialect_has_a_row_of_its_own():
    named = [command for _, command, _ in linked() if command in DIALECTS]
    assert sorted(named) == sorted(DIALECTS)


def test_every_row_links_to_a_command_of_its_own():
    assert {system for system, _, _ in linked()} == set(rows())
    assert len(rows()) == len(DIALECTS)


@pytest.mark.parametrize(("system", "command", "guide"), linked())
def test_the_guide_is_of_this_command(system: str, command: str, guide: str):
    page = (ROOT / f"docs/guide/{guide}.md").read_text(encoding="utf-8")
    assert f"fairlead {command}" in page
    assert f"guide/{guide}.md" in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")


@pytest.mark.parametrize("command", sorted({command for _, command, _ in linked()}))
async def test_the_command_exists(command: str):
    code, out, err = await fairlead(*command.split(), "--help")
    assert (code, err) == (0, "")
    assert out.startswith(f"Usage: fairlead {command}")
    assert command not in DIALECTS or "--print-config" in out  # it is a translation, and can be seen


@pytest.mark.parametrize("words", BESIDE)
def test_what_else_a_row_promises_is_a_subcommand(words: str):
    dialect, subcommand = BESIDE[words]
    (state,) = (state for state in rows().values() if f"`fairlead {dialect}`" in state)
    assert words in state
    assert subcommand in SUBCOMMANDS[dialect]


def test_the_row_for_other_devices_links_to_the_backend():
    text = (ROOT / "README.md").read_text(encoding="utf-8").partition(HEADINGS["README.md"])[2].partition("\n## ")[0]
    assert f"[`paths` backend](docs/guide/{OTHER}.md)" in text
    assert "kind: paths" in (ROOT / f"docs/guide/{OTHER}.md").read_text(encoding="utf-8")


def test_the_translation_has_the_same_links():
    assert [link[1:] for link in linked("README.zh.md")] == [link[1:] for link in linked()]
