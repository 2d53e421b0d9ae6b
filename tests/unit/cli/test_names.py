"""Called by the name of another system's program, the command is that program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fairlead.cli import DIALECTS
from fairlead.cli.dialect import SUBCOMMANDS
from fairlead.cli.names import COMMANDS, PLACES, command_of
from fairlead.programs.configmanager import OWN_COMMANDS

LAUNCHER = f"#!{sys.executable}\nfrom fairlead.cli import main\nmain()\n"


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("bin") / "fairlead"
    made.write_text(LAUNCHER)
    made.chmod(0o755)
    return made


def call(launcher: Path, name: str, *args: str) -> subprocess.CompletedProcess[str]:
    link = launcher.with_name(name)
    if not link.exists():
        link.symlink_to(launcher.name)
    return subprocess.run([link, *args], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_each_name_answers_as_the_command_that_takes_its_place(launcher: Path, name: str):
    done = call(launcher, name, "--help")
    plain = call(launcher, "fairlead", *COMMANDS[name], "--help")
    assert (done.returncode, done.stdout, done.stderr) == (0, plain.stdout, plain.stderr)
    assert done.stdout.startswith(f"Usage: fairlead {' '.join(COMMANDS[name])} ")


def test_arguments_follow(launcher: Path):
    done = call(launcher, "nvidia-device-plugin", "--resource-priority=high")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("fairlead nvidia: flag provided but not defined")


def test_any_other_name_is_fairlead(launcher: Path):
    assert call(launcher, "fl", "version").stdout.startswith("fairlead ")
    assert command_of("fairlead") == command_of("/x/fairlead/__main__.py") == command_of("") == ()


def test_what_a_name_stands_for_exists_and_is_the_same_at_each_of_its_places():
    for place, (word, *more) in PLACES.items():
        assert place.startswith("/")
        assert word in {*DIALECTS, "scheduler"}
        assert set(more) <= SUBCOMMANDS.get(word, {}).keys()
        assert PLACES[place] == command_of(place)


def test_config_manager_finds_the_programs_under_these_names():
    assert {name: COMMANDS[name] for name in OWN_COMMANDS} == OWN_COMMANDS
