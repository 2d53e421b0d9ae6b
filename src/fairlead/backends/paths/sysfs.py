"""What sysfs says of a device: its nodes, the hardware that it is part of, the identity of that hardware.

Shared by the finders that look there. A file that is missing, half-written or garbage gives nothing; it never raises.
The finder names it where that costs a device.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

from msgspec import Struct

from fairlead.backends.paths.found import PCI, Look, base
from fairlead.kit.text import printable

DEPTH_MAX, DIRECTORIES_MAX = 6, 256  # below one device
_NODE = re.compile(r"(?!.*\.\.)[\w.:+!@,=-]{1,64}(/[\w.:+!@,=-]{1,64}){0,5}", re.ASCII)
_PORT = re.compile(r"[0-9]+-[0-9]+(\.[0-9]+)*")  # of a USB device: "1-4.2"
_USB_IDS = re.compile(r"([0-9a-f]{1,4})/([0-9a-f]{1,4})/")  # PRODUCT=403/6001/600 in its uevent
_USB_FILES = ("idVendor", "idProduct")
_HEX4 = re.compile(r"[0-9a-f]{4}")
_PCI_ID = re.compile(r"([0-9a-f]{4}):([0-9a-f]{4})")  # PCI_ID=8086:0B30
_SERIAL = re.compile(r"[^A-Za-z0-9._-]+")
NO_SERIAL = re.compile(r"[0 _.-]*|(?i:none|n/?a|unknown|default string|to be filled by o\.e\.m\.?)")
# Directories below a device that hold no device of its own.
_DULL = frozenset({"power", "msi_irqs", "statistics", "queues", "link", "of_node", "firmware_node", "aer_stats"})


class Hardware(Struct, frozen=True):
    """The device on a bus that something in sysfs is part of."""

    where: str  # its directory
    identity: str  # the same wherever it is plugged in; its position, where it has no serial number
    by: str  # what the identity is: serial, port, address
    position: str  # where it is plugged in
    vendor: str = ""
    product: str = ""
    serial: str = ""
    model: str = ""


def properties(look: Look, where: str) -> dict[str, str]:
    """What the kernel says of a device in its `uevent`."""
    lines = (line.partition("=") for line in look.read(f"{where}/uevent").splitlines())
    return {key: value for key, _, value in lines}


def node(look: Look, where: str, below: str = "") -> str:
    """The path of a device's node, `below` a directory of /dev if the kernel does not say; empty if it has none."""
    said = properties(look, where)
    name = said.get("DEVNAME") or below + base(where).replace("!", "/")
    if "MAJOR" not in said and not look.has(where, "dev"):
        return ""
    if not _NODE.fullmatch(name):
        look.name(
            f"{where}/uevent", f"says DEVNAME={printable(name)[:40]}, which is no path below /dev: it is left out"
        )
        return ""
    return f"/dev/{name}"


def nodes_below(look: Look, where: str) -> Iterator[str]:
    """The nodes of all that a driver made of a device, other devices on a bus below it left out."""
    ways, left = [(where, 0)], DIRECTORIES_MAX
    while ways and left:
        left -= 1
        at, depth = ways.pop()
        if depth and (path := node(look, at)):
            yield path
        names = look.root.directories_at(at, look.failed) if depth < DEPTH_MAX else []
        inner = [name for name in reversed(names) if name not in _DULL and not PCI.fullmatch(name)]
        ways += [(f"{at}/{name}", depth + 1) for name in inner]


def pci_ids(said: Mapping[str, str]) -> tuple[str, str]:
    """Vendor and device of a PCI function, of its properties; empty where they do not say."""
    ids = _PCI_ID.fullmatch(said.get("PCI_ID", "").lower())
    return (ids[1], ids[2]) if ids else ("", "")


def fits(name: str, globs: tuple[str, ...]) -> bool:
    """Whether a name is one of those that people wrote; any, where they wrote none."""
    return not globs or any(fnmatchcase(name, glob) for glob in globs)


def hardware(look: Look, where: str) -> Hardware | None:
    """The nearest USB device or PCI function above; None for what only the kernel made."""
    at = where
    while at.startswith("/sys/devices/"):
        at, _, name = at.rpartition("/")
        if PCI.fullmatch(name):
            return _pci(look, f"{at}/{name}")
        if _PORT.fullmatch(name):
            return _usb(look, f"{at}/{name}")
    return None


def _usb(look: Look, where: str) -> Hardware:
    ids = _USB_IDS.match(properties(look, where).get("PRODUCT", ""))
    vendor, product = (ids[1].zfill(4), ids[2].zfill(4)) if ids else (_usb_id(look, where, file) for file in _USB_FILES)
    serial = look.read(f"{where}/serial")
    serial = "" if NO_SERIAL.fullmatch(serial) else _SERIAL.sub("_", serial)[:64]
    port = base(where)
    identity = f"usb-{vendor}-{product}-{serial or f'at-{port}'}"
    model = " ".join(look.read(f"{where}/product").split())[:128]
    return Hardware(where, identity, "serial" if serial else "port", f"USB port {port}", vendor, product, serial, model)


def _usb_id(look: Look, where: str, file: str) -> str:
    found = _HEX4.fullmatch(look.read(f"{where}/{file}").lower())
    return found[0] if found else ""


def _pci(look: Look, where: str) -> Hardware:
    vendor, device = pci_ids(properties(look, where))
    return Hardware(where, base(where), "address", f"PCI address {base(where)}", vendor, device)
