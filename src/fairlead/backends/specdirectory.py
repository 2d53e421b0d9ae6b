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
            content = (self._directory / cdi.file_name(kind)).read_bytes()
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
                if cdi.read_kind(path.read_bytes()) == kind:
                    path.unlink()
                    removed.append(path.name)
        return tuple(removed)


def _same(path: Path, content: bytes) -> bool:
    try:
        return stat.S_IMODE(path.stat().st_mode) == MODE and path.read_bytes() == content
    except FileNotFoundError:
        return False
