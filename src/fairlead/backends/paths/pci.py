"""Finds PCI functions by vendor, device, class, driver or address. A function's driver decides which nodes it has."""

# Annotations are objects here, not text: text would be evaluated at each start (docs/decisions/0008-speed.md).
import re
from collections.abc import Iterable, Iterator
from typing import Annotated, ClassVar

import msgspec

from fairlead.backends.paths import sysfs
from fairlead.backends.paths.found import Found, Look, base
from fairlead.kit.decoding import Words, doc
from fairlead.model.health import Cause, CauseKind

FUNCTIONS = "/sys/bus/pci/devices"
VFIO = "/dev/vfio/vfio"
_ID = re.compile(r"[0-9a-f]{4}")
_CLASS = re.compile(r"([0-9a-f]{2}){1,3}")
_KIND = re.compile(r"[0-9a-f]{1,6}")  # PCI_CLASS=30200: the kernel leaves out zeros before it


class Pci(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """The identity is the PCI address: the same after a reboot and a change of driver."""

    fields: ClassVar = ("name", "vendor", "device", "driver")

    vendor: Annotated[Words, doc("Four hexadecimal digits, as `lspci -nn` shows them.", "8086")] = Words()
    device: Annotated[Words, doc("The same.", ["0b30", "0b31"])] = Words()
    class_: Annotated[Words, doc("The first two, four or six digits of the class.", "0302")] = msgspec.field(
        default=Words(), name="class"
    )
    driver: Annotated[Words, doc("Globs of the driver's name.", "vfio-pci")] = Words()
    address: Annotated[Words, doc("Globs of the PCI address.", "0000:3b:*")] = Words()
    nodes: Annotated[
        Words | None, doc("Globs of its nodes' names; left out, every node. An empty list: it needs none.", "renderD*")
    ] = None
    board: Annotated[bool, doc("The functions of one board are one device.")] = False

    def faults(self) -> Iterator[str]:
        for key, ids in (("vendor", self.vendor), ("device", self.device)):
            yield from (
                f"{key}: {one!r} is not four hexadecimal digits, such as '8086'"
                for one in ids
                if not _ID.fullmatch(one)
            )
        yield from (
            f"class: {one!r} is not two, four or six hexadecimal digits, such as '0302'"
            for one in self.class_
            if not _CLASS.fullmatch(one)
        )
        if not (self.vendor or self.device or self.class_ or self.driver or self.address):
            yield "vendor: give at least one of vendor, device, class, driver and address"

    def find(self, look: Look) -> Iterator[Found]:
        boards: dict[str, list[Found]] = {}
        for found in self._functions(look):
            boards.setdefault(found.identity.rpartition(".")[0] if self.board else found.identity, []).append(found)
        for identity, functions in boards.items():
            first = functions[0]
            states = tuple(dict.fromkeys(state for found in functions for state in found.states))
            # The functions of an IOMMU group cannot be given to two containers: its node is what counts.
            key = next((state.path for state in states if state.path.startswith("/dev/vfio/")), f"pci {identity}")
            names = {**first.names, "name": identity}
            yield msgspec.structs.replace(first, identity=identity, names=names, states=states, index=identity, key=key)

    def health(self, look: Look, found: Found) -> Cause | None:
        if found.states or self.nodes == ():
            return None
        driver = sysfs.properties(look, found.where).get("DRIVER")
        why = f"its driver {driver} made none" if driver else "no driver is bound to it"
        return Cause("no-node", CauseKind.TRANSIENT, f"{found.identity} has no device node: {why}")

    def patterns(self) -> Iterable[str]:
        return () if self.nodes == () else ("/dev/*", "/dev/vfio/*", "/dev/dri/*")

    def _functions(self, look: Look) -> Iterator[Found]:
        for address in look.names(FUNCTIONS):
            where = look.real(f"{FUNCTIONS}/{address}")
            if where is None or not sysfs.fits(address, self.address):
                continue
            said = sysfs.properties(look, f"{FUNCTIONS}/{address}")
            (vendor, device), kind = sysfs.pci_ids(said), said.get("PCI_CLASS", "").lower()
            if not vendor or (self.class_ and not _KIND.fullmatch(kind)):
                if look.has(where, "uevent"):  # without it, the function is on its way out
                    why = "does not say what the PCI function is, by PCI_ID and PCI_CLASS: it is left out"
                    look.name(f"{FUNCTIONS}/{address}/uevent", why)
                continue
            driver, kind = said.get("DRIVER", ""), kind.zfill(6)
            if (
                (self.vendor and vendor not in self.vendor)
                or (self.device and device not in self.device)
                or (self.class_ and not kind.startswith(self.class_))
                or not sysfs.fits(driver, self.driver)
            ):
                continue
            yield Found(
                identity=address,
                names={"name": address, "vendor": vendor, "device": device, "driver": driver},
                states=tuple(look.see(path) for path in self._nodes(look, where, driver)),
                where=where,
                vendor=vendor,
                model=f"{vendor}:{device}",
                attributes={"bus": "pci", "class": kind, "driver": driver},
            )

    def _nodes(self, look: Look, where: str, driver: str) -> Iterator[str]:
        if self.nodes == ():
            return
        if "vfio" in driver and (group := base(look.real(f"{where}/iommu_group") or "")):
            # Without an IOMMU the node has another name.
            bare = f"/dev/vfio/noiommu-{group}"
            yield bare if look.real(bare) is not None else f"/dev/vfio/{group}"
            yield VFIO
            return
        for path in sysfs.nodes_below(look, where):
            if sysfs.fits(base(path), self.nodes or ()):
                yield path
