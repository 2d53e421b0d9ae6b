"""What the README tells a new user to type names files, objects and extras that exist. `tests/chart` runs helm."""

from __future__ import annotations

import re
import shlex
import tomllib

import yaml
from tests.docs.blocks import ROOT, commands, read_blocks

README = ROOT / "README.md"
TEXT = README.read_text()
SECTION = TEXT.partition("## Install\n")[2].partition("\n## ")[0]


def typed(word: str) -> list[list[str]]:
    """The commands of the README that begin with a word."""
    found = [
        shlex.split(one.text)
        for block in read_blocks(README)
        if block.language == "console"
        for one in commands(block)
        if one.text.split()[0] == word
    ]
    assert found, word
    return found


def test_every_way_to_install_is_shown_with_its_command():
    shown = [line.split()[1] for line in SECTION.splitlines() if line.startswith("$ ")]
    assert shown == ["helm", "kubectl", "pip", "pip"]


def test_the_file_for_kubectl_makes_a_daemon_set_with_all_that_it_refers_to():
    ((*words, path),) = typed("kubectl")
    assert words == ["kubectl", "apply", "-f"]
    made = [one for one in yaml.safe_load_all((ROOT / path).read_text()) if one]
    names = {(one["kind"], one["metadata"]["name"]) for one in made}
    (daemon_set,) = [one for one in made if one["kind"] == "DaemonSet"]
    spec = daemon_set["spec"]["template"]["spec"]
    assert ("Namespace", daemon_set["metadata"]["namespace"]) in names
    assert ("ServiceAccount", spec["serviceAccountName"]) in names
    for volume in spec["volumes"]:
        if "configMap" in volume:
            assert ("ConfigMap", volume["configMap"]["name"]) in names
    labels = daemon_set["spec"]["template"]["metadata"]["labels"]
    assert daemon_set["spec"]["selector"]["matchLabels"].items() <= labels.items()
    # The image is the one thing to change, as the README says: the file names the example.
    images = {container["image"].partition(":")[0] for container in spec["containers"]}
    assert images == {"example.com/fairlead"}


def test_pip_is_given_this_project_and_extras_that_it_has():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    for *words, what in typed("pip"):
        assert words == ["pip", "install"]
        found = re.fullmatch(r"\.(?:\[([\w,]+)\])?", what)
        assert found is not None, what
        assert {name for name in (found[1] or "").split(",") if name} <= extras.keys()
    told = re.findall(r"`(\w+)`", SECTION.rpartition("Extras:")[2])
    assert set(told) <= extras.keys()


def test_the_commands_that_the_readme_types_are_installed_by_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert typed("fairlead")
    assert "fairlead" in project["scripts"]
