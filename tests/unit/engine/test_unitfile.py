"""The file that keeps a unit: whole or not at all, for one user, and never more than it is."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from fairlead.engine.unitfile import RETRY_S, UnitFiles, file_name
from fairlead.model.names import ResourceName
from fairlead.policy.offering.memory import MIB

NAME = ResourceName("doslab.io/gpu-memory")
LONG = ResourceName(f"{'x' * 60}.{'y' * 60}.example.com/{'z' * 63}")


def read(directory: Path) -> UnitFiles:
    files = UnitFiles(directory)
    files.read()
    return files


def write(directory: Path, name: ResourceName = NAME, unit_mib: int = 2) -> Path:
    files = UnitFiles(directory)
    files.keep({name: unit_mib * MIB})
    assert files.save(0.0) == ""
    return directory / file_name(name)


@pytest.mark.parametrize("name", [NAME, LONG])
def test_what_was_written_is_read(name: ResourceName, tmp_path: Path):
    file = write(tmp_path, name)
    assert read(tmp_path).units == {name: 2 * MIB}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.name.startswith(".")  # the kubelet takes other files for checkpoints
    assert [one.name for one in tmp_path.iterdir()] == [file.name]


def test_nothing_is_written_twice(tmp_path: Path):
    write(tmp_path)
    files = read(tmp_path)
    (tmp_path / file_name(NAME)).unlink()
    files.keep({NAME: 2 * MIB})
    assert files.save(0.0) == ""
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_daemon_left_half_written_is_no_obstacle(tmp_path: Path):
    file = write(tmp_path)
    (tmp_path / f"{file.stem}.unit-new").write_bytes(b"{")
    write(tmp_path, unit_mib=4)
    assert read(tmp_path).units == {NAME: 4 * MIB}


@pytest.mark.parametrize("kind", ["link", "pipe", "directory", "large", "other", "version", "zero", "negative"])
def test_what_is_no_such_file_is_damage(kind: str, tmp_path: Path):
    file = write(tmp_path)
    content = file.read_bytes()
    file.unlink()
    if kind == "link":
        (tmp_path / "elsewhere").write_bytes(content)
        file.symlink_to(tmp_path / "elsewhere")
    elif kind == "pipe":
        os.mkfifo(file)
    elif kind == "directory":
        file.mkdir()
    else:
        file.write_bytes(
            {
                "large": content + b" " * 5000,
                "other": content.replace(b"doslab", b"aliyun"),
                "version": content.replace(b'"version":1', b'"version":2'),
                "zero": content.replace(b'"unit_mib":2', b'"unit_mib":0'),
                "negative": content.replace(b'"unit_mib":2', b'"unit_mib":-2'),
            }[kind]
        )
    files = read(tmp_path)
    assert files.units == {}
    assert files.damage(NAME).startswith(f"{file} cannot be read (")


def test_a_link_in_the_place_of_the_new_file_is_not_followed(tmp_path: Path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / f"{Path(file_name(NAME)).stem}.unit-new").symlink_to(victim)
    write(tmp_path)
    assert victim.read_text() == "precious"


def test_a_write_that_failed_is_tried_again_after_a_while(tmp_path: Path):
    place = tmp_path / "later"
    files = UnitFiles(place)
    files.keep({NAME: 2 * MIB})
    problem = files.save(0.0)
    assert "the unit of doslab.io/gpu-memory cannot be written" in problem
    assert "make room there" in problem
    place.mkdir()
    assert files.save(RETRY_S - 1) == problem
    assert list(place.iterdir()) == []
    assert files.save(RETRY_S) == ""
    assert read(place).units == {NAME: 2 * MIB}
