"""USB devices by vendor, product and serial number, as sysfs lists them. The node is /dev/bus/usb/BBB/DDD."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Annotated

import msgspec

from fairlead.backends.paths.found import Found, Look
from fairlead.backends.paths.sysfs import NO_SERIAL
from fairlead.kit.decoding import doc
from fairlead.kit.text import printable
from fairlead.model.health import Cause

DIRECTORY = "/sys/bus/usb/devices"
NODES = "/dev/bus/usb/*/*"
DEVICES_MAX = 4096
_PORT = re.compile(r"(?:usb\d+|\d+-[\d.]+)", re.ASCII)  # an interface has a colon in its name
_HEX = re.compile(r"[0-9A-Fa-f]{1,4}")
_NUMBER = re.compile(r"\d{1,3}", re.ASCII)
_FILES = {"idVendor": _HEX, "idProduct": _HEX, "busnum": _NUMBER, "devnum": _NUMBER}


class UsbDevice(msgspec.Struct, frozen=True):
    port: str  # where it is plugged in: 3-4.1
    vendor: int
    product: int
    serial: str  # as it says; empty: it says none
    node: str


class UsbSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which USB devices: in hexadecimal, as lsusb shows them. Without a serial number: any."""

    vendor: Annotated[str, doc("Up to four hexadecimal digits, as lsusb shows them.", "1a86")]
    product: Annotated[str, doc("The same.", "7523")]
    serial: Annotated[str, doc("The serial number; left out, any.")] = ""

    def faults(self) -> Iterator[str]:
        for key, text in (("vendor", self.vendor), ("product", self.product)):
            if not _HEX.fullmatch(text):
                yield f'{key}: {text!r:.40} is not one to four hexadecimal digits, such as "1a86"'

    def takes(self, device: UsbDevice) -> bool:
        wanted = int(self.vendor, 16), int(self.product, 16)
        return (device.vendor, device.product) == wanted and self.serial.strip() in {"", device.serial}


class Usb(UsbSpec, frozen=True, forbid_unknown_fields=True):
    """A finder: each match is a device. The serial number is its identity; without one, the port that it is in."""

    fields = ("name", "vendor", "product", "serial", "port")

    def find(self, look: Look) -> Iterator[Found]:
        for device in filter(self.takes, list_usb(look)):
            kind = f"{device.vendor:04x}-{device.product:04x}"
            serial = "" if NO_SERIAL.fullmatch(device.serial) else device.serial  # 0000: every device of a kind has it
            name = f"usb-{kind}-{serial or device.port}"
            yield Found(
                identity=f"usb {kind} {serial}" if serial else f"usb {kind} at {device.port}",
                names={
                    "name": name,
                    "vendor": f"{device.vendor:04x}",
                    "product": f"{device.product:04x}",
                    "serial": serial,
                    "port": device.port,
                },
                states=(look.see(device.node),),
                index=device.port,
                position=device.port,
                attributes={"port": device.port, "serial": serial},
            )

    def health(self, look: Look, found: Found) -> Cause | None:  # noqa: ARG002 - the node says all
        return None

    def patterns(self) -> Iterable[str]:
        return (NODES,)


def list_usb(look: Look) -> list[UsbDevice]:
    """All that is plugged in, by node. What lacks a file comes or goes just now; what holds garbage is named."""
    names = [name for name in look.names(DIRECTORY) if _PORT.fullmatch(name)]
    found = []
    for name in names[:DEVICES_MAX]:
        texts = {file: look.read(f"{DIRECTORY}/{name}/{file}") for file in (*_FILES, "serial")}
        wrong = [file for file, fits in _FILES.items() if not fits.fullmatch(texts[file])]
        if not wrong:
            node = f"/dev/bus/usb/{texts['busnum']:0>3}/{texts['devnum']:0>3}"
            vendor, product = (int(texts[file], 16) for file in ("idVendor", "idProduct"))
            found.append(UsbDevice(name, vendor, product, texts["serial"], node))
        elif all(texts[file] for file in _FILES):
            file = wrong[0]
            text = f"{DIRECTORY}/{name}/{file} holds {printable(texts[file])[:40]}, which is no number of USB"
            look.problems.append(f"{text}: the device is left out")
    return sorted(found, key=lambda device: device.node)
