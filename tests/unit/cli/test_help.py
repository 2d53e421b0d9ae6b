"""The lists of commands in help: every group, no line cut off, on a terminal of 80 columns."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from fairlead.cli.commands import cli
from fairlead.cli.explained import Listed


def groups(group: click.Group, *path: str) -> Iterator[tuple[tuple[str, ...], click.Group]]:
    yield path, group
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from groups(command, *path, name)


GROUPS = dict(groups(cli))


@pytest.mark.parametrize("path", GROUPS, ids=" ".join)
def test_every_command_has_a_line_with_its_whole_first_sentence(path: tuple[str, ...]):
    shown = CliRunner().invoke(cli, [*path, "--help"], terminal_width=80).output.partition("Commands:\n")[2]
    lines = [line for line in shown.partition("\n\n")[0].splitlines() if line]
    assert [line.split()[0] for line in lines] == sorted(GROUPS[path].commands)  # one line each: none is wrapped
    for line in lines:
        name, sentence = line.strip().split(maxsplit=1)
        assert re.match(rf"{re.escape(sentence)}(\s|$)", " ".join((GROUPS[path].commands[name].help or "").split()))
        assert sentence.endswith((".", ":"))
        assert not sentence.endswith("...")


def test_a_long_sentence_is_wrapped_not_cut():
    group = Listed("tool")
    group.add_command(click.Command("go", help=f"Go {'on and ' * 40}end. More."))
    shown = CliRunner().invoke(group, ["--help"]).output
    assert shown.split().count("on") == 40
    assert "end." in shown
    assert "More" not in shown


def test_completion_has_the_whole_sentence_too():
    found = ShellComplete(cli, {}, "fairlead", "_FAIRLEAD_COMPLETE").get_completions([], "")
    assert {item.value: item.help for item in found}["gke"] == "Take the place of GKE's device plugin for NVIDIA GPUs."
    assert not any(str(item.help).endswith("...") for item in found)
