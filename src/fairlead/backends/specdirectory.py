"""The directory that container runtimes read CDI specs from: writes and removes our own files in it, and no others.

A runtime reads while we write, so a file is made beside its place and moved there; and it reads again after each
change, so that a file is left alone that has the right content.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from fairlead.inject import cdi
from fairlead.kit import files
from fairlead.model.errors import BackendError, InvalidName

MODE = 0o644  # runtimes may run as another user
SPEC_MAX_BYTES = 8 * 2**20  # of what may stand there; ours have kilobytes


class SpecDirectory:
    def __init__(self, directory: str) -> None:
        self._directory = Path(directory)

    def publish(self, specs: Iterable[cdi.Spec]) -> tuple[str, ...]:
        """Writes what differs from what is there. Answers with the names of the files that it wrote."""
        try:
            contents = {cdi.file_name(spec.kind): cdi.encode(spec) for spec in specs}
        except InvalidName as error:
            raise BackendError(str(error)) from error
        written = []
        for name, content in contents.items():
            path = self._directory / name
            try:
                if not _same(path, content):
                    files.replace(path, content, MODE)
                    written.append(name)
            except OSError as error:
                raise BackendError(
                    f"cannot write the CDI spec {path}: {error.strerror or error}. Without it containers that ask for "
                    f"CDI devices do not start. Make {self._directory} writable (mount the host's there), or use "
                    f"envvar instead of CDI"
                ) from error
        return tuple(written)

    def made(self, kind: str) -> bool:
        """Whether the spec that is there was made here. The CDI library writes all of a spec in one line."""
        try:
            content = files.read_bytes(self._directory / cdi.file_name(kind), SPEC_MAX_BYTES)
        except OSError:
            return False
        return content.startswith(cdi.BEGINNING) and cdi.read_kind(content) == kind

    def withdraw(self, kinds: Iterable[str]) -> tuple[str, ...]:
        """Removes the specs of these kinds, if they are what their names say."""
        removed = []
        for kind in kinds:
            path = self._directory / cdi.file_name(kind)
            # A directory that is not there, or not ours to change, has nothing that we could take away.
            with suppress(OSError):
                if cdi.read_kind(files.read_bytes(path, SPEC_MAX_BYTES)) == kind:
                    path.unlink()
                    removed.append(path.name)
        return tuple(removed)


def _same(path: Path, content: bytes) -> bool:
    """What is no such file, or too large for one, is another: it is replaced, and never read."""
    try:
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode) or stat.S_IMODE(found.st_mode) != MODE:
            return False
        return files.read_bytes(path, SPEC_MAX_BYTES) == content
    except OSError:
        return False
