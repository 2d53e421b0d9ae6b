"""What people may write: how devices of the host are found, and how they are called."""

# Annotations are objects here, not text: text would be evaluated at each start (docs/decisions/0008-speed.md).
import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated

import msgspec

from fairlead.backends.paths.bundle import Bundle
from fairlead.backends.paths.classes import Sysfs
from fairlead.backends.paths.found import Finder, Kind
from fairlead.backends.paths.pci import Pci
from fairlead.backends.paths.rdma import Rdma
from fairlead.backends.paths.tree import Tree
from fairlead.backends.paths.usb import Usb
from fairlead.kit.decoding import Seconds, doc
from fairlead.kit.pattern import fill

_PERMISSIONS = re.compile(r"r?w?m?")
PATH_FIELDS = ("name", "dir")
# The keys of an entry that find devices otherwise than by `paths`.
FINDERS: tuple[str, ...] = ("pci", "rdma", "sysfs", "usb", "bundle", "tree")


class Preset(StrEnum):
    """Entries that are written already: presets.py."""

    KVM = "kvm"
    FUSE = "fuse"
    TUN = "tun"
    VHOST_NET = "vhost-net"
    TPM = "tpm"
    SGX = "sgx"
    TAP = "tap"
    SERIAL = "serial"
    CAMERA = "camera"
    RENDER = "render"
    VFIO = "vfio"
    XILINX = "xilinx"
    DFL = "dfl"
    RDMA = "rdma"


class MountSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    host: Annotated[str, doc("The path on the host.", "/usr/share/alsa")]
    container: Annotated[str, doc("The path in the container; left out, the same.")] = ""
    read_only: Annotated[bool, doc("Whether the container may only read it.")] = True


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Devices of one kind. Exactly one key says how they are found: `paths` or one of FINDERS.

    Of `paths` each match is a device, or with `group` all matches together are one.
    """

    preset: Annotated[Preset | None, doc("An entry that is written already; keys beside it win.", "kvm")] = None
    paths: Annotated[tuple[str, ...], doc("Finds devices by path: absolute paths or shell globs.", ["/dev/kvm"])] = ()
    pci: Annotated[Pci | None, doc("Finds PCI functions.")] = None
    usb: Annotated[Usb | None, doc("Finds USB devices. Each match is a device.")] = None
    rdma: Annotated[Rdma | None, doc("Finds RDMA and InfiniBand adapters.")] = None
    sysfs: Annotated[Sysfs | None, doc("Finds the devices of a class of the kernel.")] = None
    bundle: Annotated[Bundle | None, doc("Finds devices by the rules of squat's generic-device-plugin.")] = None
    tree: Annotated[Tree | None, doc("Finds devices by the rules of smarter-device-manager.")] = None
    name: Annotated[str, doc("The device's id. `{name}` and other fields are filled in.", "{dir}-{name}")] = "{name}"
    group: Annotated[bool, doc("All matches of `paths` together are one device, with a `name` of your choice.")] = False
    allow: Annotated[tuple[Kind, ...], doc("What a path may be.")] = (Kind.DEVICE,)
    permissions: Annotated[str, doc("Of device nodes in the container. Without w, a mount is read-only.", "r")] = "rw"
    mounts: Annotated[tuple[MountSpec, ...], doc("More paths for the container.")] = ()
    vendor: Annotated[str, doc("What rules match and people read, instead of what the finder says.", "ftdi")] = ""
    model: Annotated[str, doc("The same.")] = ""
    attributes: Annotated[dict[str, str], doc("The same, beside what the finder says.", {"room": "b"})] = {}
    optional: Annotated[
        bool, doc("Do not list what is missing: a path without wildcard, a part of a group, a function without a node.")
    ] = False


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    devices: Annotated[tuple[Entry, ...], doc("How devices are found. Each entry finds them in one way.")]
    host_root: Annotated[str, doc("Where the host's /dev and /sys are. Links never lead out of it.", "/host")] = "/"
    poll: Annotated[Seconds, doc("How often to look where file-system events do not reach.")] = Seconds(30)


def find_faults(options: Options) -> Iterator[str]:
    """What the types cannot say."""
    if not options.host_root.startswith("/"):
        yield f"hostRoot: {options.host_root!r} is not an absolute path"
    if options.poll < 1:
        yield f"poll: {options.poll:g} s is too often; events come by themselves, give 1s or more"
    groups = [entry.name for entry in options.devices if entry.group]
    for position, entry in enumerate(options.devices):
        if entry.group and groups.count(entry.name) > 1:
            yield f"devices[{position}].name: {entry.name!r} is the name of two groups, and a name is of one device"
        yield from (f"devices[{position}].{fault}" for fault in _entry_faults(entry))


def finder_of(entry: Entry) -> Finder | None:
    """What finds the devices of an entry; None where its paths do."""
    return next((finder for key in FINDERS if (finder := getattr(entry, key)) is not None), None)


def _entry_faults(entry: Entry) -> Iterator[str]:
    finder = finder_of(entry)
    ways = [key for key in ("paths", *FINDERS) if getattr(entry, key) not in (None, ())]
    if not ways:
        yield "paths: give at least one" + (f", or one of {', '.join(FINDERS)}" if FINDERS else "")
    elif len(ways) > 1:
        yield f"{' and '.join(ways)}: give one of them; an entry finds its devices in one way"
    if finder is not None:
        yield from (f"{ways[-1]}.{fault}" for fault in finder.faults())
        if entry.group:
            yield f"group: is for paths; what {ways[-1]} finds has its nodes together"
    for path in entry.paths:
        yield from _path_faults("paths", path)
    for mount in entry.mounts:
        yield from _path_faults("mounts.host", mount.host)
        if mount.container:
            yield from _path_faults("mounts.container", mount.container)
    if not entry.permissions or not _PERMISSIONS.fullmatch(entry.permissions):
        yield f"permissions: {entry.permissions!r} is not made of r, w and m, in this order"
    if not entry.allow:
        yield "allow: give at least one kind"
    if entry.group and "{" in entry.name:
        yield f"name: a group is one device of several paths; give it a name of its own, not {entry.name!r}"
        return
    try:
        name = fill(entry.name, dict.fromkeys(finder.fields if finder else PATH_FIELDS, "x"), "name")
    except ValueError as error:
        yield str(error)
    else:
        if not name:
            yield "name: it is empty"


def _path_faults(key: str, path: str) -> Iterator[str]:
    if not path.startswith("/"):
        yield f"{key}: {path!r} is not an absolute path"
    elif ".." in path.split("/"):
        yield f"{key}: {path!r} holds '..'; write the path it leads to"
    elif "\x00" in path:
        yield f"{key}: {path!r} holds a zero byte"
