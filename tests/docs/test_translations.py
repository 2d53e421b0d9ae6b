"""A translated page shows the same commands, programs and configurations as its original, in the same order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.docs.blocks import ROOT, Block, pages, read_blocks

TRANSLATED = [page for page in pages() if page.name.endswith(".zh.md")]
_COMMENT = re.compile(r"\s+#.*$", re.MULTILINE)  # a remark is translated too
_HEADING = re.compile(r"^(#+) ", re.MULTILINE)
_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def _original(page: Path) -> Path:
    return page.with_name(page.name.replace(".zh.md", ".md"))


def _shown(page: Path) -> list[tuple[str, str, str, str]]:
    return [(block.language, block.mark, block.word, _plain(block)) for block in read_blocks(page)]


def _plain(block: Block) -> str:
    return _COMMENT.sub("", block.text) if block.language == "yaml" else block.text


def test_the_readme_and_the_quickstart_are_translated():
    assert {ROOT / "README.zh.md", ROOT / "docs" / "guide" / "quickstart.zh.md"} <= set(TRANSLATED)


@pytest.mark.parametrize("page", TRANSLATED, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_translation_shows_what_the_original_shows(page: Path):
    assert _shown(page) == _shown(_original(page))


@pytest.mark.parametrize("page", TRANSLATED, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_translation_has_the_parts_of_the_original(page: Path):
    """A part that was added to one is missing in the other."""
    levels = [_HEADING.findall(_FENCED.sub("", each.read_text(encoding="utf-8"))) for each in (page, _original(page))]
    assert levels[0] == levels[1]


@pytest.mark.parametrize("page", ["README.md", "README.zh.md"])
def test_each_readme_leads_to_the_other_in_its_first_line(page: str):
    other = {"README.md": "README.zh.md", "README.zh.md": "README.md"}[page]
    assert f"]({other})" in (ROOT / page).read_text(encoding="utf-8").partition("\n")[0]


def test_the_readmes_count_the_same_scenarios():
    texts = [(ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "README.zh.md")]
    assert re.findall(r"runs (\d+)\s+scenarios", texts[0]) == re.findall(r"(\d+) 个场景", texts[1])
