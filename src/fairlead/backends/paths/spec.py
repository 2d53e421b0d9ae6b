"""What people may write: which paths of the host are devices, and how they are called."""

# Annotations are objects here, not text: text would be evaluated at each start (docs/decisions/0008-speed.md).
import re
from collections.abc import Iterator
from enum import StrEnum

import msgspec

from fairlead.backends.pattern import fill
from fairlead.backends.strict import Seconds

WILDCARD = re.compile(r"[*?\[]")
_PERMISSIONS = re.compile(r"r?w?m?")
NAME_FIELDS = ("name", "dir")


class Kind(StrEnum):
    """What may stand at a path."""

    DEVICE = "device"  # a character or block device
    FILE = "file"
    DIRECTORY = "directory"
    SOCKET = "socket"


class MountSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    host: str
    container: str = ""  # empty: the same
    read_only: bool = True


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Paths that are devices: each match is one, or with `group` all matches together are one."""

    paths: tuple[str, ...]
    name: str = "{name}"  # the id; knows {name} and {dir} of the path
    group: bool = False
    allow: tuple[Kind, ...] = (Kind.DEVICE,)
    permissions: str = "rw"
    mounts: tuple[MountSpec, ...] = ()
    vendor: str = ""
    model: str = ""
    attributes: dict[str, str] = {}
    # A path without wildcard stays listed when it is missing, and is unhealthy; an optional one is not listed then.
    optional: bool = False


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    devices: tuple[Entry, ...]
    host_root: str = "/"
    poll: Seconds = Seconds(30)  # the net under the events


def find_faults(options: Options) -> Iterator[str]:
    """What the types cannot say."""
    if not options.host_root.startswith("/"):
        yield f"hostRoot: {options.host_root!r} is not an absolute path"
    if options.poll < 1:
        yield f"poll: {options.poll:g} s is too often; events come by themselves, give 1s or more"
    for position, entry in enumerate(options.devices):
        yield from (f"devices[{position}].{fault}" for fault in _entry_faults(entry))


def _entry_faults(entry: Entry) -> Iterator[str]:
    if not entry.paths:
        yield "paths: give at least one"
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
        name = fill(entry.name, dict.fromkeys(NAME_FIELDS, "x"), "name")
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
