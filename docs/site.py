"""The site: `python -m docs.site` builds it with mkdocs, which the extra `docs` installs, and checks what was built.

Owns the way from pages of the repository to pages of the site: those outside of docs/, links between them, and what
Python's Markdown reads otherwise than GitHub. It writes plain Markdown to build/pages, from which mkdocs, or another
builder, makes the site. The text of pages stays as it is.
"""

from __future__ import annotations

import os
import posixpath
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
STAGE = ROOT / "build" / "pages"
BUILT = ROOT / "build" / "site"
ASSETS = {".svg", ".png", ".json", ".css"}
CHINESE = ".zh.md"
# Pages that are not in docs/, or have another name there; by their place in the repository.
MOVED = {
    "README.md": "index.md",
    "README.zh.md": "index.zh.md",
    "docs/README.md": "contents.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changes.md",
    "bench/README.md": "project/bench.md",
    "examples/leds/README.md": "project/leds.md",
    "src/fairlead/standin/README.md": "project/standin.md",
}
_FOLDERS = {"docs/decisions": "decisions/0001-our-own-wire.md", "examples/leds": "project/leds.md"}
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_MARK = re.compile(r"^ *<!-- (?:test|from|differences):? ?[^>]*-->\n", re.MULTILINE)
_FENCE = re.compile(r"^( *```.*?^ *```)$", re.MULTILINE | re.DOTALL)
_ITEM = re.compile(r"( *)([-*]|\d+\.)( +)(?=\S)")
_LOADED = re.compile(
    r"<(?:script|link|img|iframe|source|object|embed)\b[^>]*?(?:src|href|data)=\"?((?:https?:)?//[^\s\">]+)"
)
_IN_CSS = re.compile(r"url\(\s*[\"']?((?:https?:)?//[^\"')]+)")


def pages(root: Path = ROOT) -> dict[str, str]:
    """Every page of the site by its place in the repository."""
    found = {path.relative_to(root).as_posix() for path in (root / "docs").rglob("*.md")} - MOVED.keys()
    return MOVED | {path: path.removeprefix("docs/") for path in sorted(found)}


def rewrite(path: str, text: str, root: Path = ROOT) -> str:
    """The Markdown of a page of the repository as mkdocs shall have it."""
    known = pages(root)
    if path.startswith("README"):  # the site has a menu of its own for this
        text = re.sub(r"\A.*\[(?:English|简体中文)\].*\n+", "", text)
    parts = _FENCE.split(_MARK.sub("", text))
    parts[::2] = [_LINK.sub(lambda link: _link(link, path, known, root), part) for part in parts[::2]]
    return "\n".join(_indent("".join(parts).splitlines())) + "\n"


def _link(link: re.Match[str], path: str, known: dict[str, str], root: Path) -> str:
    picture, text, target = link.groups()
    if ":" in target or target.startswith("#"):
        return link[0]
    name, hash_, anchor = target.partition("#")
    meant = posixpath.normpath(posixpath.join(posixpath.dirname(path), name))
    there = known.get(meant) or _FOLDERS.get(meant)
    if there is None and meant.startswith("docs/") and (root / meant).is_file():
        there = meant.removeprefix("docs/")
    if there is None:
        return text  # source code: it is not on the site
    if there.endswith(CHINESE):
        there = there.removesuffix(CHINESE) + ".md"  # the site takes the page of the reader's language
    place = posixpath.relpath(there, posixpath.dirname(known[path]) or ".")
    return f"{picture}[{text}]({place}{hash_}{anchor})"


def _indent(lines: list[str]) -> Iterator[str]:
    """What belongs to an item of a list is indented by four: Python's Markdown takes less for its end."""
    open_items: list[tuple[int, int]] = []  # where the text of each begins: here, and in what is given out
    fenced = False
    for line in lines:
        depth = len(line) - len(line.lstrip(" "))
        if line.strip() and not fenced:
            while open_items and depth < open_items[-1][0]:
                open_items.pop()
        before, after = open_items[-1] if open_items else (0, 0)
        yield " " * after + line[before:] if line.strip() else line
        fenced ^= line.lstrip().startswith("```")
        if not fenced and (item := _ITEM.match(line)):
            open_items.append((item.end(), after + 4))


def slug(heading: str, separator: str = "-") -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", separator)


def foreign(text: str) -> list[str]:
    """What a browser would load from another host. A link that is only followed is not among it."""
    return [*_LOADED.findall(text), *_IN_CSS.findall(text)]


def on_config(config: Any) -> Any:
    """A hook of mkdocs: anchors must be those that the pages link to."""
    config["mdx_configs"].setdefault("toc", {})["slugify"] = slug
    return config


# --- The command ------------------------------------------------------------------------------------------------------


def check(built: Path, say: Callable[[str], Any] = print) -> bool:
    """Whether no file of the site loads something from elsewhere."""
    bad = [
        f"{path.relative_to(built)}: {host}"
        for path in sorted(built.rglob("*"))
        if path.suffix in {".html", ".css"}
        for host in foreign(path.read_text(encoding="utf-8"))
    ]
    for line in bad:
        say(line)
    return not bad


def stage(target: Path = STAGE) -> None:
    """Writes all pages, and the files that they show."""
    shutil.rmtree(target, ignore_errors=True)
    for place, uri in pages().items():
        path = target / uri
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(rewrite(place, (ROOT / place).read_text(encoding="utf-8")), encoding="utf-8")
    for path in (ROOT / "docs").rglob("*"):
        if path.suffix in ASSETS and path.name != "bench.json" and path.parent.name != "cards":
            shutil.copy(path, target / path.relative_to(ROOT / "docs"))


def main() -> int:
    stage()
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--clean", "--quiet", "--site-dir", str(BUILT)]
    done = subprocess.run(command, cwd=ROOT, env=environment, check=False)  # noqa: S603 - nothing in it is from outside
    if done.returncode:
        return done.returncode
    if not check(BUILT):
        return 1
    print(f"{BUILT}/index.html")  # noqa: T201 - what a person opens
    return 0


if __name__ == "__main__":
    sys.exit(main())
