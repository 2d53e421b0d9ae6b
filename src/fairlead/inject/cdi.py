"""CDI specs as values: the document, the oldest version that understands it, what is wrong with it, its JSON.

Pure and without a vendor. Who makes the content and who writes the file is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from zlib import crc32

import msgspec
from msgspec.structs import replace

from fairlead.model.errors import InvalidName

HOOK_NAMES = frozenset({"prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"})
ANNOTATION_PREFIX = "cdi.k8s.io/"
BEGINNING = b"{\n"  # of every file that `encode` makes
KEY_LENGTH = 63  # of a Kubernetes annotation key, behind the prefix
VENDOR_MAX = 200
_KIND_PART = re.compile(r"[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
_DEVICE_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?")


class _Part(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    pass


class Node(_Part, frozen=True):
    path: str
    host_path: str = ""
    type: str = ""
    major: int = 0
    minor: int = 0
    file_mode: int = 0
    permissions: str = ""
    uid: int | None = None
    gid: int | None = None


class Mount(_Part, frozen=True):
    host_path: str
    container_path: str
    options: tuple[str, ...] = ()
    type: str = ""


class Hook(_Part, frozen=True):
    hook_name: str
    path: str
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    timeout: int | None = None


class ContainerEdits(_Part, frozen=True):
    env: tuple[str, ...] = ()
    device_nodes: tuple[Node, ...] = ()
    hooks: tuple[Hook, ...] = ()
    mounts: tuple[Mount, ...] = ()
    additional_gids: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.env or self.device_nodes or self.hooks or self.mounts or self.additional_gids)


class Device(_Part, frozen=True, kw_only=True):
    name: str
    annotations: Mapping[str, str] = {}
    container_edits: ContainerEdits


class Spec(_Part, frozen=True, kw_only=True):
    cdi_version: str = ""  # filled in by `encode`
    kind: str
    annotations: Mapping[str, str] = {}
    devices: tuple[Device, ...]
    container_edits: ContainerEdits


def join(parts: Iterable[ContainerEdits]) -> ContainerEdits:
    """All of them one after the other; what comes twice comes once."""
    env: dict[str, None] = {}
    nodes: dict[Node, None] = {}
    hooks: dict[Hook, None] = {}
    mounts: dict[Mount, None] = {}
    gids: set[int] = set()
    for part in parts:
        env.update(dict.fromkeys(part.env))
        nodes.update(dict.fromkeys(part.device_nodes))
        hooks.update(dict.fromkeys(part.hooks))
        mounts.update(dict.fromkeys(part.mounts))
        gids.update(part.additional_gids)
    return ContainerEdits(
        tuple(env),
        tuple(sorted(nodes, key=lambda node: _depth_first(node.path))),
        tuple(hooks),
        tuple(sorted(mounts, key=lambda mount: _depth_first(mount.container_path))),
        tuple(sorted(gids)),
    )


def _depth_first(path: str) -> tuple[int, str]:
    """What is mounted below something else comes after it."""
    return path.rstrip("/").count("/"), path


def qualify(kind: str, name: str) -> str:
    return f"{kind}={name}"


def device_name(text: str) -> str:
    """A text as a CDI device name. Old MIG ids have slashes, which CDI does not allow."""
    return text.replace("/", "_")


def file_name(kind: str) -> str:
    """The name that the CDI library gives to the spec of a vendor and class."""
    return kind.replace("/", "-") + ".json"


def annotation_key(plugin: str, resource: str, prefix: str = ANNOTATION_PREFIX) -> str:
    """One key for each resource: a container has one grant of a resource, and a key of its own for each of several.

    Readable and always the same, so that two equal answers are equal. Names too long for a key end in a check sum.
    """
    name = f"{plugin}_{resource.replace('/', '_')}"
    if len(name) > KEY_LENGTH:
        mark = f"{crc32(resource.encode()):08x}"
        name = f"{name[: KEY_LENGTH - len(mark) - 1].rstrip('-_.')}-{mark}"
    return prefix + name


def minimum_version(spec: Spec) -> str:
    """The oldest version of CDI that has all that the spec uses: runtimes refuse what is newer than they are."""
    parts = [spec.container_edits, *(device.container_edits for device in spec.devices)]
    if any(part.additional_gids for part in parts):
        return "0.7.0"
    if spec.annotations or any(device.annotations for device in spec.devices) or "." in spec.kind.partition("/")[2]:
        return "0.6.0"
    if any(device.name[:1].isdigit() for device in spec.devices) or any(
        n.host_path for p in parts for n in p.device_nodes
    ):
        return "0.5.0"
    return "0.4.0" if any(mount.type for part in parts for mount in part.mounts) else "0.3.0"


def encode(spec: Spec) -> bytes:
    """The file. Raises InvalidName for a spec that a runtime would refuse, and then ignore as a whole."""
    for problem in find_problems(spec):
        raise InvalidName("CDI spec", spec.kind, problem)
    return msgspec.json.format(msgspec.json.encode(replace(spec, cdi_version=minimum_version(spec))), indent=2) + b"\n"


class _Outline(msgspec.Struct):
    kind: str = ""


def read_kind(content: bytes) -> str:
    """Of which vendor and class a spec file is; empty if it is none."""
    try:
        return msgspec.json.decode(content, type=_Outline).kind
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""


def vendor_problem(text: str) -> str:
    """What the CDI library would refuse in the name of a vendor or a class; empty for nothing."""
    if not _KIND_PART.fullmatch(text):
        return f"{text!r:.80} must start with a letter, end with a letter or digit, and have only -_. between"
    if len(text) > VENDOR_MAX:
        return f"{text!r:.80} has {len(text)} characters; {VENDOR_MAX} is the limit, for it is part of a file's name"
    return ""


def find_problems(spec: Spec) -> Iterator[str]:
    """What the CDI library refuses."""
    vendor, _, group = spec.kind.partition("/")
    for what, text in (("vendor", vendor), ("class", group)):
        if problem := vendor_problem(text):
            yield f"{what} {problem}"
    if not spec.devices:
        yield "it has no devices"
    seen: set[str] = set()
    for device in spec.devices:
        if not _DEVICE_NAME.fullmatch(device.name):
            yield f"device name {device.name!r} must start and end with a letter or digit, and have only -_.: between"
        if device.name in seen:
            yield f"device {device.name!r} is there twice"
        seen.add(device.name)
        if not device.container_edits:
            yield f"device {device.name!r} changes nothing in a container"
        for problem in _edit_problems(device.container_edits):
            yield f"device {device.name!r}: {problem}"
    yield from _edit_problems(spec.container_edits)


def _edit_problems(edits: ContainerEdits) -> Iterator[str]:
    for variable in (*edits.env, *(variable for hook in edits.hooks for variable in hook.env)):
        if variable.find("=") < 1:
            yield f"environment variable {variable!r} is not NAME=value"
    for node in edits.device_nodes:
        if not node.path:
            yield "a device node has no path"
        if node.type not in {"", "b", "c", "u", "p"}:
            yield f"device node {node.path}: unknown type {node.type!r}"
        if node.permissions.strip("rwm") and node.permissions != "none":
            yield f"device node {node.path}: permissions {node.permissions!r} are not made of r, w, m"
    for hook in edits.hooks:
        if hook.hook_name not in HOOK_NAMES:
            yield f"unknown hook {hook.hook_name!r}"
        if not hook.path:
            yield f"hook {hook.hook_name} has no program"
    for mount in edits.mounts:
        if not mount.host_path or not mount.container_path:
            yield f"mount {mount.host_path!r} to {mount.container_path!r} lacks a path"
