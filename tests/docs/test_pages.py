"""Every command, program and configuration in the docs does what the page says."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.docs.blocks import LANGUAGES, MARKS, ROOT, Block, pages, read_blocks
from tests.docs.story import Story

from fairlead.testing import Kubelet


@pytest.mark.timeout(240)  # a page may start a dozen interpreters, each of which may take seconds beside other tests
@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
async def test_what_a_page_shows_is_so(page: Path, kubelet: Kubelet, kubelet_root: Path):
    root = kubelet_root / "page"
    root.mkdir()
    story = Story(kubelet, root)
    try:
        for block in read_blocks(page):
            await story.tell(block)
    finally:
        await story.end()


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_are_of_known_kinds_and_a_skipped_one_says_why(page: Path):
    for block in read_blocks(page):
        assert block.language in LANGUAGES, f"{block.where}: a block of {block.language!r} is not run by anybody"
        if block.mark:
            assert block.mark in MARKS, f"{block.where}: unknown mark {block.mark!r}"
            assert bool(block.word) == MARKS[block.mark], f"{block.where}: 'test: {block.mark}' and its word"


async def test_a_wrong_line_of_output_is_noticed(kubelet: Kubelet, kubelet_root: Path):
    page = ROOT / "invented.md"
    for text, words in (
        ("$ echo one\ntwo\n", "not printed: 'two'"),
        ("$ printf 'a\\nb\\n'\nb\na\n", "not printed: 'a'"),
        ("$ false\n", "exit code 1"),
    ):
        with pytest.raises(AssertionError, match=words):
            await Story(kubelet, kubelet_root).tell(Block(page, 1, "console", text))
    await Story(kubelet, kubelet_root).tell(Block(page, 1, "console", "$ echo one   and two\none ... two\n"))
