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

from docs import generate, numbers
from fairlead.backends.amd import spec as amd
from fairlead.backends.amd.health import CAUSES
from fairlead.backends.nvidia import spec as nvidia
from fairlead.backends.paths import spec as paths
from fairlead.backends.sim import spec as sim
from fairlead.cli import DEFECT
from fairlead.config.reference import keys
from fairlead.config.spec import Config
from fairlead.fronts.deviceplugin.lifecycle import Phase
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
        ("simulated-hardware.md", (sim.Options, sim.Fleet, sim.Group, sim.Partition, sim.LinkSpec, sim.Node)),
        ("simulated-hardware.md", get_args(sim.AnyOrder)),
        ("cdi.md", (nvidia.Cdi,)),
        ("mps.md", (nvidia.Mps,)),
        ("amd-hardware.md", (amd.Options, amd.Cdi, amd.Health)),
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


@pytest.mark.parametrize("struct", [Config, amd.Options, nvidia.Options, paths.Options])
def test_every_key_has_a_kind_and_a_meaning(struct: type[msgspec.Struct]):
    """The reference, `config explain` and the schema are made of it."""
    known = keys(struct)
    assert [key.path for key in known if not key.text or "anything" in key.kind.split()] == []
    assert any(key.path.count(".") for key in known)


def test_the_guide_on_health_has_the_numbers_of_the_code():
    text = (GUIDE / "health.md").read_text()
    for number in (DEFAULT.suspect_s, DEFAULT.hold_s, DEFAULT.probation_s):
        assert f"{number:g} s" in text


def test_every_fault_and_check_of_amd_gpus_is_in_their_guide():
    told = _first_column(GUIDE / "amd-hardware.md", "## Health")
    assert set(told) == {*CAUSES, *amd.Check}


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


def test_the_guide_on_performance_has_the_ratios_of_the_last_run():
    """In words, which a new run may make wrong."""
    ratios = {title: float(ratio) for title, _, _, ratio, _ in numbers.rows()}
    text = (GUIDE / "performance.md").read_text()
    assert "about eight times NVIDIA's start" in text
    assert 7 <= ratios["start → registered"] <= 9
    assert f"{ratios['Allocate p50']:g} times NVIDIA's in the last quiet run" in text
    assert "about three quarters of NVIDIA's throughput" in text
    assert 0.7 <= ratios["Allocate, 8 in flight"] <= 0.8
    assert "About three quarters of NVIDIA's PSS" in text
    assert 0.7 <= ratios["PSS"] <= 0.8
    assert "about a seventh of the time" in text
    assert 1 / 8 <= ratios["8 GPUs: preferred + Allocate p50"] <= 1 / 6
    assert "about a millisecond" in text
    assert ratios["16 GPUs: preferred, 4"] < 0.001


def _first_column(page: Path, heading: str) -> list[str]:
    """The code words in the first column of the tables below a heading."""
    part = page.read_text().split(f"{heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line.split("|")[1] for line in part.splitlines() if line.startswith("|")]
    return [word for row in rows for word in re.findall(r"`([^`]+)`", row)]


def _recorded() -> Iterator[str]:
    """Every kind that code hands to a journal as plain text."""
    for path in (ROOT / "src" / "fairlead").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and node.args:
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                first = node.args[0]
                # A decision of `policy` is a `Record`, which its caller writes.
                if name in {"record", "_record", "record_at_once", "Record"} and isinstance(first, ast.Constant):
                    yield str(first.value)


def _below(kind: type[FairleadError]) -> Iterator[type[FairleadError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _below(child)


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
