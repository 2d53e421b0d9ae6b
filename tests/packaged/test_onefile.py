"""The bootstrap of fairlead.pyz: unpacks into a directory that is private, whole and of its own version."""

from __future__ import annotations

import os
import stat
import zipfile
from pathlib import Path

import pytest
from deploy.onefile import bootstrap
from deploy.onefile.bootstrap import VARIABLE, Manifest, Unusable, find_packages, places
from deploy.onefile.build import COMMENT, SHEBANG, write

from fairlead.programs.hostservice.place import ARCHIVE_END

UID = os.geteuid()


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return make(tmp_path, "fairlead.pyz", b"print('one')\n")


def make(tmp_path: Path, name: str, content: bytes) -> Path:
    tree = tmp_path / f"tree-{name}"
    (tree / "package").mkdir(parents=True)
    (tree / "package" / "__init__.py").write_bytes(content)
    (tree / "package" / "compiled.so").write_bytes(b"\x7fELF")
    write(tree, tmp_path / name)
    return tmp_path / name


def manifest(archive: Path) -> Manifest:
    with zipfile.ZipFile(archive) as opened:
        return Manifest(opened.read("manifest").decode())


def unpack(archive: Path, cache: Path) -> Path:
    return Path(find_packages(str(archive), manifest(archive), {VARIABLE: str(cache)}, UID))


def test_the_packages_are_unpacked_once_and_for_this_user_only(archive: Path, tmp_path: Path):
    tree = unpack(archive, tmp_path / "cache")
    assert (tree / "package" / "__init__.py").read_bytes() == b"print('one')\n"
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tree.parent, tree, tree / "package")}
    assert set(modes.values()) == {0o700}
    before = (tree / "package" / "__init__.py").stat().st_ino
    assert unpack(archive, tmp_path / "cache") == tree
    assert (tree / "package" / "__init__.py").stat().st_ino == before


def test_the_same_content_gives_the_same_file(tmp_path: Path):
    one, other = make(tmp_path, "a.pyz", b"x = 1\n"), make(tmp_path, "b.pyz", b"x = 1\n")
    assert one.read_bytes() == other.read_bytes()
    assert one.read_bytes().startswith(SHEBANG)
    assert one.read_bytes().endswith(COMMENT)
    assert COMMENT == ARCHIVE_END  # by it `install-host` knows the file


@pytest.mark.parametrize("harm", ["removed", "shorter", "link"])
def test_a_file_that_was_taken_away_or_changed_is_unpacked_again(archive: Path, tmp_path: Path, harm: str):
    tree = unpack(archive, tmp_path / "cache")
    file = tree / "package" / "__init__.py"
    file.unlink()
    if harm == "shorter":
        file.write_bytes(b"p")
    elif harm == "link":
        file.symlink_to("/dev/null")
    assert unpack(archive, tmp_path / "cache") == tree
    assert file.read_bytes() == b"print('one')\n"
    assert not list(tree.parent.glob("old.*"))


@pytest.mark.parametrize("mode", [0o755, 0o777, 0o770])
def test_a_cache_that_others_may_enter_is_not_used(archive: Path, tmp_path: Path, mode: int):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(mode)
    with pytest.raises(
        Unusable, match=r"other users may enter it .* Name a private directory in FAIRLEAD_ONEFILE_CACHE"
    ):
        unpack(archive, tmp_path / "cache")


def test_a_cache_that_is_a_link_is_not_used(archive: Path, tmp_path: Path):
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "cache").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Unusable, match="it is no directory"):
        unpack(archive, tmp_path / "cache")


@pytest.mark.skipif(UID != 0, reason="only root can give a directory to another user")
@pytest.mark.parametrize("whose", ["cache", "above", "packages"])
def test_what_another_user_planted_is_not_used(archive: Path, tmp_path: Path, whose: str):
    cache = tmp_path / "above" / "cache"
    tree = unpack(archive, cache)
    planted = {"cache": cache, "above": cache.parent, "packages": tree}[whose]
    os.chown(planted, 65534, 65534)
    if whose == "packages":  # made anew, of our own
        unpack(archive, cache)
        assert tree.stat().st_uid == 0
    else:
        with pytest.raises(Unusable, match=r"belongs to the user 65534|can be changed by another user"):
            unpack(archive, cache)


def test_a_directory_above_that_all_may_write_in_is_not_used_unless_it_is_sticky(archive: Path, tmp_path: Path):
    above = tmp_path / "above"
    above.mkdir()
    above.chmod(0o777)
    with pytest.raises(Unusable, match="can be changed by another user"):
        unpack(archive, above / "cache")
    above.chmod(0o1777)
    assert unpack(archive, above / "cache").exists()


def test_an_archive_that_is_damaged_is_refused_and_leaves_nothing(tmp_path: Path):
    good, other = make(tmp_path, "a.pyz", b"x = 1\n"), make(tmp_path, "b.pyz", b"x = 2\n")  # of the same size
    with pytest.raises(Unusable, match="it is damaged"):
        find_packages(str(other), manifest(good), {VARIABLE: str(tmp_path / "cache")}, UID)
    assert [path.suffix for path in (tmp_path / "cache").iterdir() if path.is_dir()] == []


def test_another_version_removes_the_old_packages_unless_a_process_uses_them(tmp_path: Path):
    one, two, three = (make(tmp_path, f"{n}.pyz", b"x = %d\n" % n) for n in range(3))
    old = unpack(one, tmp_path / "cache")  # its lock is held by this process
    new = unpack(two, tmp_path / "cache")
    assert old.exists()
    child = os.fork()
    if not child:  # a process of its own, which ends and lets go
        unpack(three, tmp_path / "cache")
        os._exit(0)
    os.waitpid(child, 0)
    third = tmp_path / "cache" / manifest(three).digest
    assert third.exists()
    make(tmp_path, "4.pyz", b"x = 4\n")
    unpack(tmp_path / "4.pyz", tmp_path / "cache")
    assert not third.exists()
    assert new.exists()


def test_where_it_unpacks_to():
    assert places({VARIABLE: "/x"}, 0) == ["/x"]
    assert places({"HOME": "/root"}, 0) == ["/var/cache/fairlead", "/run/fairlead-cache"]
    assert places({"HOME": "/home/a", "XDG_RUNTIME_DIR": "/run/user/1"}, 1) == [
        "/home/a/.cache/fairlead",
        "/run/user/1/fairlead",
    ]
    assert places({}, 1) == []


@pytest.mark.skipif(UID != 0, reason="these places are root's")
def test_a_place_that_cannot_be_used_makes_way_for_the_next(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(bootstrap, "PLACES", (str(tmp_path / "file" / "x"), str(tmp_path / "second")))
    assert Path(find_packages(str(archive), manifest(archive), {}, UID)).parent == tmp_path / "second"
