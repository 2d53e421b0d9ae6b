"""Links below a root lead nowhere but below it."""

from __future__ import annotations

import glob
import os
from itertools import product
from pathlib import Path

import pytest

from fairlead.kit import hostroot
from fairlead.kit.hostroot import HostRoot


def test_links_stay_inside_and_what_is_missing_is_told(tmp_path: Path):
    (tmp_path / "usr/lib").mkdir(parents=True)
    (tmp_path / "usr/lib/a.so.1").touch()
    (tmp_path / "lib").symlink_to("/usr/lib")  # absolute: from the root, not from the machine's
    (tmp_path / "usr/lib/a.so").symlink_to("a.so.1")
    (tmp_path / "out").symlink_to("../../../../etc")
    (tmp_path / "loop").symlink_to("loop")
    root = HostRoot(str(tmp_path))
    assert root.follow("/lib/a.so") == ("/usr/lib/a.so.1", True)
    assert root.follow("/lib/./../lib/b.so") == ("/usr/lib/b.so", False)
    assert root.follow("/out/passwd") == ("/etc/passwd", False)
    assert root.follow("/loop") == ("", False)
    assert root.follow("/") == ("/", True)


def test_a_loop_of_links_is_read_as_nothing(tmp_path: Path):
    (tmp_path / "secret").write_text("of the root")
    (tmp_path / "loop").symlink_to("loop")
    root = HostRoot(str(tmp_path))
    assert root.names("/loop") == []
    assert root.read("/loop") is None
    assert root.read("/loop/secret") is None
    assert root.read("/missing/../secret") is None  # as the kernel has it


def test_names_with_digits_that_are_no_numbers_are_sorted_too(tmp_path: Path):
    for name in ("tty10", "tty2", "tty2\u00b2", "tty\u00b2"):
        (tmp_path / name).touch()
    assert HostRoot(str(tmp_path)).glob("/tty*") == ["/tty2", "/tty2\u00b2", "/tty10", "/tty\u00b2"]


@pytest.mark.parametrize(
    "pattern",
    ["/*", "/a/*", "/*/x?", "/*/[xy]*", "/.*", "/*/.h*", "/a", "/*/x1", "/nothing/*", "/a/[", "/**/x1", "//a//x*"],
)
def test_patterns_match_what_the_shell_matches(tmp_path: Path, pattern: str):
    for path in ("a/x1", "a/x10", "a/x2", "a/y", "a/.hidden", "b/x1", "b/[", ".dot/x1", "c"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).touch()
    (tmp_path / "l").symlink_to("b")
    found = HostRoot(str(tmp_path)).glob(pattern)
    shell = [f"/{os.path.relpath(path, tmp_path)}" for path in glob.glob(f"{tmp_path}{pattern}")]  # noqa: PTH207 - the oracle
    assert sorted(found) == sorted(shell)


def test_patterns_do_not_look_outside(tmp_path: Path):
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside/etc").symlink_to("/etc")
    assert HostRoot(str(tmp_path)).glob("/inside/etc/*") == []


def test_a_pattern_that_leads_through_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(hostroot, "NAMES_MAX", 3)
    for name in "abcd":
        (tmp_path / name).touch()
    with pytest.raises(OverflowError, match=r"/\* leads through more than 3 names"):
        HostRoot(str(tmp_path)).glob("/*")


def test_what_the_kernel_is_asked_is_what_following_each_link_gives(tmp_path: Path):
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/file").touch()
    for name, target in {
        "inside": "/a/b",
        "relative": "a/b",
        "out": "../../../../etc",
        "etc": "/missing",
        "loop": "loop",
        "a/up": "../a",
        "a/dangling": "gone",
        "a/b/away": "/etc",
    }.items():
        (tmp_path / name).symlink_to(target)
    root = HostRoot(str(tmp_path))
    names = ("a", "b", "file", "inside", "relative", "out", "etc", "loop", "up", "dangling", "away", "passwd", "none")
    for path in (f"/{'/'.join(steps)}" for length in (1, 2, 3) for steps in product(names, repeat=length)):
        found, there = root.follow(path)
        assert root.real(path) == (found if there else None), path
