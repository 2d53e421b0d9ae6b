"""Hostile files through every way that files come in: an exit code that is right, a message that helps, no harm.

The long form, which CI plays, spoils each value of each document with each of the bad ones.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct
from tests.clock import FakeClock
from tests.fuzz.good import FLEET, GENERIC, KUBECONFIG, NVIDIA, OURS, SMARTER, VOLCANO
from tests.fuzz.hostile import FILES, TEXTS, VALUES, dump, spoiled

from fairlead.cli import dialect, main
from fairlead.cli.run import run
from fairlead.cli.say import say
from fairlead.cluster.errors import NoAccess
from fairlead.cluster.kubeconfig import read_kubeconfig

NOWHERE = "/dev/null/nowhere"  # a daemon whose configuration is good ends there, with 3
PARTS = 4  # of the longest test, for as many workers


class Way(Struct, frozen=True):
    """How a file comes in."""

    good: Any
    play: Callable[[str], int | str | None]
    refused: int  # the code for a file that cannot be used
    fine: tuple[int, ...] = (0,)  # the codes for one that can
    lenient: bool = False  # reads over more than others
    parts: range = range(PARTS)  # of the long form


def _fleet(path: str) -> int | str | None:
    config = Path(path).with_name("around.yaml")
    config.write_bytes(dump({"backends": [{"kind": "sim", "fleet": path}], "rules": [{"resource": "example.com/x"}]}))
    return _main("plan", "--config", str(config))


def _kubeconfig(path: str) -> int:
    try:
        read_kubeconfig(path, "", {}, FakeClock())
    except NoAccess as error:
        say(error)  # as every command does
        return 6
    return 0


def _main(*args: str) -> int | str | None:
    main(list(args))
    return None


WAYS = {
    # What `plan` and `run` read is read as `validate` does; of what comes after it, each plays one half.
    "validate": Way(OURS, lambda path: _main("validate", "--config", path), 2),
    "plan": Way(OURS, lambda path: _main("plan", "--config", path), 2, (0, 1, 4), parts=range(0, PARTS, 2)),
    "run": Way(OURS, lambda path: run({"--config": path, "--plugin-dir": NOWHERE}), 2, (3,), parts=range(1, PARTS, 2)),
    "fleet": Way(FLEET, _fleet, 2, (0, 1)),
    "nvidia": Way(NVIDIA, lambda path: dialect.main("nvidia", [f"--config-file={path}", "--print-config"]), 1),
    "nvidia lenient": Way(
        NVIDIA,
        lambda path: dialect.main("nvidia", [f"--config-file={path}", "--print-config", "--lenient"]),
        1,
        lenient=True,
    ),
    "volcano": Way(VOLCANO, lambda path: dialect.main("volcano", [f"--config-file={path}", "--print-config"]), 1),
    "volcano lenient": Way(
        VOLCANO,
        lambda path: dialect.main("volcano", [f"--config-file={path}", "--print-config", "--lenient"]),
        1,
        lenient=True,
    ),
    # They read over keys that they do not know, as theirs do.
    "generic": Way(
        GENERIC, lambda path: dialect.main("generic", [f"--config={path}", "--print-config"]), 1, lenient=True
    ),
    "smarter": Way(
        SMARTER, lambda path: dialect.main("smarter", [f"--config={path}", "--print-config"]), 1, lenient=True
    ),
    "kubeconfig": Way(KUBECONFIG, _kubeconfig, 6, lenient=True),  # as kubectl, it reads over keys that it does not know
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "f.yaml"


def _clean(directory: Path) -> None:
    for path in directory.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _play(way: Way, path: Path) -> tuple[object, str]:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            code: object = way.play(str(path)) or 0
        except SystemExit as end:
            code = end.code or 0
    return code, printed.getvalue()


def _check(way: Way, path: Path, *, must_refuse: bool) -> list[str]:
    code, printed = _play(way, path)
    wrong = []
    if must_refuse and code != way.refused:
        wrong.append(f"ends with {code}, not {way.refused}")
    if code not in {way.refused, *way.fine}:
        wrong.append(f"ends with {code}")
    if "Traceback" in printed or "SECRET" in printed:
        wrong.append("shows what it must not")
    if not all(one == "\n" or one.isprintable() for one in printed):
        wrong.append("prints what a terminal obeys")
    if code == way.refused and str(path) not in printed and "nothing says where the API server is" not in printed:
        wrong.append("does not name the file")
    if code == way.refused and max(map(len, printed.splitlines()), default=0) > 5_000:
        wrong.append(f"has a line of {max(map(len, printed.splitlines()))} characters")
    return [f"{fault}: {printed[:500]!r}" for fault in wrong]


@pytest.mark.parametrize("name", [*WAYS])
def test_the_good_document_is_good(name: str, place: Path) -> None:
    place.write_bytes(dump(WAYS[name].good))
    code, printed = _play(WAYS[name], place)
    assert code in WAYS[name].fine, printed


@pytest.mark.parametrize("kind", [*FILES])
@pytest.mark.parametrize("name", [*WAYS])
def test_what_is_no_file_of_bounded_size_is_refused(name: str, kind: str, place: Path) -> None:
    if kind == "terminal" and not Path("/dev/tty").exists():
        pytest.skip("there is no terminal here")
    FILES[kind](place)
    assert not _check(WAYS[name], place, must_refuse=True)


@pytest.mark.parametrize("name", [*WAYS])
def test_what_may_not_be_read_is_refused(name: str, place: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    place.touch(0o000)
    assert not _check(WAYS[name], place, must_refuse=True)


@pytest.mark.parametrize("name", [*WAYS])
def test_a_text_that_is_made_to_harm_is_refused(name: str, place: Path) -> None:
    way, wrong = WAYS[name], {}
    for kind, text in TEXTS.items():
        place.write_bytes(text)
        if faults := _check(way, place, must_refuse=not way.lenient):
            wrong[kind] = faults
    assert not wrong


def _spoiled(name: str, place: Path, chosen: range) -> Iterator[tuple[str, list[str]]]:
    way = WAYS[name]
    for kind, document in spoiled(way.good):
        if zlib.crc32(kind.encode()) % len(VALUES) in chosen:
            _clean(place.parent)
            place.write_bytes(dump(document))
            if faults := _check(way, place, must_refuse=False):
                yield kind, faults


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("name", "part"), [(name, part) for name, way in WAYS.items() for part in way.parts])
def test_every_bad_value_in_every_place(name: str, part: int, place: Path) -> None:
    assert not dict(_spoiled(name, place, range(part, len(VALUES), PARTS)))
