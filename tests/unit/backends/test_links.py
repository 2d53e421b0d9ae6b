"""Links below a root lead nowhere but below it."""

from __future__ import annotations

from pathlib import Path

from fairlead.backends.links import follow


def test_links_stay_inside_and_what_is_missing_is_told(tmp_path: Path):
    (tmp_path / "usr/lib").mkdir(parents=True)
    (tmp_path / "usr/lib/a.so.1").touch()
    (tmp_path / "lib").symlink_to("/usr/lib")  # absolute: from the root, not from the machine's
    (tmp_path / "usr/lib/a.so").symlink_to("a.so.1")
    (tmp_path / "out").symlink_to("../../../../etc")
    (tmp_path / "loop").symlink_to("loop")
    root = str(tmp_path)
    assert follow(root, "/lib/a.so") == ("/usr/lib/a.so.1", True)
    assert follow(root, "/lib/./../lib/b.so") == ("/usr/lib/b.so", False)
    assert follow(root, "/out/passwd") == ("/etc/passwd", False)
    assert follow(root, "/loop") == ("", False)
    assert follow(root, "/") == ("/", True)
