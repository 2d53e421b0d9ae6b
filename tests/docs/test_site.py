"""The site: every page is in its menu, every link of a page leads to a page, and nothing is loaded from another host.

Needs no mkdocs; `python -m docs.site` builds it, with the same checks on what was built.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.docs.blocks import ROOT

from docs import site

CONFIG = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
PAGES = site.pages()
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_FENCED = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)


def _named(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    else:
        for part in nav.values() if isinstance(nav, dict) else nav:
            yield from _named(part)


def test_the_menu_has_every_page_once_and_no_other():
    named = list(_named(CONFIG["nav"]))
    wanted = {uri for uri in PAGES.values() if not uri.endswith(site.CHINESE)}
    assert wanted - set(named) == set(), "pages that are missing in `nav` of mkdocs.yml"
    assert set(named) - wanted == set(), "`nav` of mkdocs.yml names pages that do not exist"
    assert len(named) == len(set(named))


def test_every_word_of_the_menu_that_is_translated_is_in_the_menu():
    (i18n,) = (plugin["i18n"] for plugin in CONFIG["plugins"] if "i18n" in plugin)
    (chinese,) = (language for language in i18n["languages"] if language["locale"] == "zh")
    assert set(chinese["nav_translations"]) <= set(_titles(CONFIG["nav"]))


def _titles(nav: Any) -> Iterator[str]:
    for part in nav if isinstance(nav, list) else ():
        for title, below in part.items():
            yield title
            yield from _titles(below)


@pytest.mark.parametrize("place", PAGES)
def test_links_of_a_page_lead_to_pages_of_the_site(place: str):
    uri = PAGES[place]
    text = site.rewrite(place, (ROOT / place).read_text(encoding="utf-8"))
    for target in _LINK.findall(_FENCED.sub("", text)):
        name = target.partition("#")[0]
        if ":" in target or not name:
            continue
        meant = posixpath.normpath(posixpath.join(posixpath.dirname(uri), name))
        assert meant in PAGES.values() or (ROOT / "docs" / meant).is_file(), f"{place}: {target}"


def test_a_link_to_source_code_is_text_on_the_site():
    text = "See [the code](../../src/fairlead/cli/run.py) and [health](health.md#causes).\n"
    assert site.rewrite("docs/guide/mps.md", text) == "See the code and [health](health.md#causes).\n"
    assert site.rewrite("bench/README.md", "[the guide](../docs/guide/amd.md)") == "[the guide](../guide/amd.md)\n"


def test_a_link_in_a_block_of_code_stays():
    text = "```text\n[the code](../../src/x.py)\n```\n"
    assert site.rewrite("docs/guide/mps.md", text) == text


def test_what_belongs_to_an_item_is_indented_by_four():
    text = "1. one\n\n   ```text\n   a\n     b\n   ```\n\n2. two\n   goes on\n   - below\n     it\n\nend\n"
    assert site.rewrite("docs/guide/mps.md", text) == (
        "1. one\n\n    ```text\n    a\n      b\n    ```\n\n2. two\n    goes on\n    - below\n        it\n\nend\n"
    )


def test_marks_of_tests_are_not_shown():
    assert (
        site.rewrite("docs/guide/mps.md", "<!-- test: skip why -->\n```console\n$ ls\n```\n")
        == "```console\n$ ls\n```\n"
    )


def test_the_theme_loads_no_font_from_elsewhere():
    assert CONFIG["theme"]["font"] is False


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('<a href="https://example.com/x">', []),
        ('<script src="assets/a.js"></script>', []),
        ('<script src="https://example.com/a.js"></script>', ["https://example.com/a.js"]),
        ('<link rel="stylesheet" href="//example.com/a.css">', ["//example.com/a.css"]),
        ("@font-face { src: url(https://example.com/f.woff) }", ["https://example.com/f.woff"]),
    ],
)
def test_what_a_browser_would_load_from_another_host_is_noticed(tmp_path: Path, text: str, found: list[str]):
    (tmp_path / "a.html").write_text(text)
    said: list[str] = []
    assert site.check(tmp_path, said.append) == (not found)
    assert said == [f"a.html: {host}" for host in found]
