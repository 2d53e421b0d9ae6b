"""The files that a machine with this driver has, below a directory: /dev, /proc/driver, /sys/bus/pci, the driver's own.

Owns their names, numbers and modes. Must not know who reads them. Device nodes need root; without it they are plain
files, and `make` says so.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from pathlib import Path

import msgspec

from tests.nvml.driver import Driver
from tests.nvml.library import compiled, compiled_empty
from tests.nvml.values import Gpu

VIDEO_GROUP, RENDER_GROUP = 44, 105

# Name, major, first minor, mode, group. Those above 234 are given out at run time; any free ones will do.
_NODES: tuple[tuple[str, int, int, int, int], ...] = (
    (r"nvidiactl", 195, 255, 0o666, 0),
    (r"nvidia-modeset", 195, 254, 0o666, 0),
    (r"nvidia(\d+)", 195, 0, 0o666, 0),
    (r"nvidia-uvm", 511, 0, 0o666, 0),
    (r"nvidia-uvm-tools", 511, 1, 0o666, 0),
    (r"nvidia-caps/nvidia-cap(\d+)", 510, 0, 0o440, 0),
    (r"nvidia-caps-imex-channels/channel(\d+)", 509, 0, 0o666, 0),
    (r"nvidia-fs(\d+)", 235, 0, 0o666, 0),
    (r"gdrdrv", 236, 0, 0o666, 0),
    (r"infiniband/uverbs(\d+)", 231, 192, 0o666, 0),
    (r"infiniband/rdma_cm", 10, 58, 0o660, 0),
    (r"dri/card(\d+)", 226, 0, 0o660, VIDEO_GROUP),
    (r"dri/renderD(\d+)", 226, 0, 0o660, RENDER_GROUP),
    (r"dxg", 10, 120, 0o666, 0),
)


class Text(msgspec.Struct, frozen=True):
    content: str | bytes
    mode: int = 0o644


class Copy(msgspec.Struct, frozen=True):
    source: Path


class Symlink(msgspec.Struct, frozen=True):
    target: str


class Folder(msgspec.Struct, frozen=True):
    pass


class DeviceNode(msgspec.Struct, frozen=True):
    major: int
    minor: int
    mode: int
    group: int = 0


Entry = Text | Copy | Symlink | Folder | DeviceNode
Plan = dict[str, Entry]  # by absolute path


def plan(driver: Driver) -> Plan:
    entries: Plan = {
        **_proc(driver),
        **_nodes(driver, "/dev"),
        **_libraries(driver),
        "/sys/class/dmi/id/product_name": Text(f"{driver.machine}\n"),
    }
    if driver.sysfs:
        for gpu in driver.gpus:
            entries |= _pci(gpu)
    if driver.driver_root and driver.driver_root_has_dev:
        nodes = _nodes(driver, f"{driver.driver_root}/dev")
        entries |= {
            path: node for path, node in nodes.items() if driver.driver_root_has_caps or "/nvidia-caps/" not in path
        }
    return entries | {path: Text(content) for path, content in driver.files.items()}


def make(root: Path, old: Plan, new: Plan) -> bool:
    """Brings the files below root from one plan to the next. True where device nodes are real."""
    for path in sorted(old.keys() - new.keys(), reverse=True):
        _remove(root / path.lstrip("/"), root)
    real = True
    for path, entry in new.items():
        if old.get(path) != entry:
            real &= _put(root / path.lstrip("/"), entry)
    return real


def _proc(driver: Driver) -> Plan:
    found: Plan = {
        "/proc/driver/nvidia/version": Text(
            f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {driver.driver_version}\n"
        ),
        "/sys/module/nvidia/version": Text(f"{driver.driver_version}\n"),
    }
    for gpu in driver.gpus:
        facts = {"Model": gpu.name, "GPU UUID": gpu.uuid, "Bus Location": gpu.address, "Device Minor": gpu.minor}
        content = "".join(f"{name}: \t {value}\n" for name, value in facts.items())
        found[f"/proc/driver/nvidia/gpus/{gpu.address}/information"] = Text(content)
    if not driver.mig_minors or not any(gpu.mig_current for gpu in driver.gpus):
        return found
    minors = driver.minors()
    lines = "".join(f"{name} {minor}\n" for name, minor in minors.items())
    found["/proc/driver/nvidia-caps/mig-minors"] = Text(lines)
    for name, minor in minors.items():
        first, _, rest = name.partition("/")
        path = f"{first}/mig/{rest}" if rest else f"mig/{first}"
        content = f"DeviceFileMinor: {minor}\nDeviceFileMode: 256\nDeviceFileModify: 1\n"
        found[f"/proc/driver/nvidia/capabilities/{path}"] = Text(content)
    return found


def _pci(gpu: Gpu) -> Plan:
    device = f"/sys/bus/pci/devices/{gpu.address}"
    vendor_id, device_id = gpu.device_id & 0xFFFF, gpu.device_id >> 16
    config = bytearray(256)
    config[0:4] = vendor_id.to_bytes(2, "little") + device_id.to_bytes(2, "little")
    config[9:12] = gpu.pci_class.to_bytes(3, "little")
    found: Plan = {
        f"{device}/vendor": Text(f"0x{vendor_id:04x}\n"),
        f"{device}/device": Text(f"0x{device_id:04x}\n"),
        f"{device}/class": Text(f"0x{gpu.pci_class:06x}\n"),
        f"{device}/config": Text(bytes(config)),
        f"{device}/resource": Text("0x0000000000000000 0x0000000000000000 0x0000000000000000\n" * 13),
        f"/sys/bus/pci/drivers/nvidia/{gpu.address}": Symlink(f"../../devices/{gpu.address}"),
    }
    if gpu.numa_node is not None:
        found[f"{device}/numa_node"] = Text(f"{gpu.numa_node}\n")
    if gpu.drm:
        found[f"{device}/drm/card{gpu.drm[0]}"] = Folder()
        found[f"{device}/drm/renderD{gpu.drm[1]}"] = Folder()
    return found


def _libraries(driver: Driver) -> Plan:
    found: Plan = {}
    if driver.wsl:
        found["/usr/lib/x86_64-linux-gnu/libdxcore.so"] = Copy(compiled_empty("libdxcore.so"))
    if driver.library_path is None:
        return found
    folder = driver.library_path.rpartition("/")[0]
    for entry in driver.driver_files:
        name, _, target = entry.partition(" -> ")
        path = f"{folder}/{name[4:]}" if name.startswith("lib/") else f"{driver.driver_root or ''}{name}"
        found[path] = Symlink(target) if target else Text("", 0o755)
    versioned = f"libnvidia-ml.so.{driver.driver_version}"
    return found | {f"{folder}/{versioned}": Copy(compiled()), driver.library_path: Symlink(versioned)}


def _nodes(driver: Driver, dev: str) -> Plan:
    names = [path.removeprefix("/dev/") for path in driver.dev_nodes]
    names += [f"dri/card{gpu.drm[0]}" for gpu in driver.gpus if gpu.drm]
    names += [f"dri/renderD{gpu.drm[1]}" for gpu in driver.gpus if gpu.drm]
    if driver.gpu_nodes:
        names += [f"nvidia{gpu.minor}" for gpu in driver.gpus]
        if any(gpu.mig_current for gpu in driver.gpus):
            names += [f"nvidia-caps/nvidia-cap{minor}" for minor in driver.minors().values()]
    found = {f"{dev}/{name}": _node(name) for name in names}
    for gpu in driver.gpus:
        if gpu.drm:
            by_path = f"{dev}/dri/by-path/pci-{gpu.address}"
            found[f"{by_path}-card"] = Symlink(f"../card{gpu.drm[0]}")
            found[f"{by_path}-render"] = Symlink(f"../renderD{gpu.drm[1]}")
    return found


def _node(name: str) -> Entry:
    for pattern, major, first, mode, group in _NODES:
        if found := re.fullmatch(pattern, name):
            return DeviceNode(major, first + int(found[1]) if found.groups() else first, mode, group)
    raise ValueError(f"/dev/{name}: which numbers does it have? Add it to the table")


def _put(path: Path, entry: Entry) -> bool:
    path.parent.mkdir(parents=True, exist_ok=True)
    match entry:
        case Text(content, mode):
            # In place: where the file is mounted elsewhere, its new content is seen there.
            path.write_bytes(content.encode() if isinstance(content, str) else content)
            path.chmod(mode)
        case Copy(source):
            shutil.copy(source, path)
        case Symlink(target):
            path.unlink(missing_ok=True)
            path.symlink_to(target)
        case Folder():
            path.mkdir(exist_ok=True)
        case DeviceNode():
            return _make_node(path, entry)
    return True


def _make_node(path: Path, node: DeviceNode) -> bool:
    try:
        os.mknod(path, node.mode | stat.S_IFCHR, os.makedev(node.major, node.minor))
    except PermissionError:
        path.touch(node.mode)
        return False
    path.chmod(node.mode)  # whatever the umask
    os.chown(path, 0, node.group)
    return True


def _remove(path: Path, root: Path) -> None:
    """With the folders that it leaves empty, but not those at the top: they may be mounted somewhere."""
    path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    while len((path := path.parent).relative_to(root).parts) > 3:
        try:
            path.rmdir()
        except OSError:
            return
