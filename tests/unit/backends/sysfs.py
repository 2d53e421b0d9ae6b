"""A made-up sysfs below a temporary root: PCI functions, USB devices and what drivers make of them."""

from __future__ import annotations

from itertools import count

from tests.unit.backends.host import Host

_numbers = count(1)
BRIDGE = "/sys/devices/pci0000:00"


def function(
    host: Host,
    address: str,
    ids: str = "8086:0B30",
    *,
    kind: str = "120000",
    driver: str = "",
    numa: str = "0",
) -> str:
    """A PCI function; its directory."""
    where = f"{BRIDGE}/{address}"
    lines = [f"DRIVER={driver}"] if driver else []
    lines += [f"PCI_CLASS={kind.lstrip('0').upper()}", f"PCI_ID={ids}", f"PCI_SLOT_NAME={address}"]
    host.put(f"{where}/uevent", "\n".join(lines) + "\n")
    host.put(f"{where}/numa_node", f"{numa}\n")
    host.link(f"/sys/bus/pci/devices/{address}", f"../../../devices/pci0000:00/{address}")
    return where


def usb(host: Host, port: str, ids: str = "0403:6001", *, serial: str | None = "A1", product: str = "UART") -> str:
    """A USB device behind a controller on NUMA node 1; its directory."""
    controller = f"{BRIDGE}/0000:00:14.0"
    if not (host.root / controller[1:]).exists():
        function(host, "0000:00:14.0", "8086:A36D", kind="0c0330", driver="xhci_hcd", numa="1")
    where = f"{controller}/usb1/{port}"
    vendor, _, model = ids.partition(":")
    host.put(f"{where}/uevent", f"DEVTYPE=usb_device\nPRODUCT={vendor.lstrip('0')}/{model.lstrip('0')}/600\n")
    for file, text in (("idVendor", vendor), ("idProduct", model), ("product", product), ("serial", serial)):
        if text is not None:
            host.put(f"{where}/{file}", f"{text}\n")
    return where


def node(host: Host, where: str, kind: str, path: str, **files: str) -> str:
    """A device of a class, and its node below /dev. `where` is the directory of what it is made of."""
    number = f"240:{next(_numbers)}"
    name = path.rpartition("/")[2]
    at = f"{where}/{kind}/{name}"
    host.put(f"/dev/{path}", f"char {number}")
    for file, text in {"dev": number, "uevent": f"MAJOR=240\nDEVNAME={path}", **files}.items():
        host.put(f"{at}/{file}", f"{text}\n")
    host.link(f"{at}/device", "../..")
    host.link(f"/sys/class/{kind}/{name}", f"../../..{at}")
    host.link(f"/sys/dev/char/{number}", f"../../..{at}")
    return at


def unplug(host: Host, *paths: str) -> None:
    """Takes nodes away, with their entries in the class. A driver does the same."""
    for path in paths:
        host.drop(f"/dev/{path}")
        for kind in (host.root / "sys/class").iterdir():
            (kind / path.rpartition("/")[2]).unlink(missing_ok=True)


def adapter(host: Host, where: str, name: str, number: int, ports: dict[str, str], *, guid: str = "") -> str:
    """An RDMA adapter on a PCI function or anything else, with the nodes of its ports."""
    at = f"{where}/infiniband/{name}"
    host.put(f"{at}/node_guid", f"{guid}\n")
    host.put(f"{at}/hca_type", "MT4123\n")
    host.link(f"/sys/class/infiniband/{name}", f"../../..{at}")
    node(host, where, "infiniband_verbs", f"infiniband/uverbs{number}", ibdev=name)
    for port, state in ports.items():
        host.put(f"{at}/ports/{port}/state", f"{state}\n")
        host.put(f"{at}/ports/{port}/link_layer", "InfiniBand\n")
        for kind in ("umad", "issm"):
            path = f"infiniband/{kind}{number}{'' if port == '1' else port}"
            node(host, where, "infiniband_mad", path, ibdev=name, port=port)
    if not (host.root / "dev/infiniband/rdma_cm").exists():
        node(host, "/sys/devices/virtual", "misc", "infiniband/rdma_cm")
    return at
