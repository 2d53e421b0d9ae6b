"""The image without building it: its Containerfile, what is put together for it, and what is judged of it."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from deploy import archive, base, bill, image, parts, rootfs, verify

from fairlead._version import __version__
from fairlead.cli.names import PLACES

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "deploy/Containerfile").read_text()
GUIDE = (ROOT / "docs/guide/image.md").read_text()


# --- The Containerfile ------------------------------------------------------------------------------------------------


def test_it_names_no_host_but_that_of_the_usual_base():
    assert "://" not in TEXT
    assert re.findall(r"[\w-]+(?:\.[\w-]+)+/[\w/]+", re.sub("#.*", "", TEXT)) == ["docker.io/library/python"]


def test_its_version_is_the_packages():
    assert f"ARG VERSION={__version__}\n" in TEXT
    assert image.version() == __version__


def test_it_copies_what_exists_and_is_not_ignored():
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    sources = [word for line in re.findall(r"^COPY (?!--from)(.*) \S+$", TEXT, re.MULTILINE) for word in line.split()]
    assert sorted(sources) == sorted(kept)
    assert all(list(ROOT.glob(source)) for source in sources)


def test_commands_run_without_a_shell():
    """A base may have none, and the image has none."""
    lines = re.sub(r"\\\n\s*", "", TEXT).splitlines()
    runs = [re.sub(r"^RUN (--\S+\s*)*", "", line) for line in lines if line.startswith("RUN")]
    assert runs
    assert all(json.loads(run)[0] == "python3" for run in runs)


def test_what_is_installed_is_pinned():
    pins = (ROOT / "requirements/constraints.txt").read_text()
    assert TEXT.count('"-c", "requirements/constraints.txt"') == TEXT.count('"pip", "install"')
    assert re.search(r"^hatchling==", pins, re.MULTILINE)
    assert "[" not in re.findall(r'"([^"]*)"\]$', TEXT, re.MULTILINE)[1]  # no extra


def test_the_guide_has_every_name_and_the_user():
    told = dict(re.findall(r"^\| `(/\S+)` \| `fairlead ([\w -]+)` \|", GUIDE, re.MULTILINE))
    assert told == {place: " ".join(command) for place, command in PLACES.items()}
    assert f"runAsUser: {rootfs.USER}" in GUIDE
    assert f"{verify.MOST_BYTES / 1e6:.0f} MB" in GUIDE


# --- Putting it together ----------------------------------------------------------------------------------------------


def test_links_are_made_from_the_table(tmp_path: Path):
    rootfs.link_names(tmp_path, rootfs.places(ROOT / "src"))
    assert {f"/{path.relative_to(tmp_path)}" for path in tmp_path.rglob("*") if path.is_symlink()} == PLACES.keys()
    assert (tmp_path / "root/k8s-device-plugin").readlink() == Path("/usr/bin/fairlead")


def test_byte_code_is_not_checked_against_times(tmp_path: Path):
    module = tmp_path / "lib/one.py"
    module.parent.mkdir()
    module.write_text("WHERE = (lambda: 0).__code__.co_filename\n")
    subprocess.run([sys.executable, "-m", "py_compile", module], check=True)  # as an import would: with a time
    rootfs.compile_tree(tmp_path)
    (compiled,) = tmp_path.rglob("*.pyc")
    assert int.from_bytes(compiled.read_bytes()[4:8], "little") == 0b01  # by hash, unchecked
    assert b"/lib/one.py" in compiled.read_bytes()
    assert os.fsencode(tmp_path) not in compiled.read_bytes()


def test_a_module_that_does_not_compile_is_named(tmp_path: Path):
    (tmp_path / "one.py").write_text("def\n")
    with pytest.raises(parts.PartMissing, match="cannot be compiled"):
        rootfs.compile_tree(tmp_path)


def test_the_standard_library_goes_without_what_a_daemon_does_not_need():
    names = ["asyncio", "ssl.py", "test", "tkinter", "_sqlite3.cpython-311-x86_64-linux-gnu.so", "ensurepip"]
    assert parts._ignore("", names) == {"test", "tkinter", "_sqlite3.cpython-311-x86_64-linux-gnu.so", "ensurepip"}


def test_the_interpreters_libraries_are_found_by_its_own_loader():
    binary = Path(sys.executable).resolve()
    assert parts.loader_of(binary).is_file()
    assert any(path.name.startswith("libc.") for path in parts.needed(binary))


def test_a_library_that_the_base_lacks_is_named(tmp_path: Path):
    broken = tmp_path / "broken.so"
    content = Path(sys.executable).resolve().read_bytes()
    assert b"libc.so.6\0" in content
    broken.write_bytes(content.replace(b"libc.so.6\0", b"libx.so.6\0"))
    broken.chmod(0o755)
    with pytest.raises(parts.PartMissing, match=r"libx\.so\.6"):
        parts.needed(broken)


def test_what_is_no_executable_is_refused(tmp_path: Path):
    (tmp_path / "python3").write_text("#!/bin/sh\n")
    with pytest.raises(parts.PartMissing, match="no 64-bit ELF"):
        parts.loader_of(tmp_path / "python3")


def test_the_bill_names_debians_packages_and_each_other_file(tmp_path: Path):
    records, known, alone = tmp_path / "dpkg", tmp_path / "libz.so.1", tmp_path / "libown.so.1"
    (records / "info").mkdir(parents=True)
    (records / "info/zlib1g:amd64.list").write_text(f"/.\n{known}\n")
    (records / "status").write_text(
        "Package: zlib1g\nArchitecture: amd64\nVersion: 1:1.2+b1\n\nPackage: other\nVersion: 1\n"
    )
    known.write_text("z")
    alone.write_text("own")
    debian, file = bill.of_the_base([alone, known], records)
    assert debian["purl"] == "pkg:deb/debian/zlib1g@1%3A1.2%2Bb1?arch=amd64"
    assert debian["properties"] == [{"name": bill.PROPERTY, "value": str(known)}]
    assert (file["name"], file["hashes"][0]["content"]) == ("libown.so.1", hashlib.sha256(b"own").hexdigest())
    assert bill.owned([known, alone], records) == [records / "info/zlib1g:amd64.list"]


def test_the_bill_is_of_what_is_installed():
    import click  # a package with a distribution of its own

    made = bill.make(Path(click.__file__).parents[1], [])
    assert (made["bomFormat"], made["specVersion"]) == ("CycloneDX", "1.6")
    assert {"click", "CPython"} <= {part["name"] for part in made["components"]}
    assert made == bill.make(Path(click.__file__).parents[1], [])


# --- Judging ----------------------------------------------------------------------------------------------------------


def layer(**files: bytes) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text))
    return content.getvalue()


def write(path: Path, run: dict[str, Any], *layers: bytes, wrong: bool = False) -> Path:
    blobs: dict[str, bytes] = {}

    def keep(content: bytes) -> dict[str, str]:
        digest = hashlib.sha256(content).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = content
        return {"digest": f"sha256:{digest}"}

    diffs = [f"sha256:{hashlib.sha256(one).hexdigest()}" for one in layers]
    config = {"config": run, "rootfs": {"diff_ids": ["sha256:0"] if wrong else diffs}}
    manifest = {"config": keep(json.dumps(config).encode()), "layers": [keep(gzip.compress(one)) for one in layers]}
    blobs["index.json"] = json.dumps({"manifests": [keep(json.dumps(manifest).encode())]}).encode()
    path.write_bytes(layer(**blobs))
    return path


def test_an_archive_is_read_and_measured(tmp_path: Path):
    read = archive.read(write(tmp_path / "a.tar", {"User": "0:0"}, layer(a=b"12"), layer(b=b"345")))
    assert (read.unpacked_bytes, len(read.layers), read.run["User"]) == (5, 2, "0:0")
    assert read.packed_bytes < sum(map(len, read.layers))
    read.unpack(tmp_path / "root")
    assert (tmp_path / "root/b").read_bytes() == b"345"


def test_an_archive_gets_the_name_that_a_node_knows_it_by(tmp_path: Path):
    path = write(tmp_path / "a.tar", {}, layer(a=b"1"))
    archive.set_name(path, "localhost/fairlead:1.2")
    with tarfile.open(path) as tar:
        (manifest,) = json.loads(archive._content(tar, "index.json"))["manifests"]
    assert manifest["annotations"] == {archive.NAME_KEY: "localhost/fairlead:1.2", archive.TAG_KEY: "1.2"}
    assert archive.read(path).unpacked_bytes == 1


def test_an_archive_that_is_not_one_is_refused(tmp_path: Path):
    (tmp_path / "a.tar").write_bytes(layer(a=b"1"))
    with pytest.raises(archive.BadArchive, match=r"no index\.json"):
        archive.read(tmp_path / "a.tar")
    with pytest.raises(archive.BadArchive, match="not those that its config names"):
        archive.read(write(tmp_path / "b.tar", {}, layer(a=b"1"), wrong=True))


def test_what_is_wrong_with_a_config_is_said(tmp_path: Path):
    labels = {f"{verify.LABELS}{key}": "x" for key in ("version", "licenses", "base.name", "title", "revision")}
    run = {"User": "65532", "Entrypoint": ["sh"], "Cmd": ["run"], "Labels": labels}
    read = archive.read(write(tmp_path / "a.tar", run, layer(a=b"1")))
    faults = "\n".join(verify._of_the_config(read, "python:3.13-slim", "1.2"))
    for word in ("USER", "ENTRYPOINT", "CMD", "version is 'x', not '1.2'", "licenses", "base.name", "title", "source"):
        assert word in faults
    assert "revision" not in faults


def test_a_library_that_the_bill_leaves_out_is_said(tmp_path: Path):
    (tmp_path / rootfs.BILL).parent.mkdir(parents=True)
    (tmp_path / rootfs.BILL).write_text('{"components": [{"properties": [{"value": "/lib/liba.so.1"}]}]}')
    (tmp_path / "lib").mkdir()
    for name in ("liba.so.1", "libb.so.1"):
        (tmp_path / "lib" / name).touch()
    assert list(verify._of_the_bill(tmp_path)) == ["/lib/libb.so.1 is in the image, and not in its bill of materials"]


def test_a_machine_that_cannot_build_says_what_it_lacks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda _tool: None)
    assert image.main([]) == image.CANNOT
    assert capsys.readouterr().err == (
        "deploy.image: buildah, strip: not on this machine. Debian: apt-get install buildah binutils\n"
    )
    with pytest.raises(parts.PartMissing, match="binutils"):
        base._strip(Path())
    monkeypatch.setattr(os, "geteuid", lambda: 1)
    assert "needs root" in image.lacking()


def test_pip_of_the_build_is_told_of_the_index_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PIP_INDEX_URL", "http://index.invalid/simple")
    monkeypatch.setenv("PIP_CERT", parts.BUNDLES[0])
    text = image._pip_conf(tmp_path).read_text()
    assert "index-url = http://index.invalid/simple\n" in text
    assert f"cert = {parts.BUNDLES[0]}\n" in text
