"""Finds the devices of a class of the kernel, such as tty, video4linux or macvtap, by their directory in sysfs."""

# Annotations are objects here, not text: text would be evaluated at each start (docs/decisions/0008-speed.md).
import re
from collections.abc import Iterable, Iterator
from typing import Annotated, ClassVar

import msgspec

from fairlead.backends.paths import sysfs
from fairlead.backends.paths.found import Found, Look, PathState, base
from fairlead.backends.paths.sysfs import Hardware
from fairlead.kit.decoding import Words, doc
from fairlead.model.health import Cause

_CLASS = re.compile(r"[\w.:-]+", re.ASCII)
_INTERFACE = re.compile(r"/[^/]+:[0-9]+\.([0-9]+)(/|$)")
_NET = re.compile(r"/net/([^/]+)/")


class Sysfs(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """The identity is that of the USB device or PCI function; what only the kernel made is known by its name."""

    fields: ClassVar = ("name", "node", "vendor", "product", "serial")

    class_: Annotated[Words, doc("Directories of /sys/class.", "tty")] = msgspec.field(name="class")
    node: Annotated[Words, doc("Globs of the kernel's names.", "ttyUSB*")] = Words()
    vendor: Annotated[Words, doc("Globs of the vendor of the USB device or PCI function.", "0403")] = Words()
    product: Annotated[Words, doc("Globs of its product.", "6001")] = Words()
    serial: Annotated[Words, doc("Globs of its serial number.", "FT*")] = Words()
    together: Annotated[bool, doc("All nodes of one USB device or PCI function are one device.")] = False

    def faults(self) -> Iterator[str]:
        if not self.class_:
            yield "class: give at least one, such as tty"
        yield from (f"class: {one!r} is not a name in /sys/class" for one in self.class_ if not _CLASS.fullmatch(one))

    def find(self, look: Look) -> Iterator[Found]:
        groups: dict[tuple[str, ...], list[tuple[str, str, str, Hardware | None]]] = {}
        for kind in self.class_:
            # By number, so that the second node of a device stays the second one.
            for name in sorted(look.names(f"/sys/class/{kind}"), key=lambda name: (len(name), name)):
                where = look.real(f"/sys/class/{kind}/{name}", link=True)
                path = sysfs.node(look, where) if where and sysfs.fits(name, self.node) else ""
                part = sysfs.hardware(look, where) if where and path else None
                if where and path and self._is_clear(look, part, path) and self._wants(part):
                    # Its own, or that of the hardware, or of one of the hardware's interfaces.
                    group = (part.where,) if part and self.together else (where,)
                    groups.setdefault(group, []).append((kind, where, path, part))
        siblings: dict[tuple[str, str], int] = {}
        for nodes in groups.values():
            kind, where, _, part = nodes[0]
            states = tuple(look.see(path) for _, _, path, _ in nodes)
            identity = self._identity(kind, where, part, siblings)
            yield _found(identity, kind, where, part, states)

    def health(self, look: Look, found: Found) -> Cause | None:  # noqa: ARG002 - a class says nothing of health
        return None

    def patterns(self) -> Iterable[str]:
        return ("/dev/null",)

    def _is_clear(self, look: Look, part: Hardware | None, path: str) -> bool:
        """Whether it can be told which hardware it is. The identity of a USB device is made of its ids."""
        asked = self.vendor or self.product or self.serial or (part and part.by != "address")
        if part is None or not asked or (part.vendor and part.product):
            return True
        if look.has(part.where, "uevent"):  # without it, the hardware is on its way out
            look.name(f"{part.where}/uevent", f"does not say vendor and product: {path} is left out")
        return False

    def _wants(self, part: Hardware | None) -> bool:
        if part is None:
            return not (self.vendor or self.product or self.serial)
        return (
            sysfs.fits(part.vendor, self.vendor)
            and sysfs.fits(part.product, self.product)
            and sysfs.fits(part.serial, self.serial)
        )

    def _identity(self, kind: str, where: str, part: Hardware | None, siblings: dict[tuple[str, str], int]) -> str:
        if part is None:
            net = _NET.search(where)  # the number of a tap node is another one each time
            return f"net-{net[1]}" if net else base(where)
        if self.together:
            return part.identity
        interface = _INTERFACE.search(where.removeprefix(part.where))
        identity = part.identity + (f"-if{interface[1].zfill(2)}" if interface else f"-{kind}")
        number = siblings[part.where, identity] = siblings.get((part.where, identity), 0) + 1
        return f"{identity}-{number}" if number > 1 else identity


def _found(identity: str, kind: str, where: str, part: Hardware | None, states: tuple[PathState, ...]) -> Found:
    part = part or Hardware(where, identity, "name", "")
    names = {"vendor": part.vendor, "product": part.product, "serial": part.serial}
    return Found(
        identity=identity,
        names={**names, "name": identity, "node": base(where)},
        states=states,
        index=base(where),
        position=part.position,
        where=part.where,
        key=states[0].real or states[0].path,
        vendor=part.vendor,
        model=part.model,
        attributes={**{key: text for key, text in names.items() if text}, "class": kind, "identity": part.by},
    )
