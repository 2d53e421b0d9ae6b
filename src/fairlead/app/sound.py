"""Whether what a backend says can be used. Backends may be anybody's code; types alone hold nobody to a promise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from fairlead.model.device import Device, DeviceNode
from fairlead.model.errors import BackendError, some
from fairlead.model.health import Cause, Sign
from fairlead.model.inventory import Findings, Links
from fairlead.model.names import DeviceId
from fairlead.model.text import is_encodable, printable

NUMA_MAX = 2**31  # far above any machine; the wire carries 64 bits


def check_findings(found: Any) -> Findings:
    """The findings, or a BackendError that names the first thing wrong with them."""
    if not isinstance(found, Findings):
        raise BackendError(f"discover gave {found!r:.80}, not findings")
    if not isinstance(found.links, Links):
        raise BackendError(f"links are {found.links!r:.80}, not Links")
    for device in found.devices:
        _check_device(device)
    if all(_can_be_told(device) for device in found.devices):
        return found
    # The kubelet's protocol takes valid UTF-8 only: one such text would cost the list of all devices.
    kept = tuple(device for device in found.devices if _can_be_told(device))
    left = [printable(device.id) for device in found.devices if not _can_be_told(device)]
    why = "left out, because an id, a path or another text of them is not valid UTF-8. Rename them"
    return replace(found, devices=kept, problems=(*found.problems, f"{some(left)}: {why}"))


def _can_be_told(device: Device) -> bool:
    texts = [device.id, device.index, device.vendor, device.model, device.pci_address, *device.attributes.values()]
    texts += [path for node in device.nodes for path in (node.path, node.container_path)]
    return all(is_encodable(str(text)) for text in texts)


def _check_device(device: Any) -> None:
    if not isinstance(device, Device):
        raise BackendError(f"discover gave {device!r:.80}, which is not a Device")
    texts = ("id", "index", "vendor", "model", "pci_address")
    if wrong := next((name for name in texts if not isinstance(getattr(device, name), str)), ""):
        raise BackendError(f"device {device.id!r:.80}: {wrong} is {getattr(device, wrong)!r:.80}, not text")
    if not _is_whole(device.memory_bytes):
        raise BackendError(f"device {device.id!r}: memory_bytes is {device.memory_bytes!r:.80}, not a whole number")
    nodes: Any = device.numa_nodes
    if not isinstance(nodes, tuple | list) or not all(_is_whole(node) and node < NUMA_MAX for node in nodes):
        raise BackendError(f"device {device.id!r}: numa_nodes are {nodes!r:.80}, not a tuple of whole numbers")
    files: Any = device.nodes
    if not isinstance(files, tuple | list) or not all(isinstance(file, DeviceNode) for file in files):
        raise BackendError(f"device {device.id!r}: nodes are {files!r:.80}, not a tuple of DeviceNode")


def _is_whole(number: Any) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 0


def check_verdict(cause: Any) -> Cause | None:
    if cause is None or isinstance(cause, Cause):
        return cause
    raise BackendError(f"the probe gave {cause!r:.80}, neither None nor a Cause")


def check_signs(signs: Any) -> Mapping[DeviceId, Mapping[str, Sign]]:
    if isinstance(signs, Mapping) and all(
        isinstance(read, Mapping) and all(isinstance(sign, Sign) for sign in read.values()) for read in signs.values()
    ):
        return signs
    raise BackendError(f"signs gave {signs!r:.80}, not a mapping of Sign for each device")
