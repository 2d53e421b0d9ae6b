"""The first command of the README: helm takes it as it stands, and makes what Kubernetes knows."""

from __future__ import annotations

import json
import shlex
from typing import Any

import yaml

from tests.chart import extra, helm
from tests.chart.shapes import Object, daemon_set, main_container
from tests.docs.blocks import ROOT, commands, read_blocks


def release() -> Any:
    """What helm would install for the command of the README."""
    (command,) = [
        one.text
        for block in read_blocks(ROOT / "README.md")
        if block.language == "console"
        for one in commands(block)
        if one.text.startswith("helm ")
    ]
    words = [str(ROOT / word) if word.startswith("deploy/") else word for word in shlex.split(command)[1:]]
    return json.loads(helm.run(*words, "--dry-run=client", "--output", "json"))


def objects(made: Any) -> list[Object]:
    return [one for one in yaml.safe_load_all(made["manifest"]) if one]


def test_the_release_of_the_readme_runs_the_image_that_it_names():
    made = release()
    assert (made["name"], made["namespace"]) == ("fairlead", "fairlead")
    image = main_container(daemon_set(objects(made)))["image"]
    assert image.startswith("registry.example.com/fairlead:")
    assert "No image is published" not in made["info"]["notes"]


def test_the_release_of_the_readme_is_one_that_kubernetes_knows():
    check = extra.load("kubernetes_validate")
    for one in objects(release()):
        check.validate(one, "1.36", strict=True)
