"""The first code of `fairlead.pyz`: unpacks the packages into a private directory once, and runs the command there.

Compiled modules cannot be loaded out of an archive. The packages lie in `<cache>/<digest>`, where <digest> is that of
their content: another version has a directory of its own. The cache and all in it belong to the user that runs this,
and no other user can write there, or it is not used. Owns that directory; knows of Fairlead only its entry point. Uses
the standard library, and little of it: this is part of every start.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator

if sys.platform != "win32":
    import fcntl

VARIABLE = "FAIRLEAD_ONEFILE_CACHE"
PAYLOAD = "payload.zip"
MANIFEST = "manifest"
PLACES = ("/var/cache/fairlead", "/run/fairlead-cache")  # for root: the first that can be used
PRIVATE = 0o700


class Unusable(Exception):
    """A place that must not, or cannot, hold the packages. The text says which one and why."""


class Manifest:
    """What the archive holds: the digest of all, for which Python it was built, and the size of each file."""

    def __init__(self, text: str) -> None:
        head, *lines = text.splitlines()
        self.digest, self.python, self.machine = head.split(" ")
        self.sizes = {path: int(size) for size, path in (line.split(" ", 1) for line in lines)}


def places(environ: dict[str, str], uid: int) -> list[str]:
    """Where the cache may be, the best first."""
    if environ.get(VARIABLE):
        return [environ[VARIABLE]]
    if uid == 0:
        return list(PLACES)
    bases = [environ.get("XDG_CACHE_HOME", ""), f"{environ['HOME']}/.cache" if environ.get("HOME") else ""]
    bases.append(environ.get("XDG_RUNTIME_DIR", ""))
    return [f"{base}/fairlead" for base in bases if base.startswith("/")]


def open_cache(place: str, uid: int) -> None:
    """Makes the directory if need be, and refuses one that another user could have filled."""
    if not place.startswith("/"):
        raise Unusable(f"{place}: it is not an absolute path")
    try:
        os.makedirs(os.path.dirname(place), 0o755, exist_ok=True)
        os.mkdir(place, PRIVATE)
    except FileExistsError:
        pass
    except OSError as error:
        raise Unusable(f"{place}: {error.strerror}") from None
    check_private(place, uid)
    # A directory above that another user may write in could be renamed between two looks; sticky ones, as /tmp, cannot.
    above = os.path.dirname(os.path.realpath(place))
    while True:
        found = os.stat(above)
        writable = stat.S_IMODE(found.st_mode) & 0o022 and not found.st_mode & stat.S_ISVTX
        if found.st_uid not in (0, uid) or writable:
            raise Unusable(f"{place}: {above} above it can be changed by another user")
        if above == os.path.dirname(above):
            break
        above = os.path.dirname(above)
    if os.statvfs(place).f_flag & os.ST_NOEXEC:
        raise Unusable(f"{place}: the file system is mounted noexec, and compiled modules cannot be loaded from it")
    if os.statvfs(place).f_flag & os.ST_RDONLY or not os.access(place, os.W_OK | os.X_OK):
        raise Unusable(f"{place}: it cannot be written")


def check_private(path: str, uid: int) -> None:
    """A directory, no link, of this user, and closed to all others."""
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode):
        raise Unusable(f"{path}: it is no directory")
    if found.st_uid != uid:
        raise Unusable(f"{path}: it belongs to the user {found.st_uid}, not to {uid}")
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise Unusable(f"{path}: other users may enter it (mode {stat.S_IMODE(found.st_mode):04o}). Use mode 0700")


def is_whole(tree: str, manifest: Manifest, uid: int) -> bool:
    """Whether all files are there with their sizes: programs that clean directories take single files away."""
    try:
        check_private(tree, uid)
        for path, size in manifest.sizes.items():
            found = os.lstat(f"{tree}/{path}")
            if found.st_size != size or found.st_uid != uid or not stat.S_ISREG(found.st_mode):
                return False
    except (OSError, Unusable):
        return False
    return True


def lock(path: str, how: int) -> int | None:
    """A descriptor that holds the lock for as long as it is open. None: another process has it."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, how)
            if os.stat(path).st_ino == os.fstat(fd).st_ino:  # else it was removed while we waited
                return fd
        except BlockingIOError:
            os.close(fd)
            return None
        except FileNotFoundError:
            pass
        os.close(fd)


def unpack(archive: str, cache: str, manifest: Manifest, uid: int) -> str:
    """The directory of the packages. Held with a shared lock until the process ends, so that no upgrade removes it."""
    tree = f"{cache}/{manifest.digest}"
    lock(f"{tree}.lock", fcntl.LOCK_SH)  # never closed: it ends with the process
    if is_whole(tree, manifest, uid):
        return tree
    turn = lock(f"{cache}/unpack.lock", fcntl.LOCK_EX)
    assert turn is not None
    try:
        if not is_whole(tree, manifest, uid):
            fill(archive, cache, tree, manifest)
            clear(cache, manifest.digest)
    finally:
        os.close(turn)
    if not is_whole(tree, manifest, uid):
        raise Unusable(f"{tree}: it is not what was unpacked there")
    return tree


def fill(archive: str, cache: str, tree: str, manifest: Manifest) -> None:
    """All or nothing: beside its place first. What is damaged there makes way; its users find the same files."""
    import hashlib
    import io
    import shutil
    import zipfile

    fresh, old = f"{cache}/new.{os.getpid()}", f"{cache}/old.{os.getpid()}"
    for left in (fresh, old):
        shutil.rmtree(left, ignore_errors=True)
    os.mkdir(fresh, PRIVATE)
    try:
        with zipfile.ZipFile(archive) as outer, zipfile.ZipFile(io.BytesIO(outer.read(PAYLOAD))) as payload:
            digest = hashlib.sha256()
            for entry in payload.infolist():
                content = payload.read(entry)
                if manifest.sizes.get(entry.filename) != len(content):
                    raise Unusable(f"{archive}: {entry.filename} in it is not what the manifest says: it is damaged")
                digest.update(f"{entry.filename}\0{len(content)}\0".encode() + content)
                path = f"{fresh}/{entry.filename}"
                os.makedirs(os.path.dirname(path), PRIVATE, exist_ok=True)
                with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as file:
                    file.write(content)
        if digest.hexdigest() != manifest.digest:
            raise Unusable(f"{archive}: its content is not what it was built with: it is damaged")
        if os.path.lexists(tree):
            os.rename(tree, old)
        os.rename(fresh, tree)
    finally:
        for left in (fresh, old):
            shutil.rmtree(left, ignore_errors=True)


def clear(cache: str, digest: str) -> None:
    """Removes the packages of other versions that no process uses."""
    import shutil

    for name in os.listdir(cache):
        other, suffix = os.path.splitext(name)
        if suffix != ".lock" or len(other) != len(digest) or other == digest:
            continue
        held = lock(f"{cache}/{name}", fcntl.LOCK_EX | fcntl.LOCK_NB)
        if held is not None:
            shutil.rmtree(f"{cache}/{other}", ignore_errors=True)
            os.unlink(f"{cache}/{name}")
            os.close(held)


def complaints(manifest: Manifest) -> Iterator[str]:
    python, machine = sys.implementation.cache_tag or "", os.uname().machine
    if (python, machine) != (manifest.python, manifest.machine):
        yield f"it was built for {manifest.python} on {manifest.machine}, and this is {python} on {machine}."
        yield "Start it with that Python, or build one with this: python -m deploy.onefile"


def find_packages(archive: str, manifest: Manifest, environ: dict[str, str], uid: int) -> str:
    refused = []
    for place in places(environ, uid):
        try:
            open_cache(place, uid)
            return unpack(archive, place, manifest, uid)
        except Unusable as why:
            refused.append(str(why))
        except OSError as error:
            refused.append(f"{place}: {error.strerror or error}")
    refused = refused or ["there is no HOME"]
    raise Unusable(f"no place to unpack to: {'; '.join(refused)}. Name a private directory in {VARIABLE}")


def run(archive: str, manifest_text: str) -> None:
    name, manifest, packages = os.path.basename(archive), Manifest(manifest_text), ""
    wrong = list(complaints(manifest))
    if not wrong:
        try:
            packages = find_packages(archive, manifest, dict(os.environ), os.geteuid())
        except Unusable as why:
            wrong = [str(why)]
    if wrong:
        for line in wrong:
            sys.stderr.write(f"{name}: {line}\n")
        sys.exit(3)  # the host refuses
    # In the place of the archive: what is installed on this host beside it does not count.
    sys.path[0] = packages
    from fairlead.cli import main

    main()
