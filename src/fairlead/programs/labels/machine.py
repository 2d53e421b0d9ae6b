"""What is read of a machine for its labels, beside what the driver says: its name, PCI, virtual GPUs. Blocking."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from fairlead.backends.nvidia.snapshot import Gpu, Platform, Snapshot
from fairlead.kit import files
from fairlead.programs.labels.catalogue import UNKNOWN, Vgpu

NVIDIA = 0x10DE
DISPLAY = 0x03
VFIO = "vfio-pci"
_MIB = 2**20
_CONFIG_BYTES = 256
_CAPABILITIES, _VENDOR_SPECIFIC = 0x34, 0x09
_SIGNATURE = b"VF"
_RECORDS = 5  # where they start in the capability
_VERSION_BYTES = 10
_IDS = ("usr/share/misc/pci.ids", "usr/share/hwdata/pci.ids")
_IDS_MAX_BYTES = 16 * 2**20  # the list has 1.5 MB
_MEM_64_PREFETCHABLE = 0x0010_000C  # flags of a resource: 64 bits, prefetchable


def read_machine(path: str) -> str:
    """The first thing in the file, or unknown."""
    try:
        return files.read_text(path, files.SMALL_BYTES, errors="replace").strip() if path else UNKNOWN
    except OSError:
        return UNKNOWN


def read_classes(gpus: tuple[Gpu, ...], root: str = "/") -> tuple[int | None, ...]:
    return tuple(_number(_devices(root) / gpu.bus_id, "class") for gpu in gpus)


def read_vgpus(root: str = "/") -> tuple[Vgpu, ...] | None:
    """Those that say who their host is. None if PCI cannot be read at all."""
    try:
        found = sorted(_devices(root).iterdir())
    except OSError:
        return None
    vgpus = []
    for device in found:
        if _number(device, "vendor", shift=0) != NVIDIA:
            continue
        try:
            config = files.read_bytes(device / "config", files.SMALL_BYTES)
        except OSError:
            continue  # without privilege only the first 64 bytes can be read, or none
        vgpu = parse_vgpu(config)
        if vgpu is not None:
            vgpus.append(vgpu)
    return tuple(vgpus)


def parse_vgpu(config: bytes) -> Vgpu | None:
    """From PCI configuration space: the vendor's capability with the mark of a virtual GPU, and its records."""
    if len(config) < _CONFIG_BYTES:
        return None
    for start in _chain(config):
        capability = config[start : start + config[start + 2]]
        if config[start] != _VENDOR_SPECIFIC or capability[3:5] != _SIGNATURE:
            continue
        for kind, body in _parts(capability):
            if kind == 0:
                return Vgpu(_text(body[:_VERSION_BYTES]), _text(body[_VERSION_BYTES : 2 * _VERSION_BYTES]))
        return Vgpu()
    return None


def vfio_snapshot(root: str = "/") -> Snapshot:
    """GPUs that are handed through to virtual machines: no driver speaks for them, only PCI."""
    gpus: list[Gpu] = []
    names = _pci_names(root)
    devices = sorted(_devices(root).iterdir()) if _devices(root).is_dir() else []
    for device in devices:
        kind = _number(device, "class")
        if _number(device, "vendor", shift=0) != NVIDIA or kind is None or kind >> 8 != DISPLAY:
            continue
        driver = device / "driver"
        if not driver.is_symlink() or driver.readlink().name != VFIO:
            continue
        number = _number(device, "device", shift=0) or 0
        name = names.get(number, f"Device {number:04x}")
        gpus.append(Gpu(device.name, len(gpus), -1, device.name, name, _memory_bytes(device)))
    return Snapshot(Platform.NVML, tuple(gpus), driver_version=UNKNOWN)


def _devices(root: str) -> Path:
    return Path(root) / "sys/bus/pci/devices"


def _number(device: Path, file: str, *, shift: int = 8) -> int | None:
    """A hexadecimal number; the class without its programming interface."""
    try:
        return int(files.read_text(device / file, files.SMALL_BYTES).strip(), 16) >> shift
    except (OSError, ValueError):
        return None


def _memory_bytes(device: Path) -> int:
    """The largest window of memory that the GPU shows."""
    try:
        lines = files.read_text(device / "resource", files.SMALL_BYTES).splitlines()
    except OSError:
        return 0
    sizes = [0]
    for line in lines:
        fields = line.split()
        try:
            start, end, flags = (int(field, 16) for field in fields)
        except ValueError:
            continue
        if end > start and flags & _MEM_64_PREFETCHABLE == _MEM_64_PREFETCHABLE:
            sizes.append(end - start + 1)
    return max(sizes) // _MIB * _MIB


def _pci_names(root: str) -> dict[int, str]:
    """NVIDIA's part of the list of PCI ids, if the machine has it."""
    for path in _IDS:
        file = Path(root) / path
        with suppress(OSError):
            return dict(_parse_ids(files.read_text(file, _IDS_MAX_BYTES, errors="replace")))
    return {}


def _parse_ids(text: str) -> Iterator[tuple[int, str]]:
    ours = False
    for line in text.splitlines():
        if line[:1].strip() and not line.startswith("#"):
            ours = line.lower().startswith(f"{NVIDIA:04x} ")
        elif ours and line.startswith("\t") and not line.startswith("\t\t"):
            number, _, name = line.strip().partition("  ")
            # The list has the chip and, in brackets, what people call it.
            yield int(number, 16), name.partition("[")[2].rstrip("]") or name


def _chain(config: bytes) -> Iterator[int]:
    """Where capabilities start. A chain that bites its tail ends there."""
    start, seen = config[_CAPABILITIES], set[int]()
    while start and start + 2 < _CONFIG_BYTES and start not in seen:
        seen.add(start)
        yield start
        start = config[start + 1]


def _parts(capability: bytes) -> Iterator[tuple[int, bytes]]:
    at = _RECORDS
    while at + 2 <= len(capability):
        kind, length = capability[at], capability[at + 1]
        if length < 2:
            return
        yield kind, capability[at + 2 : at + length]
        at += length


def _text(raw: bytes) -> str:
    return raw.split(b"\0")[0].decode("ascii", errors="replace")
