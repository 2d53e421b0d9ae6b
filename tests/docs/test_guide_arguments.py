"""The containers in the guides' manifests, started as they stand there: our command takes their arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.docs.blocks import ROOT, read_blocks
from tests.system.process import fairlead

GUIDES = ("amd", "generic", "gke")


def containers(guide: str) -> list[tuple[str, dict[str, Any]]]:
    """Of every manifest of the guide, by its workload."""
    blocks = [one for one in read_blocks(ROOT / f"docs/guide/{guide}.md") if "apiVersion:" in one.text]
    objects = [one for block in blocks for one in yaml.safe_load_all(block.text)]
    specs = {one["metadata"]["name"]: one["spec"]["template"]["spec"] for one in objects if one["kind"] == "DaemonSet"}
    return [(name, one) for name, spec in specs.items() for one in spec["containers"]]


def test_each_guide_has_a_manifest():
    assert all(containers(guide) for guide in GUIDES)


@pytest.mark.parametrize(
    ("guide", "name", "container"),
    [(guide, name, one) for guide in GUIDES for name, one in containers(guide)],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_our_command_takes_its_arguments(guide: str, name: str, container: dict[str, Any], tmp_path: Path):
    program, *words = map(str, container["command"] + container.get("args", []))
    assert (program, words[0]) == ("fairlead", guide)
    values = {one["name"]: one.get("value", "node-1") for one in container.get("env", [])}
    code, out, err = await fairlead(*words, "--print-config", env=values | {"HOME": str(tmp_path)})
    assert code == 0, err
    assert "Traceback" not in err
    made = yaml.safe_load(out)
    assert made["backends"], name
    assert made["rules"], name


async def test_an_argument_that_is_wrong_is_refused():
    """So that the test above says something."""
    for guide in GUIDES:
        code, _, err = await fairlead(guide, "--no-such-flag", "--print-config")
        assert (code, "no-such-flag" in err) == (2, True), guide
