"""Between our nouns and the kubelet's messages: device lists out, container edits out."""

from __future__ import annotations

from fairlead.model.edits import Edits
from fairlead.model.resource import Resource
from fairlead.wire import deviceplugin as dp
from fairlead.wire.proto import encode


def device_list(resource: Resource) -> bytes:
    """The encoded ListAndWatchResponse of a resource.

    All slots of a device share health and topology, so that tail is encoded once per device and the id is put in
    front of it: 60,000 slots take a fraction of what 60,000 message objects would.
    """
    parts: list[bytes] = []
    tails: dict[tuple[bool, tuple[int, ...]], bytes] = {}
    for device_id, slots in resource.slots_of.items():
        device = resource.inventory.by_id.get(device_id)
        numa = device.numa_nodes if device is not None else ()
        for slot in slots:
            key = (resource.usable(slot), numa)
            tail = tails.get(key)
            if tail is None:
                topology = dp.TopologyInfo(nodes=tuple(dp.NUMANode(id=node) for node in numa)) if numa else None
                health = dp.HEALTHY if key[0] else dp.UNHEALTHY
                tail = tails[key] = encode(dp.Device(health=health, topology=topology))
            name = slot.id.encode()
            body = b"\n" + _varint(len(name)) + name + tail  # "\n": field 1, length-delimited
            parts.append(b"\n" + _varint(len(body)) + body)
    return b"".join(parts)


def _varint(number: int) -> bytes:
    if number < 0x80:
        return bytes((number,))
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def container_response(edits: Edits) -> dp.ContainerAllocateResponse:
    return dp.ContainerAllocateResponse(
        envs=edits.env,
        mounts=tuple(
            dp.Mount(container_path=mount.container_path, host_path=mount.host_path, read_only=mount.read_only)
            for mount in edits.mounts
        ),
        devices=tuple(
            dp.DeviceSpec(
                container_path=node.container_path or node.path, host_path=node.path, permissions=node.permissions
            )
            for node in edits.nodes
        ),
        annotations=edits.annotations,
        cdi_devices=tuple(dp.CDIDevice(name=name) for name in edits.cdi),
    )
