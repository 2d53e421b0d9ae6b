"""Whether what a backend says can be used, and is within bounds. Backends may be third-party code: type hints do not
bind them, and what they say is kept, logged, shown and sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from msgspec.structs import replace

from fairlead.kit.text import is_encodable, printable
from fairlead.model.device import Device, DeviceNode
from fairlead.model.edits import Edits, Mount
from fairlead.model.errors import BackendError, some
from fairlead.model.health import Cause, CauseKind, Sign
from fairlead.model.inventory import Findings, Links
from fairlead.model.names import DeviceId

T = TypeVar("T")
NUMA_MAX = 2**31  # far above any machine; the wire carries 64 bits
DEVICES_MAX = 16_384  # of one backend
PARTS_MAX = 1024  # nodes, or attributes, of one device
SLOTS_MAX = 2**16  # that one device names itself
TEXT_MAX = 4096  # characters of one text: as many as a path may have bytes
PROBLEMS_MAX = 64  # of one scan
CAUSE_MAX = 1000  # characters of a code or a message
EDITS_MAX = 2**20  # characters of one container's edits; the kubelet takes no message over 4 MiB


def check_findings(found: Any) -> Findings:
    """The findings, or a BackendError that names the first thing wrong with them."""
    if not isinstance(found, Findings):
        raise BackendError(f"discover gave {found!r:.80}, not findings")
    if not isinstance(found.links, Links):
        raise BackendError(f"links are {found.links!r:.80}, not Links")
    devices = _check_many("devices", found.devices, lambda one: isinstance(one, Device), "Device")
    if len(devices) > DEVICES_MAX:
        raise BackendError(f"discover gave {len(devices):,} devices, over {DEVICES_MAX:,}: let it look for fewer")
    for device in devices:
        _check_device(device)
    problems = _check_many("problems", found.problems, _is_text, "text")
    problems = tuple([problem[:TEXT_MAX] for problem in problems[:PROBLEMS_MAX]])
    flawed: dict[str, list[str]] = {}
    kept = []
    for device in devices:
        if flaw := _flaw(device):
            flawed.setdefault(flaw, []).append(printable(device.id[:80]))
        else:
            kept.append(device)
    left_out = [f"{some(ids)}: left out, because {flaw}" for flaw, ids in flawed.items()]
    return replace(found, devices=tuple(kept), problems=(*problems, *left_out))


def _flaw(device: Device) -> str:
    """Why the kubelet, or people, cannot be sent this device; one such text would cost the list of all devices."""
    texts = [device.id, device.index, device.vendor, device.model, device.pci_address, device.parent or ""]
    texts += device.attributes
    texts += device.attributes.values()
    texts += device.slots
    for node in device.nodes:
        texts += node.path, node.container_path
    whole = "".join(texts)
    if not is_encodable(whole):
        return "an id, a path or another text of them is not valid UTF-8. Rename them"
    if len(whole) > TEXT_MAX and any(len(text) > TEXT_MAX for text in texts):
        return f"an id, a path or another text of them has over {TEXT_MAX:,} characters. Shorten it"
    if len(device.nodes) > PARTS_MAX or len(device.attributes) > PARTS_MAX:
        return f"they have over {PARTS_MAX:,} nodes or attributes. Give fewer"
    if len(device.slots) > SLOTS_MAX:
        return f"they have over {SLOTS_MAX:,} slots. Give fewer"
    return ""


def _check_device(device: Device) -> None:
    texts = ("id", "index", "vendor", "model", "pci_address")
    if wrong := next((name for name in texts if not isinstance(getattr(device, name), str)), ""):
        raise _wrong(device, wrong, "text")
    if not _is_whole(device.memory_bytes):
        raise _wrong(device, "memory_bytes", "a whole number")
    if not (device.parent is None or isinstance(device.parent, str)):
        raise _wrong(device, "parent", "an id")
    nodes: Any = device.numa_nodes
    if not isinstance(nodes, tuple | list) or not all(_is_whole(node) and node < NUMA_MAX for node in nodes):
        raise _wrong(device, "numa_nodes", "a tuple of whole numbers")
    files: Any = device.nodes
    if not isinstance(files, tuple | list) or not all(_is_node(file) for file in files):
        raise _wrong(device, "nodes", "a tuple of DeviceNode with texts")
    slots: Any = device.slots
    if not isinstance(slots, tuple) or not all(map(_is_text, slots)):
        raise _wrong(device, "slots", "a tuple of texts")
    named: Any = device.attributes
    if not isinstance(named, Mapping) or not all(map(_is_text, (*named, *named.values()))):
        raise _wrong(device, "attributes", "a mapping of texts")


def _wrong(device: Device, field: str, wanted: str) -> BackendError:
    return BackendError(f"device {device.id!r:.80}: {field} is {getattr(device, field)!r:.80}, not {wanted}")


def _check_many(what: str, given: Any, fits: Callable[[Any], bool], wanted: str) -> tuple[Any, ...]:
    if not isinstance(given, tuple | list):
        raise BackendError(f"discover gave {what} as {given!r:.80}, not a tuple")
    if wrong := [one for one in given if not fits(one)]:
        raise BackendError(f"discover gave {wrong[0]!r:.80} among its {what}, which is not a {wanted}")
    return tuple(given)


def _is_text(text: Any) -> bool:
    return isinstance(text, str)


def _is_whole(number: Any) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 0


def _is_node(node: Any) -> bool:
    return isinstance(node, DeviceNode) and all(
        isinstance(text, str) for text in (node.path, node.container_path, node.permissions)
    )


def check_verdict(cause: Any) -> Cause | None:
    if cause is None:
        return None
    if isinstance(cause, Cause):
        return check_cause(cause)
    raise BackendError(f"the probe gave {cause!r:.80}, neither None nor a Cause")


def check_cause(cause: Any) -> Cause:
    """With texts that may be kept and shown."""
    if not isinstance(cause, Cause) or not isinstance(cause.kind, CauseKind):
        raise BackendError(f"{cause!r:.80} is no Cause with a CauseKind")
    signs: Any = cause.cured_by
    if not isinstance(signs, tuple) or not all(map(_is_text, (cause.code, cause.message, *signs))):
        raise BackendError(f"the code, the message or a sign of the cause {cause.code!r:.80} is not a text")
    held: Any = cause.hold_s
    if held is not None and not isinstance(held, int | float):
        raise BackendError(f"hold_s of the cause {cause.code!r:.80} is {held!r:.80}, not seconds")
    if len(cause.code) + len(cause.message) <= CAUSE_MAX:
        return cause
    return replace(cause, code=cause.code[:CAUSE_MAX], message=cause.message[:CAUSE_MAX])


def check_signs(signs: Any) -> Mapping[DeviceId, Mapping[str, Sign]]:
    if isinstance(signs, Mapping) and all(
        isinstance(read, Mapping) and all(isinstance(sign, Sign) for sign in read.values()) for read in signs.values()
    ):
        return signs
    raise BackendError(f"signs gave {signs!r:.80}, not a mapping of Sign for each device")


def check_edits(edits: Any) -> Edits:
    """The kubelet waits meanwhile: one look at each text."""
    if not isinstance(edits, Edits):
        raise BackendError(f"edits gave {edits!r:.80}, not Edits")
    texts: list[Any] = []
    for named in (edits.env, edits.annotations):
        if not isinstance(named, Mapping):
            raise BackendError(f"env or annotations are {named!r:.80}, not a mapping of texts")
        texts += named
        texts += named.values()
    for node in _each(edits.nodes, DeviceNode):
        texts += node.path, node.container_path, node.permissions
    for mount in _each(edits.mounts, Mount):
        texts += mount.host_path, mount.container_path
    texts += _each(edits.cdi, str)
    try:
        whole = "".join(texts)
    except TypeError:
        raise BackendError(f"{next(one for one in texts if not _is_text(one))!r:.80} is in them, not text") from None
    if not is_encodable(whole):
        raise BackendError("a text of them is not valid UTF-8")
    if len(whole) > EDITS_MAX:
        raise BackendError(f"they have {len(whole):,} characters, over {EDITS_MAX:,}")
    return edits


def _each(given: Any, kind: type[T]) -> tuple[T, ...]:
    if not isinstance(given, tuple) or not all(isinstance(one, kind) for one in given):
        raise BackendError(f"{given!r:.80} is not a tuple of {kind.__name__}")
    return given
