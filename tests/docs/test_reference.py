"""The reference says what the code says: generated pages, tables of events, options and exit codes, links."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from tests.docs.blocks import ROOT

from docs import generate
from fairlead.backends.nvidia import spec as nvidia
from fairlead.backends.paths import spec as paths
from fairlead.backends.sim import spec as sim
from fairlead.cli import DEFECT
from fairlead.config.reference import keys
from fairlead.config.spec import Config
from fairlead.kubelet.lifecycle import Phase
from fairlead.model.errors import FairleadError
from fairlead.model.health import Health
from fairlead.policy.health import DEFAULT

GUIDE = ROOT / "docs" / "guide"
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def _written() -> list[Path]:
    """Every page that is part of the project."""
    rooms = [ROOT / room for room in ("docs", "src", "bench", "tests", "examples")]
    return [*sorted(ROOT.glob("*.md")), *(page for room in rooms for page in sorted(room.rglob("*.md")))]


def test_the_generated_pages_are_up_to_date():
    assert not generate.stale(), f"the code says something else now; run: {generate.COMMAND}"


def test_every_event_of_the_journal_is_explained_and_no_other():
    told = set(_first_column(GUIDE / "operating.md", "## The journal"))
    assert told == set(_recorded()) | {phase.value for phase in Phase} | {health.value for health in Health}


def test_every_exit_code_is_explained():
    told = set(_first_column(GUIDE / "operating.md", "## Exit codes"))
    assert {"0", str(DEFECT), *(str(kind.exit_code) for kind in _below(FairleadError))} <= told


@pytest.mark.parametrize(
    ("page", "structs"),
    [
        ("any-device-path.md", (paths.Options, paths.Entry, paths.MountSpec)),
        ("simulated-hardware.md", (sim.Options, sim.Fleet, sim.Group, sim.Partition, sim.LinkPlan, sim.Node)),
        ("simulated-hardware.md", get_args(sim.AnyOrder)),
        ("cdi.md", (nvidia.Cdi,)),
        ("mps.md", (nvidia.Mps,)),
    ],
)
def test_every_option_of_a_backend_is_in_its_guide(page: str, structs: tuple[type[msgspec.Struct], ...]):
    text = (GUIDE / page).read_text()
    for struct in structs:
        config = struct.__struct_config__
        if config.tag is not None:
            assert f"`{config.tag}`" in text
        for field in msgspec.structs.fields(struct):
            assert f"`{field.encode_name}`" in text, f"{page} says nothing of {field.encode_name}"


@pytest.mark.parametrize("struct", [Config, nvidia.Options])
def test_every_key_has_a_kind_and_a_meaning(struct: type[msgspec.Struct]):
    """The reference, `config explain` and the schema are made of it."""
    known = keys(struct)
    assert [key.path for key in known if not key.text or "anything" in key.kind.split()] == []
    assert any(key.path.count(".") for key in known)


def test_the_guide_on_health_has_the_numbers_of_the_code():
    text = (GUIDE / "health.md").read_text()
    for number in (DEFAULT.suspect_s, DEFAULT.hold_s, DEFAULT.probation_s):
        assert f"{number:g} s" in text


@pytest.mark.parametrize("page", _written(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path):
    for target in _LINK.findall(page.read_text()):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{page.relative_to(ROOT)}: no {target}"
        if anchor:
            assert anchor in _anchors(there), f"{page.relative_to(ROOT)}: no heading for {target}"


def test_targets_of_make_that_pages_name_exist():
    makefile = (ROOT / "Makefile").read_text()
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md"):
        for target in re.findall(r"(?:^\$ |`)make ([a-z]+)", page.read_text(), re.MULTILINE):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{page.name} names make {target}"


def _first_column(page: Path, heading: str) -> list[str]:
    """The code words in the first column of the tables below a heading."""
    part = page.read_text().split(f"{heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line.split("|")[1] for line in part.splitlines() if line.startswith("|")]
    return [word for row in rows for word in re.findall(r"`([^`]+)`", row)]


def _recorded() -> Iterator[str]:
    """Every kind that code hands to a journal as plain text."""
    for path in (ROOT / "src" / "fairlead").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                first = node.args[0]
                if node.func.attr in {"record", "_record", "record_at_once"} and isinstance(first, ast.Constant):
                    yield str(first.value)


def _below(kind: type[FairleadError]) -> Iterator[type[FairleadError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _below(child)


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
