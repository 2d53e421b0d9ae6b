"""A USB bus in a root of its own. Its nodes are in the machine's /dev too: the runtime makes them from there."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

NUMBERS = range(250, 1000)  # no machine has so many
VENDOR, PRODUCT = "1a86", "7523"
ZERO = os.makedev(1, 5)  # reads zeros: a device that can be tried anywhere


class Bus:
    def __init__(self, root: Path) -> None:
        self.root = root
        above = Path("/dev/bus/usb")
        self._made = [directory for directory in (above, above.parent) if not directory.exists()]
        above.mkdir(parents=True, exist_ok=True)
        self._number = next(str(number) for number in NUMBERS if _is_made(above / str(number)))  # others may test too
        self._dev = above / self._number
        self._port = root / f"sys/bus/usb/devices/{self._number}-1"
        self.nodes = f"{self._dev}/*"

    def plug(self, number: int, serial: str) -> str:
        """A device in the first port; its node."""
        files = {
            "devnum": str(number),
            "idVendor": VENDOR,
            "idProduct": PRODUCT,
            "serial": serial,
            "busnum": self._number,
        }
        self._port.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (self._port / name).write_text(f"{text}\n")
        for path in self._nodes(number):
            path.parent.mkdir(parents=True, exist_ok=True)
            os.mknod(path, stat.S_IFCHR | 0o666, ZERO)
        return str(self._nodes(number)[0])

    def unplug(self, number: int) -> None:
        for file in self._port.iterdir():
            file.unlink()
        self._port.rmdir()
        for node in self._nodes(number):
            node.unlink()

    def remove(self) -> None:
        for node in self._dev.glob("*"):
            node.unlink()
        self._dev.rmdir()
        with suppress(OSError):  # another test's bus is there
            for directory in self._made:
                directory.rmdir()

    def _nodes(self, number: int) -> tuple[Path, Path]:
        node = self._dev / f"{number:03}"
        return node, self.root / str(node)[1:]


def _is_made(directory: Path) -> bool:
    try:
        directory.mkdir()
    except FileExistsError:
        return False
    return True
